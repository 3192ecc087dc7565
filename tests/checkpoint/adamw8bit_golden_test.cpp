// 8-bit AdamW against bitsandbytes: tools/golden/make_adamw8bit.py makes the file.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "checkpoint/safetensors.h"
#include "ops/cpu/dynamic_map.h"
#include "ops/optimizer.h"
#include "ops/reference.h"

namespace capstan {
namespace {

class AdamW8bitGolden : public test::OnEveryDevice {
 protected:
  template <class T>
  std::vector<T> raw(const char* name) const {
    const StoredTensor* t = file_.header().find(name);
    EXPECT_NE(t, nullptr) << name;
    if (t == nullptr) return {};
    std::vector<T> v(static_cast<size_t>(t->nbytes()) / sizeof(T));
    file_.read_to(reinterpret_cast<std::byte*>(v.data()), *t, 0, t->numel());
    return v;
  }

  SafetensorsFile file_{std::filesystem::path(CAPSTAN_SOURCE_DIR) /
                        "tests/golden_adamw8bit/steps.safetensors"};
};
INSTANTIATE_TEST_SUITE_P(Bitsandbytes, AdamW8bitGolden, testing::ValuesIn(test::devices_present()),
                         test::device_name);

TEST_P(AdamW8bitGolden, TheMapsAreEqualBitForBit) {
  for (const bool sign : {true, false}) {
    const auto& ours = (sign ? cpu::DynamicMap::with_sign() : cpu::DynamicMap::without_sign());
    const auto theirs = raw<float>(sign ? "signed_map" : "unsigned_map");
    ASSERT_EQ(theirs.size(), 256u);
    EXPECT_EQ(std::memcmp(ours.values().data(), theirs.data(), sizeof(ours.values())), 0) << sign;
  }
}

// Where a moment lies halfway between two codes but for the last bit, rounding decides which it
// gets: torch rounds products before it adds them, we need not. Such a moment, one in thousands, is
// another by one code, and its weight is away by part of a step of 0.01. (In this file it is value
// 2530: with moments computed in f64, torch ends where we do, too.)
TEST_P(AdamW8bitGolden, TenStepsEndWhereBitsandbytesEnds) {
  auto weight = raw<float>("weight");
  auto gradients = raw<bf16>("gradients");
  const auto n = static_cast<int64_t>(weight.size());
  const Buffer w = arena_.make(Category::weights, DType::f32, {n}, "weight");
  const Buffer g = arena_.make(Category::gradients, DType::bf16, {n}, "gradient");
  q_.upload(w, weight.data());
  const auto room = [&](DType type, int64_t count) {
    return arena_.make(Category::optimizer, type, {count}, "moment");
  };
  const int64_t blocks = adamw8bit_blocks(n);
  const Buffer m = room(DType::u8, n), v = room(DType::u8, n);
  const Buffer m_absmax = room(DType::f32, blocks), v_absmax = room(DType::f32, blocks);
  for (int64_t step = 1; step <= 10; ++step) {
    q_.upload(g, gradients.data() + (step - 1) * n);
    adamw8bit(q_, {w, {}, g, m, v, {}}, {m_absmax, v_absmax},
              {.lr = 1e-2f,
               .beta1 = 0.9f,
               .beta2 = 0.95f,
               .eps = 1e-8f,
               .weight_decay = 0.1f,
               .step = step});
  }
  q_.download(weight.data(), w);

  const auto final = raw<float>("final");
  int off = 0;
  double worst = 0;
  for (size_t i = 0; i < weight.size(); ++i) {
    const double away = std::abs(double{weight[i]} - double{final[i]});
    worst = std::max(worst, away);
    off += away > 1e-6 * std::max(1.0, std::abs(double{final[i]})) ? 1 : 0;
  }
  EXPECT_LE(off, n / 1000);
  EXPECT_LT(worst, 1e-2);
  const auto expect_codes = [&](const char* name, const Tensor& ours) {
    const auto theirs = raw<uint8_t>(name);
    const test::Values codes = values(ours);
    int differ = 0;
    for (size_t i = 0; i < theirs.size(); ++i) {
      const int apart = std::abs(static_cast<int>(codes[i]) - theirs[i]);
      EXPECT_LE(apart, 1) << name << " " << i;
      differ += apart;
    }
    EXPECT_LE(differ, n / 1000) << name;
  };
  expect_codes("exp_avg", m);
  expect_codes("exp_avg_sq", v);
  for (const auto& [name, ours] :
       {std::pair("exp_avg.absmax", *m_absmax), std::pair("exp_avg_sq.absmax", *v_absmax)}) {
    const auto theirs = raw<float>(name);
    const test::Values found = values(ours);
    for (size_t b = 0; b < theirs.size(); ++b)
      EXPECT_NEAR(found[b], theirs[b], 1e-6 * double{theirs[b]}) << name << " " << b;
    EXPECT_EQ(found[2], 0) << "its gradients are zero";
  }
}

}  // namespace
}  // namespace capstan
