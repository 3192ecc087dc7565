// A model with a quantized base computes what one with the dequantized weights does.

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstring>
#include <new>

#include "base/files.h"
#include "checkpoint/save_model.h"
#include "engine.h"
#include "model/decoder.h"
#include "ops/elementwise.h"
#include "optim/optimizer.h"
#include "support/sanitized.h"
#include "support/temp_folder.h"

namespace capstan::test {
namespace {

constexpr std::array kKinds = {Quantize::nf4, Quantize::nf4_dq, Quantize::fp4, Quantize::fp4_dq,
                               Quantize::int8};

CAPSTAN_ON_EVERY_DEVICE(QuantizedModelOn);

// Gives both the same model: `packed` by quantizing a drawn one, `plain` what that makes of it.
void share_weights(Engine& packed, Engine& plain) {
  plain.params.initialize(plain.q, 7);
  const ModelSpec& spec = plain.params.spec();
  for (int i = 0; i < plain.params.count(); ++i) {
    const Param& p = spec.params[static_cast<size_t>(i)];
    const Tensor from = plain.params.stored(i);
    if (p.adapter && p.init == Init::zeros)
      fill_normal(plain.q, from, 0.2f, {.seed = 8, .site = static_cast<uint32_t>(i)});
    plain.q.synchronize();  // the other queue reads it
    if (p.adapter) {
      cast(packed.q, packed.params.stored(i), from);
      continue;
    }
    for (size_t part = 0; part < p.parts.size(); ++part)
      packed.params.store_frozen(packed.q, i, static_cast<int>(part),
                                 from.rows(p.parts[part].first_row, p.parts[part].rows));
    packed.q.synchronize();
    if (const QuantizedMatrix* m = packed.params.quantized(i)) dequantize(plain.q, from, *m, 0);
  }
  for (Engine* e : {&packed, &plain}) e->params.refresh_weights(e->q);
}

TEST_P(QuantizedModelOn, MatchesTheDequantizedOne) {
  for (const Quantize kind : kKinds)
    for (const Recomputation& policy : kPolicies) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(kind), name_of(policy)));
      Engine packed(GetParam(), uneven_config(), Precision::f32_true, policy, every_map(0.2), kind);
      Engine plain(GetParam(), uneven_config(), Precision::f32_true, policy, every_map(0.2));
      share_weights(packed, plain);
      PlainBatch b = some_batch(67);
      for (Engine* e : {&packed, &plain})
        train_on(e->model, e->q, b.on(e->q, 0), 1, e->loss, StepKey{.seed = 3});
      EXPECT_NEAR(packed.loss_sum(), plain.loss_sum(), 1e-5 * plain.loss_sum());
      const auto expected = plain.by_name(true);
      for (const auto& [name, v] : packed.by_name(true))
        EXPECT_LT(error(v, expected.at(name)), 1e-5) << name;

      for (Engine* e : {&packed, &plain}) {
        e->clear_loss();
        e->model.evaluate(e->q, b.on(e->q, 0), e->loss);
      }
      EXPECT_NEAR(packed.loss_sum(), plain.loss_sum(), 1e-5 * plain.loss_sum());
      Decoder packed_decoder(packed.q, packed.model, 12, 12);
      Decoder plain_decoder(plain.q, plain.model, 12, 12);
      for (const std::vector<int32_t>& ids : {std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7}, {8}}) {
        const auto found = packed_decoder.feed(packed.q, ids);
        const auto logits = plain_decoder.feed(plain.q, ids);
        EXPECT_LT(error({found.begin(), found.end()}, {logits.begin(), logits.end()}), 1e-5);
      }
    }
}

TEST_P(QuantizedModelOn, Bf16StaysNear) {
  Engine packed(GetParam(), uneven_config(), Precision::bf16_mixed, Recompute::none, every_map(0.2),
                Quantize::nf4_dq);
  Engine plain(GetParam(), uneven_config(), Precision::f32_true, Recompute::none, every_map(0.2));
  share_weights(packed, plain);
  PlainBatch b = some_batch(67);
  for (Engine* e : {&packed, &plain})
    train_on(e->model, e->q, b.on(e->q, 0), 1, e->loss, StepKey{.seed = 3});
  EXPECT_NEAR(packed.loss_sum(), plain.loss_sum(), 0.01 * plain.loss_sum());
  const auto expected = plain.by_name(true);
  for (const auto& [name, v] : packed.by_name(true))
    EXPECT_LT(error(v, expected.at(name)), 0.08) << name;
}

TEST_P(QuantizedModelOn, ThePlanIsWhatIsAllocated) {
  for (const Quantize kind : kKinds)
    for (const auto precision : {Precision::f32_true, Precision::bf16_mixed}) {
      const auto program = [&](Arena& arena, Device device) {
        Queue q(device, arena, {.device = GetParam()});
        PlainBatch host = some_batch(67);
        const Batch batch = host.on(q, 0);
        Parameters params(arena, make_spec(uneven_config(), Decay::all, every_map(0.2), kind),
                          precision, Gradients::in_step);
        Transformer model(q, params, Recompute::selective, 64);
        Optimizer optimizer(q, params, {});
        Decoder decoder(q, model, 8, 8);
        const Buffer loss = arena.make(Category::data, DType::f64, {1}, "loss");
        const Buffer one = arena.make(Category::data, DType::f32, {1}, "one");
        {
          const auto phase = arena.phase("step");
          train_on(model, q, batch, 1, loss, StepKey{});
          optimizer.update(q, 1e-3, one);
          params.end_step();
        }
        decoder.rehearse(q);
      };
      Arena recording;
      program(recording, Device::sim);
      const MemoryPlan plan = recording.plan();
      Arena arena(plan, GetParam());
      program(arena, GetParam());
      EXPECT_EQ(arena.allocated_bytes(), plan.total_bytes);
      EXPECT_EQ(arena.highest(), plan.highest);
    }
}

// Llama 2 7B: 6.48 billion of its parameters are in the blocks' linear maps.
TEST(QuantizedModel, BytesOfASevenBillionModel) {
  ModelConfig c;
  c.vocab = 32000;
  c.hidden = 4096;
  c.intermediate = 11008;
  c.layers = c.heads = c.kv_heads = 32;
  c.head_dim = 128;
  const double linears = 6476005376, all = 6738415616;
  const auto bytes = [&](Quantize kind) {
    Arena arena;
    const Parameters params(arena, make_spec(c, Decay::all, {}, kind), Precision::bf16_true,
                            Gradients::none);
    return static_cast<double>(at(arena.highest(), Category::weights));
  };
  const double rest = 2 * (all - linears);
  EXPECT_NEAR(bytes(Quantize::nf4), 0.5625 * linears + rest, 1e5);
  EXPECT_NEAR(bytes(Quantize::nf4_dq), 0.515869 * linears + rest, 2e5);
  EXPECT_NEAR(bytes(Quantize::int8), linears + rest, 1e7);
  EXPECT_NEAR(bytes(Quantize::none), 2 * all, 1e5);
}

// While it lives, this process can have so many bytes more than now: of heap and other private
// memory, not of files that are mapped for reading (RLIMIT_DATA).
class MemoryLimit {
 public:
  explicit MemoryLimit(int64_t more) {
    malloc_trim(0);
    getrlimit(RLIMIT_DATA, &before_);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(data_bytes() + more);
    setrlimit(RLIMIT_DATA, &limit);
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
  ~MemoryLimit() { setrlimit(RLIMIT_DATA, &before_); }

 private:
  static int64_t data_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
      if (word == "VmData:") {
        int64_t kib = 0;
        status >> kib;
        return kib * 1024;
      }
    return 0;
  }
  rlimit before_{};
};

// Whether the limit is one here: some sandboxes know it and do nothing.
bool limits_work() {
  const MemoryLimit limit(1 << 20);
  constexpr size_t kSize = 8 << 20;
  void* p = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return true;
  munmap(p, kSize);
  return false;
}

ModelConfig medium_config() {
  ModelConfig c;
  c.vocab = 256;
  c.hidden = 512;
  c.intermediate = 1536;
  c.layers = 6;
  c.heads = c.kv_heads = 8;
  c.head_dim = 64;
  return c;
}

Parameters make_weights(Arena& arena, Quantize kind) {
  return {arena, make_spec(medium_config(), Decay::all, {}, kind), Precision::f32_true,
          Gradients::none};
}

MemoryPlan plan_of(Quantize kind) {
  Arena arena;
  make_weights(arena, kind);
  return arena.plan();
}

bool loads_within(int64_t bytes, const std::filesystem::path& folder, Quantize kind) {
  const MemoryPlan plan = plan_of(kind);
  try {
    const MemoryLimit limit(bytes);
    Arena arena(plan);
    Queue q(Device::cpu, arena);
    Parameters params = make_weights(arena, kind);
    load_parameters(q, params, folder);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::does_not_fit) << e.what();
    return false;
  }
}

// 80 MB of f32 on disk are 12 MB in memory, and were never more than a tensor more.
TEST(QuantizedModel, LoadingNeverTakesMoreThanTheModelAndOneTensor) {
  if (kSanitized) GTEST_SKIP() << "sanitizers have memory of their own";
  if (!limits_work()) GTEST_SKIP() << "no limit of memory here";
  mallopt(M_MMAP_THRESHOLD, 128 << 10);  // what is large goes back when it is freed
  const TempFolder temporary;
  const auto folder = temporary.path() / "model", odd = temporary.path() / "odd";
  {
    Engine e(medium_config());
    e.params.initialize(e.q, 1);
    save_model(e.q, e.params, folder);
  }
  // One more space in the header moves all data by a byte: no tensor lies well in the file.
  std::filesystem::create_directories(odd);
  std::filesystem::copy_file(folder / "config.json", odd / "config.json");
  {
    std::string bytes = read_text(folder / "model.safetensors", 1 << 30);
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    bytes.insert(8 + length, " ");
    ++length;
    std::memcpy(bytes.data(), &length, sizeof length);
    write_text(odd / "model.safetensors", bytes);
  }
  const int64_t tensor = 512 * 1536 * 4;
  // Pages that the heap's ends do not fill, and the table of the file's tensors.
  const int64_t rest = 1 << 20;
  // The threads that quantize have been started.
  ASSERT_TRUE(loads_within(int64_t{1} << 30, folder, Quantize::nf4));
  for (const Quantize kind : {Quantize::nf4, Quantize::fp4_dq, Quantize::int8}) {
    SCOPED_TRACE(name_of(kind));
    const int64_t model = plan_of(kind).total_bytes;
    EXPECT_TRUE(loads_within(model + tensor + rest, folder, kind));
    EXPECT_TRUE(loads_within(model + tensor + rest, odd, kind));
    EXPECT_FALSE(loads_within(model - rest, folder, kind)) << "the limit is one";
    EXPECT_FALSE(loads_within(model + tensor + rest, folder, Quantize::none));
  }
}

}  // namespace
}  // namespace capstan::test
