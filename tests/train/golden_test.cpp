// Every number against transformers: see tools/golden/README.md for how the files are made.

#include "golden_case.h"
#include "model/decoder.h"

namespace capstan::test {
namespace {

class Golden : public GoldenCase {
 protected:
  Golden() : GoldenCase("golden") {}

  void expect_named(const std::map<std::string, Values>& found, const std::string& prefix,
                    double most) const {
    size_t compared = 0;
    for (const auto& [name, v] : found) {
      // Softmax ignores what is the same for all keys, so a key bias has the small rest of large
      // terms that cancel as its gradient, with the rounding errors of the large ones.
      const double slack = name.ends_with("k_proj.bias") ? 2 : 1;
      EXPECT_LT(error(v, floats(prefix + name)), slack * most) << prefix << name;
      ++compared;
    }
    size_t expected = 0;
    for (const StoredTensor& t : golden.header().tensors) expected += t.name.starts_with(prefix);
    EXPECT_EQ(compared, expected);
  }
};

TEST_P(Golden, Logits) {
  Engine e(device, config);
  load_parameters(e.q, e.params, dir);
  PlainBatch b = batch();
  const Buffer logits = e.arena.make(Category::data, DType::f32,
                                     {static_cast<int64_t>(b.ids.size()), config.vocab}, "logits");
  e.model.logits(e.q, b.on(e.q, config.sliding_window), logits);
  EXPECT_LT(error(values_of(e.q, logits), floats("logits")), tolerance);
}

TEST_P(Golden, LossAndEveryGradientUnderEveryPolicy) {
  for (const auto policy : {Recompute::none, Recompute::selective, Recompute::block}) {
    SCOPED_TRACE(name_of(policy));
    Engine e(device, config, Precision::f32_true, policy);
    load_parameters(e.q, e.params, dir);
    train_expecting_the_loss(e, tolerance);
    expect_named(e.by_name(true), "grad.", tolerance);
  }
}

TEST_P(Golden, EvaluationGivesTheSameLoss) {
  Engine e(device, config);
  load_parameters(e.q, e.params, dir);
  evaluate_expecting_the_loss(e);
}

TEST_P(Golden, TwentyStepsOfAdamW) {
  Engine e(device, config);
  load_parameters(e.q, e.params, dir);
  Optimizer optimizer(e.q, e.params, adamw());
  take_steps_expecting_losses_and_norms(e, optimizer);
  expect_named(e.by_name(false), "final.", tolerance);
}

TEST_P(Golden, GreedyDecodingWithTheCache) {
  Engine e(device, config);
  load_parameters(e.q, e.params, dir);
  const auto prompt = stored<int32_t>(golden, "decode_prompt"),
             expected = stored<int32_t>(golden, "decode_ids");
  Decoder decoder(e.q, e.model, static_cast<int64_t>(expected.size()), 4);
  GenerateOptions options;
  options.max_new_tokens = 16;
  options.sampling.temperature = 0;
  std::vector<int32_t> found = prompt;
  for (const int32_t t : generate(e.q, decoder, prompt, options)) found.push_back(t);
  EXPECT_EQ(found, expected);
}

// Feeding token by token, in pieces and all at once gives the logits of a plain forward pass.
TEST_P(Golden, TheCacheChangesNothing) {
  Engine e(device, config);
  load_parameters(e.q, e.params, dir);
  const auto ids = stored<int32_t>(golden, "decode_ids");
  const auto T = static_cast<int64_t>(ids.size());
  PlainBatch b(ids, ids, {0, static_cast<int32_t>(T)});
  const Buffer logits = e.arena.make(Category::data, DType::f32, {T, config.vocab}, "logits");
  e.model.logits(e.q, b.on(e.q, config.sliding_window), logits);
  for (const int64_t piece : {int64_t{1}, int64_t{3}, T}) {
    Decoder decoder(e.q, e.model, T, T);
    for (int64_t at = 0; at < T; at += piece) {
      const int64_t n = std::min(piece, T - at);
      const auto last = decoder.feed(
          e.q, std::span(ids).subspan(static_cast<size_t>(at), static_cast<size_t>(n)));
      EXPECT_LT(
          error(Values(last.begin(), last.end()), values_of(e.q, logits->rows(at + n - 1, 1))),
          tolerance)
          << "pieces of " << piece << ", token " << at + n - 1;
    }
  }
}

// bf16 has 8 bits of mantissa: a relative error of 2^-9 in each of some twenty stages of a weight's
// gradient, that adds up like a random walk.
TEST_P(Golden, Bf16StaysNear) {
  for (const auto precision : {Precision::bf16_true, Precision::bf16_mixed}) {
    SCOPED_TRACE(name_of(precision));
    Engine e(device, config, precision);
    load_parameters(e.q, e.params, dir);
    train_expecting_the_loss(e, 0.01);
    expect_named(e.by_name(true), "grad.", 0.08);
  }
}

INSTANTIATE_TEST_SUITE_P(Transformers, Golden,
                         testing::Combine(testing::ValuesIn(golden_cases("golden")),
                                          testing::ValuesIn(devices_present())),
                         golden_name);

}  // namespace
}  // namespace capstan::test
