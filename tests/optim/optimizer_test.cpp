#include "optim/optimizer.h"

#include <cmath>

#include "ops/optimizer.h"
#include "ops/reference.h"
#include "support/message_of.h"

namespace capstan::test {
namespace {

constexpr Precision kPrecisions[] = {Precision::f32_true, Precision::bf16_true,
                                     Precision::bf16_mixed};

ModelConfig small_config() {
  ModelConfig c;
  c.vocab = 11;
  c.hidden = 8;
  c.intermediate = 12;
  c.layers = 1;
  c.heads = c.kv_heads = 2;
  c.head_dim = 4;
  return c;
}

// Parameters with random gradients that stay.
struct Model {
  explicit Model(Precision precision)
      : arena(Arena::Heap{}),
        q(Device::cpu, arena),
        params(arena, make_spec(small_config()), precision, Gradients::kept) {
    params.initialize(q, 3);
    for (int i = 0; i < params.count(); ++i) put(params.grad(i), static_cast<uint64_t>(i));
  }
  void put(const Tensor& to, uint64_t seed) {
    const Values v = normal_values(to.numel(), seed);
    const Buffer b = buffer_of(q, to.dtype(), to.shape(), v);
    q.upload(to, b->raw());
  }
  Buffer scale(double value) { return buffer_of(q, DType::f32, {1}, {value}); }
  Buffer copy(const Tensor& t) {
    Buffer b = arena.make(Category::data, t.dtype(), t.shape(), "copy");
    q.upload(b, t.raw());
    return b;
  }
  Values values(const Tensor& t) { return values_of(q, t); }

  Arena arena;
  Queue q;
  Parameters params;
};

// The state of one tensor of a checkpoint; absent where there is none.
Tensor find(const Optimizer& optimizer, const std::string& name) {
  for (const SavedTensor& s : optimizer.state())
    if (s.name == name) return s.whole();
  return {};
}

// A moment of all of parameter i, whose parts lie one after the other.
Tensor of_parameter(const Optimizer& optimizer, const Parameters& params, int i, const char* name) {
  const Param& param = params.spec().params[idx(i)];
  const Tensor first = find(optimizer, param.parts[0].name + "." + name);
  return first ? Tensor(first.raw(), first.dtype(), param.shape) : Tensor();
}

TEST(Optimizer, AdamWHasTwoMomentsOfEachParameterInTheTypeOfThePrecision) {
  for (const Precision p : kPrecisions) {
    Model m(p);
    const Optimizer optimizer(m.q, m.params, {});
    const DType state = p == Precision::bf16_true ? DType::bf16 : DType::f32;
    for (int i = 0; i < m.params.count(); ++i)
      for (const char* name : {"exp_avg", "exp_avg_sq"}) {
        const Tensor moment = of_parameter(optimizer, m.params, i, name);
        EXPECT_EQ(moment.dtype(), state) << name_of(p);
        EXPECT_EQ(moment.shape(), m.params.weight(i).shape());
        EXPECT_EQ(norm(m.values(moment)), 0);
      }
    EXPECT_EQ(optimizer.steps(), 0);
  }
}

TEST(Optimizer, SgdHasAMomentOnlyWithMomentum) {
  Model m(Precision::f32_true);
  using Kind = OptimizerOptions::Kind;
  const Optimizer plain(m.q, m.params, {.kind = Kind::sgd});
  const Optimizer heavy(m.q, m.params, {.kind = Kind::sgd, .momentum = 0.9});
  EXPECT_TRUE(plain.state().empty());
  size_t parts = 0;
  for (int i = 0; i < m.params.count(); ++i) {
    parts += m.params.spec().params[idx(i)].parts.size();
    EXPECT_EQ(of_parameter(heavy, m.params, i, "momentum_buffer").shape(),
              m.params.weight(i).shape());
  }
  EXPECT_EQ(heavy.state().size(), parts);
}

// Moments are planned memory like any other.
TEST(Optimizer, TakesItsMomentsFromTheArena) {
  for (const auto& [precision, bytes] :
       {std::pair{Precision::f32_true, 8}, {Precision::bf16_true, 4}, {Precision::bf16_mixed, 8}}) {
    ModelConfig c = small_config();
    c.hidden = 128;  // every parameter a multiple of the alignment
    c.intermediate = c.vocab = 256;
    c.head_dim = 64;
    Arena arena;
    Queue q(Device::sim, arena);
    Parameters params(arena, make_spec(c), precision, Gradients::none);
    const Optimizer optimizer(q, params, {});
    EXPECT_EQ(at(arena.plan().highest, Category::optimizer),
              bytes * params.spec().parameter_count())
        << name_of(precision);
  }
}

// Three steps through Optimizer, and by calling the op for each parameter: bitwise equal.
template <class Op>
void expect_equal_by_hand(Precision precision, const OptimizerOptions& options, const Op& op) {
  Model m(precision), hand(precision);
  Optimizer optimizer(m.q, m.params, options);
  std::vector<Buffer> first, second;
  for (int i = 0; i < hand.params.count(); ++i) {
    first.push_back(hand.copy(of_parameter(optimizer, m.params, i, "exp_avg")));
    second.push_back(hand.copy(of_parameter(optimizer, m.params, i, "exp_avg_sq")));
  }
  const Buffer scale = m.scale(0.5);
  for (int64_t step = 1; step <= 3; ++step) {
    const double lr = 0.1 / static_cast<double>(step);
    optimizer.update(m.q, lr, scale);
    EXPECT_EQ(optimizer.steps(), step);
    for (int i = 0; i < hand.params.count(); ++i)
      op(hand.q,
         OptimizerOperands{
             .weight = hand.params.weight(i),
             .master = hand.params.types().has_master() ? hand.params.master(i) : Tensor(),
             .grad = hand.params.grad(i),
             .m = *first[idx(i)],
             .v = *second[idx(i)],
             .grad_scale = scale},
         static_cast<float>(lr), step);
  }
  for (int i = 0; i < m.params.count(); ++i) {
    EXPECT_EQ(m.values(m.params.weight(i)), m.values(hand.params.weight(i))) << name_of(precision);
    EXPECT_EQ(m.values(m.params.stored(i)), m.values(hand.params.stored(i))) << name_of(precision);
    EXPECT_EQ(m.values(of_parameter(optimizer, m.params, i, "exp_avg")), m.values(*first[idx(i)]));
    EXPECT_EQ(m.values(of_parameter(optimizer, m.params, i, "exp_avg_sq")),
              m.values(*second[idx(i)]));
  }
}

TEST(Optimizer, AdamWIsTheOpOnEachParameter) {
  for (const Precision p : kPrecisions)
    expect_equal_by_hand(p, {.beta1 = 0.8, .beta2 = 0.7, .eps = 1e-3, .weight_decay = 0.3},
                         [](Queue& q, const OptimizerOperands& operands, float lr, int64_t step) {
                           adamw(q, operands,
                                 {.lr = lr,
                                  .beta1 = 0.8f,
                                  .beta2 = 0.7f,
                                  .eps = 1e-3f,
                                  .weight_decay = 0.3f,
                                  .step = step});
                         });
}

TEST(Optimizer, SgdIsTheOpOnEachParameter) {
  const OptimizerOptions options{
      .kind = OptimizerOptions::Kind::sgd, .momentum = 0.9, .nesterov = true, .weight_decay = 0.3};
  for (const Precision p : kPrecisions) {
    Model m(p);
    Optimizer optimizer(m.q, m.params, options);
    Model hand(p);
    const Buffer scale = m.scale(0.5);
    std::vector<Buffer> moments;
    for (int i = 0; i < hand.params.count(); ++i)
      moments.push_back(hand.copy(of_parameter(optimizer, m.params, i, "momentum_buffer")));
    for (int64_t step = 1; step <= 3; ++step) {
      optimizer.update(m.q, 0.1, scale);
      for (int i = 0; i < hand.params.count(); ++i)
        sgd(hand.q,
            {.weight = hand.params.weight(i),
             .master = hand.params.types().has_master() ? hand.params.master(i) : Tensor(),
             .grad = hand.params.grad(i),
             .m = *moments[idx(i)],
             .v = {},
             .grad_scale = scale},
            {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.3f, .nesterov = true, .step = step});
    }
    for (int i = 0; i < m.params.count(); ++i)
      EXPECT_EQ(m.values(m.params.stored(i)), m.values(hand.params.stored(i))) << name_of(p);
  }
}

// torch.optim.SGD without extras is w -= lr * scale * g.
TEST(Optimizer, PlainSgdMovesAgainstTheGradient) {
  Model m(Precision::f32_true);
  const Values before = m.values(m.params.weight(0)), gradient = m.values(m.params.grad(0));
  Optimizer optimizer(m.q, m.params, {.kind = OptimizerOptions::Kind::sgd, .weight_decay = 0});
  optimizer.update(m.q, 0.25, m.scale(0.5));
  Values expected = before;
  for (size_t i = 0; i < expected.size(); ++i) expected[i] -= 0.125 * gradient[i];
  EXPECT_LT(error(m.values(m.params.weight(0)), expected), tolerance(DType::f32));
}

// Steps too small for bf16 must add up in the master, and the weight follow it.
TEST(Optimizer, InMixedPrecisionTheMasterKeepsWhatTheWeightCannotHold) {
  Model m(Precision::bf16_mixed);
  Optimizer optimizer(m.q, m.params, {.kind = OptimizerOptions::Kind::sgd, .weight_decay = 0});
  const Values before = m.values(m.params.master(0)), gradient = m.values(m.params.grad(0));
  const Buffer one = m.scale(1);
  constexpr int kSteps = 50;
  constexpr double kLr = 1e-6;
  for (int i = 0; i < kSteps; ++i) optimizer.update(m.q, kLr, one);
  Values moved = m.values(m.params.master(0)), expected = gradient;
  for (size_t i = 0; i < moved.size(); ++i) {
    moved[i] -= before[i];
    expected[i] *= -kSteps * kLr;
  }
  // Each step rounds a master of 0.02 to f32.
  EXPECT_LT(error(moved, expected), kSteps * 0.02 * 0x1p-24 / (kSteps * kLr));
  for (int i = 0; i < m.params.count(); ++i) {
    const Tensor master = m.params.master(i);
    const Buffer rounded = buffer_of(m.q, DType::bf16, master.shape(), m.values(master));
    EXPECT_EQ(m.values(m.params.weight(i)), m.values(rounded));
  }
}

TEST(Optimizer, NamesAreReadBack) {
  using Kind = OptimizerOptions::Kind;
  for (const Kind k : {Kind::adamw, Kind::sgd, Kind::adamw8bit})
    EXPECT_EQ(value_named<OptimizerClass>(name_of(k)), (OptimizerClass{k, false}));
  EXPECT_EQ(value_named<OptimizerClass>("PagedAdamW"), (OptimizerClass{Kind::adamw, true}));
  EXPECT_EQ(value_named<OptimizerClass>("PagedAdamW8bit"), (OptimizerClass{Kind::adamw8bit, true}));
  EXPECT_EQ(message_of(Fault::usage, [] { parse_named<OptimizerClass>("optimizer", "Adam"); }),
            "optimizer: 'Adam' is not one of AdamW, SGD, AdamW8bit, PagedAdamW, PagedAdamW8bit");
}

double norm_of_gradients(Model& m) {
  double sum = 0;
  for (int i = 0; i < m.params.count(); ++i) {
    const Values g = m.values(m.params.grad(i));
    sum += dot(g, g);
  }
  return std::sqrt(sum);
}

TEST(GradientClip, MeasuresTheNormOfAllGradientsTogether) {
  for (const Precision p : kPrecisions) {
    Model m(p);
    GradientClip clip(m.q, 1, m.params);
    for (int again = 0; again < 2; ++again) {  // a second measure starts anew
      clip.measure(m.q, m.params);
      EXPECT_NEAR(clip.norm(m.q), norm_of_gradients(m), 1e-6 * norm_of_gradients(m)) << name_of(p);
    }
  }
}

TEST(GradientClip, ScalesDownToTheLimitAboveIt) {
  Model m(Precision::f32_true);
  const double norm = norm_of_gradients(m);
  GradientClip clip(m.q, norm / 4, m.params);
  clip.measure(m.q, m.params);
  EXPECT_NEAR(m.q.value<float>(clip.scale()), 0.25, 1e-6);
}

TEST(GradientClip, ChangesNothingBelowTheLimit) {
  Model m(Precision::f32_true);
  for (const double limit : {norm_of_gradients(m) * 1.01, 1e30, double{INFINITY}}) {
    GradientClip clip(m.q, limit, m.params);
    clip.measure(m.q, m.params);
    EXPECT_EQ(m.q.value<float>(clip.scale()), 1) << limit;
  }
}

TEST(GradientClip, ANanShowsInTheNorm) {
  Model m(Precision::f32_true);
  m.params.grad(1).as<float>()[0] = NAN;
  GradientClip clip(m.q, 1, m.params);
  clip.measure(m.q, m.params);
  EXPECT_TRUE(std::isnan(clip.norm(m.q)));
}

TEST(Optimizer, DecaysMatricesAloneWhenTheSpecSaysSo) {
  ModelConfig config;
  config.vocab = 11;
  config.hidden = config.intermediate = 8;
  config.layers = config.heads = config.kv_heads = 1;
  config.head_dim = 8;
  for (const Decay decay : {Decay::all, Decay::matrices}) {
    Arena arena{Arena::Heap{}};
    Queue q(Device::cpu, arena);
    Parameters params(arena, make_spec(config, decay), Precision::f32_true, Gradients::kept);
    params.initialize(q, 1);
    params.begin_step(q);
    Optimizer optimizer(q, params, {.weight_decay = 0.5});
    GradientClip clip(q, 1, params);
    clip.measure(q, params);
    const int norm = params.spec().final_norm, head = params.spec().head;
    const float before = params.weight(head).as<float>()[0];
    optimizer.update(q, 0.1, clip.scale());
    EXPECT_FLOAT_EQ(params.weight(norm).as<float>()[0], decay == Decay::all ? 0.95f : 1.0f);
    EXPECT_FLOAT_EQ(params.weight(head).as<float>()[0], before * 0.95f);
  }
}

// Weights of the small model after some steps, the optimizer made anew after `split` of them.
Values stochastic_weights(OptimizerOptions options, int steps, int split) {
  options.stochastic = true;
  Model m(Precision::bf16_true);
  const Buffer scale = m.scale(1);
  auto optimizer = std::make_unique<Optimizer>(m.q, m.params, options);
  std::vector<Buffer> kept;
  for (int step = 0; step < steps; ++step) {
    if (step == split) {
      for (const auto& s : optimizer->state()) kept.push_back(m.copy(s.whole()));
      optimizer = std::make_unique<Optimizer>(m.q, m.params, options);
      const auto state = optimizer->state();
      for (size_t i = 0; i < state.size(); ++i) m.q.upload(state[i].whole(), kept[i]->raw());
      optimizer->restore(step);
    }
    optimizer->update(m.q, 1e-3, scale);
  }
  Values all;
  for (int i = 0; i < m.params.count(); ++i) {
    const Values w = m.values(m.params.weight(i));
    all.insert(all.end(), w.begin(), w.end());
  }
  return all;
}

TEST(Optimizer, StochasticRoundingDependsOnSeedAndStepAndNothingElse) {
  using Kind = OptimizerOptions::Kind;
  for (const Kind kind : {Kind::adamw, Kind::adamw8bit, Kind::sgd}) {
    const OptimizerOptions options{.kind = kind, .seed = 5};
    const Values through = stochastic_weights(options, 4, 0);
    EXPECT_EQ(stochastic_weights(options, 4, 0), through);
    EXPECT_EQ(stochastic_weights(options, 4, 2), through) << "resumed";
    OptimizerOptions other = options;
    other.seed = 6;
    EXPECT_NE(stochastic_weights(other, 4, 0), through);
  }
}

TEST(Optimizer, StochasticRoundingNeedsWeightsInBf16Alone) {
  for (const Precision p : {Precision::f32_true, Precision::bf16_mixed}) {
    Model m(p);
    message_of(Fault::bug, [&] { Optimizer(m.q, m.params, {.stochastic = true}); });
  }
}

TEST(Optimizer, StateHasTheNamesOfTorchForEachPart) {
  Model m(Precision::f32_true);
  const auto names = [&](const OptimizerOptions& options) {
    std::vector<std::string> found;
    for (const SavedTensor& s : Optimizer(m.q, m.params, options).state())
      if (s.name.find("k_proj") != std::string::npos) found.push_back(s.name);
    return found;
  };
  const std::string k = "model.layers.0.self_attn.k_proj.weight.";
  using Names = std::vector<std::string>;
  using Kind = OptimizerOptions::Kind;
  EXPECT_EQ(names({}), (Names{k + "exp_avg", k + "exp_avg_sq"}));
  EXPECT_EQ(names({.kind = Kind::sgd, .momentum = 0.9}), Names{k + "momentum_buffer"});
  EXPECT_EQ(names({.kind = Kind::sgd}), Names{});
}

TEST(Optimizer, GoesOnBitForBitAfterItIsRestored) {
  for (const auto kind : {OptimizerOptions::Kind::adamw, OptimizerOptions::Kind::sgd})
    for (const Precision p : kPrecisions) {
      const OptimizerOptions options{.kind = kind, .momentum = 0.9, .dampening = 0.1};
      Model one(p), two(p);
      const Buffer scale = one.scale(1), other_scale = two.scale(1);
      Optimizer through(one.q, one.params, options), resumed(two.q, two.params, options);
      for (int step = 0; step < 3; ++step) through.update(one.q, 1e-2, scale);
      for (int i = 0; i < one.params.count(); ++i)
        two.q.upload(two.params.stored(i), one.params.stored(i).raw());
      for (const SavedTensor& s : through.state())
        two.q.upload(find(resumed, s.name), s.whole().raw());
      two.params.refresh_weights(two.q);
      resumed.restore(through.steps());
      for (int step = 0; step < 2; ++step) {
        through.update(one.q, 1e-2, scale);
        resumed.update(two.q, 1e-2, other_scale);
      }
      EXPECT_EQ(resumed.steps(), 5);
      for (int i = 0; i < one.params.count(); ++i) {
        EXPECT_EQ(one.values(one.params.stored(i)), two.values(two.params.stored(i)))
            << name_of(kind) << " " << name_of(p);
        EXPECT_EQ(one.values(one.params.weight(i)), two.values(two.params.weight(i)));
      }
    }
}

}  // namespace
}  // namespace capstan::test
