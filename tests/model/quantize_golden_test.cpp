// Quantization against bitsandbytes: see tools/golden/README.md for how the file is made.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "checkpoint/safetensors.h"
#include "model/parameters.h"
#include "ops/quantize.h"
#include "ops/reference.h"

namespace capstan {
namespace {

class QuantizeGolden : public testing::TestWithParam<std::tuple<std::string, Quantize, Device>> {
 protected:
  SafetensorsFile file_{std::filesystem::path(CAPSTAN_SOURCE_DIR) /
                        "tests/golden_lora/quantize.safetensors"};
  Arena arena_{Arena::Heap{}, std::get<2>(GetParam())};
  Queue q_{std::get<2>(GetParam()), arena_};

  template <class T>
  std::vector<T> all(const Tensor& t) {
    std::vector<T> v(static_cast<size_t>(t.numel()));
    t.as<T>();  // checks the type
    q_.download(v.data(), t);
    return v;
  }
  template <class T>
  std::vector<T> raw(const std::string& name) const {
    const StoredTensor* t = file_.header().find(name);
    if (t == nullptr) return {};
    std::vector<T> v(static_cast<size_t>(t->nbytes()) / sizeof(T));
    file_.read_to(reinterpret_cast<std::byte*>(v.data()), *t, 0, t->numel());
    return v;
  }
};

// FP4 has two zeros, 0 and 8, of which bitsandbytes may take either.
std::vector<uint8_t> one_zero(std::vector<uint8_t> packed, bool fp4) {
  if (!fp4) return packed;
  for (uint8_t& b : packed) {
    if ((b & 15) == 8) b &= 0xf0;
    if (b >> 4 == 8) b &= 0x0f;
  }
  return packed;
}

TEST_P(QuantizeGolden, BitForBit) {
  const auto& [name, kind, device] = GetParam();
  // The file has bitsandbytes' own names: the recipe's without "bnb." and "-training".
  std::string in_file(name_of(kind).substr(4));
  if (const size_t at = in_file.find("-training"); at != std::string::npos) in_file.resize(at);
  const std::string prefix = name + "." + in_file + ".";
  auto x = raw<bf16>(name + ".x");
  const int64_t rows = name == "large" ? 131 : 7, cols = name == "large" ? 127 : 100;
  ASSERT_EQ(static_cast<int64_t>(x.size()), rows * cols);

  const QuantizedSizes s = quantized_sizes(kind, rows, cols);
  const auto make = [&](DType type, int64_t n) {
    return arena_.make(Category::weights, type, {n}, "part");
  };
  const Buffer packed = make(DType::u8, s.packed), absmax = make(s.absmax_type, s.absmax);
  const Buffer scale = make(DType::f32, s.scale);
  QuantizedMatrix m{kind, {rows, cols}, 1, {}};
  m.parts[0] = {0, rows, packed, absmax, s.scale > 0 ? *scale : Tensor()};
  quantize(q_, m, 0, Tensor(x.data(), DType::bf16, {rows, cols}));

  const bool fp4 = kind == Quantize::fp4 || kind == Quantize::fp4_dq;
  if (const auto expected = raw<uint8_t>(prefix + "packed"); !expected.empty()) {
    EXPECT_EQ(one_zero(all<uint8_t>(packed), fp4), one_zero(expected, fp4));
  }
  if (s.scale == 0) {
    EXPECT_EQ(all<float>(absmax), raw<float>(prefix + "absmax"));
  } else {
    // The offset is a mean, which torch sums in f32 and in an order of its own.
    const auto offset = raw<float>(prefix + "offset");
    auto ours = all<float>(scale);
    EXPECT_NEAR(ours.back(), offset[0], 4e-7 * offset[0]);
    EXPECT_EQ(all<uint8_t>(absmax), raw<uint8_t>(prefix + "absmax"));
    const auto scales = raw<float>(prefix + "scale");
    for (size_t i = 0; i < scales.size(); ++i) {
      EXPECT_NEAR(ours[i], scales[i], 4e-7 * offset[0]);
      ours[i] = scales[i];
    }
    ours.back() = offset[0];  // from the same scales the same values
    q_.upload(scale, ours.data());
  }
  const auto values = raw<float>(prefix + "values");
  const auto n = static_cast<int64_t>(values.size()) / cols;
  const Buffer y = arena_.make(Category::data, DType::f32, {n, cols}, "values");
  dequantize(q_, y, m, rows - n);
  EXPECT_EQ(all<float>(y), values);
}

// Each of the 256 scales of a scale, seen through blocks whose values are all 1.
TEST(QuantizeGoldenMap, IsBitsandbytesDynamicMap) {
  const SafetensorsFile file(std::filesystem::path(CAPSTAN_SOURCE_DIR) /
                             "tests/golden_lora/quantize.safetensors");
  const StoredTensor* map = file.header().find("dynamic_map");
  ASSERT_NE(map, nullptr);
  std::vector<float> expected(256);
  ASSERT_EQ(map->nbytes(), 256 * 4);
  file.read_to(reinterpret_cast<std::byte*>(expected.data()), *map, 0, 256);

  std::vector<uint8_t> packed(256 * 32, 0xff), absmax(256);
  for (size_t i = 0; i < 256; ++i) absmax[i] = static_cast<uint8_t>(i);
  std::vector<float> scale = {1, 0}, found(256 * 64);
  QuantizedMatrix m{Quantize::nf4_dq, {256, 64}, 1, {}};
  m.parts[0] = {0, 256, Tensor(packed.data(), DType::u8, {256 * 32}),
                Tensor(absmax.data(), DType::u8, {256}), Tensor(scale.data(), DType::f32, {2})};
  Arena arena{Arena::Heap{}};
  Queue q(Device::cpu, arena);
  dequantize(q, Tensor(found.data(), DType::f32, {256, 64}), m, 0);
  for (size_t i = 0; i < 256; ++i) EXPECT_EQ(found[64 * i], expected[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(Bitsandbytes, QuantizeGolden,
                         testing::Combine(testing::Values("large", "small"),
                                          testing::Values(Quantize::nf4, Quantize::nf4_dq,
                                                          Quantize::fp4, Quantize::fp4_dq,
                                                          Quantize::int8),
                                          testing::ValuesIn(test::devices_present())),
                         [](const auto& suite) {
                           std::string kind(name_of(std::get<1>(suite.param)).substr(4));
                           std::replace(kind.begin(), kind.end(), '-', '_');
                           return fmt::format("{}_{}_{}", std::get<0>(suite.param), kind,
                                              name_of(std::get<2>(suite.param)));
                         });

ModelConfig small_config() {
  ModelConfig c;
  c.vocab = 67;
  c.hidden = 24;
  c.intermediate = 37;
  c.layers = 2;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 6;
  return c;
}

TEST(QuantizedSpec, TheBlocksLinearMapsAreQuantizedAndNothingElse) {
  const ModelSpec spec = make_spec(small_config(), Decay::all, {}, Quantize::nf4);
  int quantized = 0;
  for (const Param& p : spec.params) {
    EXPECT_FALSE(p.trainable);
    quantized += p.quantize == Quantize::nf4 ? 1 : 0;
  }
  EXPECT_EQ(quantized, 2 * 4);
  EXPECT_EQ(spec.lowest_trainable_unit(), spec.units());
  for (const int i : {spec.embedding, spec.head})
    EXPECT_EQ(spec.params[static_cast<size_t>(i)].quantize, Quantize::none);
}

TEST(QuantizedParameters, AreNeitherDrawnNorSeenAsTensors) {
  Arena arena{Arena::Heap{}};
  Queue q(Device::cpu, arena);
  Parameters params(arena, make_spec(small_config(), Decay::all, LoraOptions{}, Quantize::nf4_dq),
                    Precision::bf16_mixed, Gradients::kept);
  const int qkv = params.spec().blocks[0].qkv;
  EXPECT_FALSE(params.weight(qkv));
  EXPECT_FALSE(params.stored(qkv));
  ASSERT_NE(params.quantized(qkv), nullptr);
  EXPECT_EQ(params.quantized(qkv)->count, 3);
  EXPECT_EQ(params.quantized(params.spec().embedding), nullptr);
  EXPECT_THROW(params.initialize(q, 1), Error);
  params.initialize_adapters(q, 1);
  const Buffer x = arena.make(Category::data, DType::f32, {67, 24}, "x");
  x->as<float>()[5] = 1.5f;
  params.store_frozen(q, params.spec().embedding, 0, x);
  EXPECT_EQ(static_cast<float>(params.weight(params.spec().embedding).as<bf16>()[5]), 1.5f);
}

}  // namespace
}  // namespace capstan
