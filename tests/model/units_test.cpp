#include "model/units.h"

#include <gtest/gtest.h>

#include <map>

#include "comm/simulated.h"
#include "model/parameters.h"
#include "small_models.h"

namespace capstan::test {
namespace {

std::vector<bool> all_of(const ModelSpec& spec) {
  return std::vector<bool>(spec.params.size(), true);
}

TEST(UnitTensors, LieInOneBufferPerUnitEachAligned) {
  const ModelSpec spec = make_spec(grouped_config());
  Arena arena(Arena::Heap{});
  UnitTensors weights(spec, DType::bf16, all_of(spec), UnitTensors::Layout::flat, Category::weights,
                      "weight");
  for (int unit = 0; unit < spec.units(); ++unit) EXPECT_TRUE(weights.hold(arena, unit));
  for (int unit = 0; unit < spec.units(); ++unit) {
    const std::byte* end = nullptr;  // of the parameter before
    for (size_t i = 0; i < spec.params.size(); ++i) {
      if (spec.params[i].unit != unit) continue;
      const Tensor t = weights.of(static_cast<int>(i));
      EXPECT_EQ(t.shape(), spec.params[i].shape);
      const auto* begin = static_cast<const std::byte*>(t.raw());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % kBufferAlignment, 0u);
      if (end != nullptr) {
        EXPECT_GE(begin, end);
        EXPECT_LT(begin - end, kBufferAlignment) << "no more than padding between";
      }
      end = begin + t.nbytes();
    }
  }
}

TEST(UnitTensors, AreAbsentUnlessTheirUnitIsHeld) {
  const ModelSpec spec = make_spec(grouped_config());
  for (const auto layout : {UnitTensors::Layout::flat, UnitTensors::Layout::apart}) {
    Arena arena(Arena::Heap{});
    std::vector<bool> has = all_of(spec);
    const int qkv = spec.blocks[0].qkv, down = spec.blocks[0].down;
    has[static_cast<size_t>(down)] = false;
    UnitTensors grads(spec, DType::f32, has, layout, Category::gradients, "gradient");
    EXPECT_FALSE(grads.of(qkv));
    EXPECT_TRUE(grads.hold(arena, 1));
    EXPECT_FALSE(grads.hold(arena, 1)) << "it is there";
    EXPECT_TRUE(grads.of(qkv));
    EXPECT_FALSE(grads.of(down)) << "not of this kind";
    EXPECT_FALSE(grads.of(spec.blocks[1].qkv)) << "of another unit";
    grads.release(1);
    EXPECT_FALSE(grads.of(qkv));
    EXPECT_TRUE(grads.hold(arena, 1)) << "again";
  }
}

TEST(Ranges, NameValuesOfTheWholeTensor) {
  std::vector<float> v = {0, 1, 2, 3, 4, 5};
  const Tensor whole(v.data(), DType::f32, {2, 3});
  const Tensor part = slice(whole, {.param = 0, .first = 2, .count = 3});
  EXPECT_EQ(part.shape(), Shape{3});
  EXPECT_EQ(part.as<float>()[0], 2);
  EXPECT_FALSE(slice(Tensor(), {0, 0, 1})) << "absent stays absent";
}

TEST(Parameters, OwnEveryTrainableValueOnce) {
  LoraOptions lora;
  for (const bool adapters : {false, true}) {
    const ModelSpec spec =
        make_spec(grouped_config(), Decay::all, adapters ? std::optional(lora) : std::nullopt);
    Arena arena;
    const Parameters params(arena, spec, Precision::bf16_mixed, Gradients::kept);
    int64_t values = 0;
    for (const Range& range : params.owned()) {
      EXPECT_TRUE(spec.trainable(range.param));
      values += range.count;
    }
    EXPECT_EQ(values, spec.trainable_count());
  }
}

TEST(Parameters, AWholeGradientReplacesInTheFirstBackwardPassOfAStepAndAddsLater) {
  const ModelSpec spec = make_spec(grouped_config());
  Arena arena(Arena::Heap{});
  Queue q(Device::cpu, arena);
  Parameters params(arena, spec, Precision::f32_true, Gradients::kept);
  const int qkv = spec.blocks[0].qkv, norm = spec.blocks[0].input_norm;
  params.declare_written_whole(qkv);
  for (int step = 0; step < 2; ++step) {
    params.begin_step(q);
    for (int micro = 0; micro < 3; ++micro) {
      params.acquire(q, 1, Pass::backward);
      EXPECT_EQ(params.grad_write(qkv), micro == 0 ? Write::replace : Write::add) << micro;
      EXPECT_EQ(params.grad_write(norm), Write::add) << "it was zeroed";
      params.complete(q, 1);
      params.release(q, 1, Pass::backward);
    }
    params.end_step();
  }
}

// Among several ranks: every trainable value is owned by one rank, and updated by it or by all.
TEST(Parameters, RanksOwnEveryTrainableValueOnce) {
  const ModelSpec spec = make_spec(grouped_config(), Decay::all, LoraOptions());
  for (const ModelSpec& s : {make_spec(grouped_config()), spec})
    for (const int ranks : {2, 3, 7})
      for (const Sharding& sharding : {kDdp, kZero1, kZero3}) {
        std::map<int, std::vector<int>> owners;
        int64_t updated = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          Arena arena;
          const Parameters params(arena, s, Precision::bf16_mixed, Gradients::kept,
                                  simulated({rank, ranks}, "dp"), sharding);
          for (const Range& r : params.owned()) {
            auto& values = owners[r.param];
            values.resize(
                static_cast<size_t>(s.params[static_cast<size_t>(r.param)].shape.numel()));
            for (int64_t i = r.first; i < r.first + r.count; ++i) ++values[static_cast<size_t>(i)];
            EXPECT_EQ(params.grad(r).numel(), r.count);
          }
          for (const Range& r : params.updated()) {
            updated += r.count;
            EXPECT_EQ(params.weight(r).numel(), r.count);
            EXPECT_EQ(params.master(r).numel(), r.count);
          }
        }
        int64_t total = 0;
        for (const auto& [param, values] : owners) {
          EXPECT_EQ(values, std::vector<int>(values.size(), 1)) << "parameter " << param;
          total += std::ssize(values);
        }
        EXPECT_EQ(total, s.trainable_count());
        EXPECT_EQ(updated, sharding.state == Hold::whole ? ranks * total : total);
      }
}

}  // namespace
}  // namespace capstan::test
