// No step after the first takes memory from the heap. This file replaces the allocator of its test
// program by one that counts; sanitizers bring their own, so they build without it.

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // GCC
#define CAPSTAN_SANITIZED
#elif defined(__has_feature)  // Clang
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CAPSTAN_SANITIZED
#endif
#endif

#ifndef CAPSTAN_SANITIZED

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "data/batch/micro_batches.h"
#include "data/dataset/sampler.h"
#include "model/small_models.h"
#include "train/trainer.h"

namespace {
std::atomic<int64_t> g_allocations{0};
std::atomic<bool> g_watched{false};

// OpenBLAS's kernels for small matrices take memory on some processors: its own affair.
void note(const void* caller) {
  if (!g_watched) return;
  Dl_info from{};
  const bool known = dladdr(caller, &from) != 0 && from.dli_fname != nullptr;
  if (!known || std::strstr(from.dli_fname, "openblas") == nullptr) ++g_allocations;
}
}  // namespace

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

// operator new calls malloc, so everything passes here.
void* malloc(size_t size) {
  note(__builtin_return_address(0));
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  note(__builtin_return_address(0));
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  note(__builtin_return_address(0));
  return __libc_realloc(old, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  note(__builtin_return_address(0));
  return __libc_memalign(alignment, size);
}
}

namespace capstan::test {
namespace {

// Counts from its beginning to its end.
class Watch {
 public:
  Watch() {
    g_allocations = 0;
    g_watched = true;
  }
  ~Watch() { g_watched = false; }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  int64_t count() const { return g_allocations; }
};

TEST(Allocation, TheCounterCounts) {
  const Watch watch;
  auto* p = new std::vector<int>(1000);
  EXPECT_GE(watch.count(), 2);
  delete p;
}

TEST(Allocation, NoneInsideAStep) {
  ModelConfig config = aligned_config();
  config.vocab = 300;
  config.kv_heads = 4;
  config.qk_norm = true;
  config.architecture = "Qwen3ForCausalLM";
  Dataset data;
  for (int s = 0; s < 8; ++s) data.add(std::vector<int32_t>(static_cast<size_t>(20 + s), s + 1), 1);

  for (const auto precision : kPrecisions)
    for (const auto policy : {Recompute::none, Recompute::block})
      for (const int64_t micro_batch : {4, 2}) {
        const BatchOptions batches{.max_seq_length = 32, .vocab = config.vocab};
        TrainOptions o;
        o.model = config;
        o.precision = precision;
        o.recompute = policy;
        o.limits = limits_of(data, micro_batch, batches);
        o.single_micro_batch = micro_batch == 4;
        o.max_norm = 1;
        Arena arena(Trainer::plan(o).device);
        Queue q(Device::cpu, arena);
        Trainer trainer(q, o);
        trainer.params().initialize(q, 1);
        Sampler sampler(data.size(), 4, 1);
        MicroBatches micro(data, micro_batch, batches);
        int64_t meanwhile = 0;
        const auto step = [&](int64_t i) {
          micro.start(sampler.ids(i));
          trainer.step(micro, i, nullptr, [&] { ++meanwhile; });
        };
        step(0);
        const Watch watch;
        for (int64_t i = 1; i < 6; ++i) step(i);
        EXPECT_EQ(watch.count(), 0) << name_of(precision) << " " << name_of(policy);
        EXPECT_EQ(meanwhile, 6) << "once a step";
      }
}

TEST(Allocation, NoneWithAdaptersBesideAQuantizedBase) {
  ModelConfig config = aligned_config();
  config.kv_heads = 4;
  LoraOptions lora;
  lora.key = lora.projection = lora.mlp = lora.head = true;
  for (const Quantize quantize : {Quantize::none, Quantize::nf4_dq}) {
    std::vector<int32_t> ids(20, 3), labels(20, 5), positions(20), starts = {0, 20};
    for (size_t i = 0; i < 20; ++i) positions[i] = static_cast<int32_t>(i);
    const auto tensor = [](std::vector<int32_t>& v) {
      return Tensor(v.data(), DType::i32, {static_cast<int64_t>(v.size())});
    };
    const Batch batch{.ids_T = tensor(ids),
                      .labels_T = tensor(labels),
                      .positions_T = tensor(positions),
                      .mask = {tensor(starts), 1, 20, 0, 0},
                      .targets = 20};
    std::unique_ptr<Arena> arena;
    const auto run = [&](Device device, int steps) {
      Queue q(device, *arena);
      Parameters params(*arena, make_spec(config, Decay::all, lora, quantize),
                        Precision::bf16_mixed, Gradients::kept);
      Transformer model(q, params, Recompute::block, 32);
      Transformer::Kept kept = model.make_kept();
      Optimizer optimizer(q, params, {});
      GradientClip clip(q, 1, params);
      const Buffer loss = arena->make(Category::data, DType::f64, {1}, "loss");
      std::optional<Watch> after_first;
      for (int i = 0; i < steps; ++i) {
        const auto phase = arena->phase("step");
        model.forward(q, batch, kept, {}, StepKey{.step = static_cast<uint64_t>(i)});
        model.backward(q, batch, kept, 1, loss);
        clip.measure(q, params);
        optimizer.update(q, 1e-3, clip.scale());
        if (i == 0) after_first.emplace();
      }
      return after_first->count();
    };
    arena = std::make_unique<Arena>();
    run(Device::sim, 1);
    arena = std::make_unique<Arena>(arena->plan());
    EXPECT_EQ(run(Device::cpu, 4), 0) << name_of(quantize);
  }
}

}  // namespace
}  // namespace capstan::test

#endif
