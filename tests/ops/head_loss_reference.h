#pragma once

#include "ops/head_loss.h"
#include "ops/reference.h"

// What the tests of the head share.
namespace capstan::test {

struct HeadReference {
  double loss = 0;
  Values dx, dw;  // of the loss
};

// D channels; the vocabulary follows from w.
HeadReference head_loss_f64(const Values& x, const Values& w, const Values& labels, int64_t D,
                            bool gradients = false);

// On cuda the logits of narrow operands, and their gradients, are narrow, too.
inline double logit_error(Device device, DType x, DType w) {
  if (device != Device::cuda || x != w || x == DType::f32) return 0;
  return x == DType::bf16 ? 0x1p-8 : 0x1p-11;
}

class HeadLossTest : public OnEveryDevice {
 protected:
  // Labels in [0, V), of which about one in five is ignored; the first is not.
  Buffer some_labels(int64_t T, int64_t V) {
    const Rng rng({.seed = ++seed_});
    Values labels;
    for (int64_t t = 0; t < T; ++t) {
      const auto words = rng.draws(static_cast<uint64_t>(t));
      labels.push_back(t > 0 && words[0] % 5 == 0 ? kIgnore : double(words[1] % uint64_t(V)));
    }
    return of(DType::i32, {T}, labels);
  }
  // Logits are of size 1.
  Buffer head(DType dtype, int64_t V, int64_t D) {
    return random(dtype, {V, D}, 1 / std::sqrt(double(D)));
  }
  Buffer loss_of(double value) { return of(DType::f64, {1}, {value}); }
};

}  // namespace capstan::test
