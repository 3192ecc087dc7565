#include "ops/attention.h"
#include "ops/attention_reference.h"

namespace capstan::test {
namespace {

class AttentionGradients : public AttentionOnEveryDevice {
 protected:
  void expect_turned_back(const Layout& l, DType dtype, int64_t more) {
    const int64_t T = l.tokens(), P = T + 5, half = l.D / 2;
    Values positions;
    for (int64_t t = 0; t < T; ++t) positions.push_back(double((7 * t) % P));
    const Buffer at = of(DType::i32, {T}, positions);
    const Buffer cosines = random(DType::f32, {P, half}), sines = random(DType::f32, {P, half});
    const Values cosine = values(cosines), sine = values(sines);
    const Case c = make(l, dtype, more);
    forward(c);
    backward(c, c.dqkv);
    // The definition, in f64, of gradients that are rounded once more than they need be.
    const auto rotated = [&](const Tensor& x) {
      Values v = values(x);
      const int64_t H = x.dim(1);
      for (int64_t t = 0; t < T; ++t)
        for (int64_t h = 0; h < H; ++h)
          for (int64_t i = 0; i < half; ++i) {
            const auto angle = static_cast<int64_t>(positions[idx(t)]) * half + i;
            double& a = v[idx((t * H + h) * l.D + i)];
            double& b = v[idx((t * H + h) * l.D + i + half)];
            const double first = a, second = b, u = cosine[idx(angle)], w = sine[idx(angle)];
            a = first * u + second * w;
            b = second * u - first * w;
          }
      return v;
    };
    const Buffer result = random(dtype, c.dqkv->shape());
    attention_backward(q_, c.q(result), c.k(result), c.v(result), c.d_o, c.o, c.lse, c.q(c.qkv),
                       c.k(c.qkv), c.v(c.qkv), c.mask, l.scale(), {cosines, sines, at});
    EXPECT_LT(error(values(c.q(result)), rotated(c.q(c.dqkv))), 4 * tolerance(dtype))
        << name_of(dtype) << ' ' << l << ' ' << more;
    EXPECT_LT(error(values(c.k(result)), rotated(c.k(c.dqkv))), 4 * tolerance(dtype))
        << name_of(dtype) << ' ' << l << ' ' << more;
    EXPECT_EQ(values(c.v(result)), values(c.v(c.dqkv)))
        << name_of(dtype) << ' ' << l << ' ' << more;
  }

  // The same rows, each followed by NaN, which nobody should read.
  Buffer with_gaps(const Tensor& x, int64_t more) {
    const int64_t T = x.dim(0), width = x.dim(1) * x.dim(2);
    const Values dense = values(x);
    Values wide(idx(T * (width + more)), NAN);
    for (int64_t t = 0; t < T; ++t)
      std::copy_n(dense.begin() + t * width, width, wide.begin() + t * (width + more));
    return of(x.dtype(), {T, width + more}, wide);
  }
  // Of outputs and of their gradients.
  void expect_same_with_gaps(const Layout& l, DType dtype, int64_t more, int64_t more_of_d) {
    const Case c = make(l, dtype);
    forward(c);
    backward(c, c.dqkv);
    const Buffer o = with_gaps(c.o, more), d_o = with_gaps(c.d_o, more_of_d);
    const Buffer result = empty(dtype, c.dqkv->shape());
    const auto rows = [&](const Buffer& b) { return b->cols(0, l.H * l.D).heads(l.H); };
    attention_backward(q_, c.q(result), c.k(result), c.v(result), rows(d_o), rows(o), c.lse,
                       c.q(c.qkv), c.k(c.qkv), c.v(c.qkv), c.mask, l.scale());
    EXPECT_LT(error(values(result), values(c.dqkv)), 4 * tolerance(dtype, l.terms()))
        << name_of(dtype) << ' ' << l << ' ' << more;
  }

  void expect_gradients_match(const Layout& l, DType dtype) {
    const Case c = make(l, dtype);
    forward(c);
    backward(c, c.dqkv);
    const Values q = values(c.q(c.qkv)), k = values(c.k(c.qkv)), v = values(c.v(c.qkv));
    const Values d_o = values(c.d_o);
    const auto f = [&](const Values& q_at, const Values& k_at, const Values& v_at) {
      return dot(d_o, attention_f64(l, q_at, k_at, v_at, double{l.scale()}).o_THD);
    };
    const double tol = 4 * tolerance(dtype, l.terms() * (l.H / l.K)) + kDifferenceError;
    const auto off = [&](const auto& of_one, const Values& at, const Tensor& gradient) {
      return gradient_error(of_one, at, values(gradient), 1);
    };
    EXPECT_LT(off([&](const Values& at) { return f(at, k, v); }, q, c.q(c.dqkv)), tol)
        << "dq, " << name_of(dtype) << ' ' << l;
    EXPECT_LT(off([&](const Values& at) { return f(q, at, v); }, k, c.k(c.dqkv)), tol)
        << "dk, " << name_of(dtype) << ' ' << l;
    EXPECT_LT(off([&](const Values& at) { return f(q, k, at); }, v, c.v(c.dqkv)), tol)
        << "dv, " << name_of(dtype) << ' ' << l;
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, AttentionGradients, testing::ValuesIn(devices_present()),
                         device_name);

TEST_P(AttentionGradients, MatchFiniteDifferences) {
  for (const DType dtype : kComputeTypes) {
    expect_gradients_match({1, 1, 16, {3}}, dtype);
    expect_gradients_match({2, 2, 48, {63}}, dtype);
    expect_gradients_match({4, 2, 100, {64}}, dtype);
    expect_gradients_match({4, 1, 128, {65}}, dtype);
    expect_gradients_match({7, 1, 16, {130}}, dtype);
    expect_gradients_match({2, 1, 256, {33}}, dtype);
    for (const int64_t window : {0, 2, 5, 64, 70, 1000})
      expect_gradients_match({4, 2, 16, {1, 70, 1, 5, 129}, window}, dtype);
  }
}

// Several tiles of keys, and heads that share them in a group of eight, as TinyLlama's do.
TEST_P(AttentionGradients, MatchOverManyTiles) {
  for (const DType dtype : kComputeTypes) {
    expect_matches_f64({8, 1, 64, {300, 20}}, dtype);
    expect_gradients_match({8, 1, 64, {200, 20}}, dtype);
  }
}

TEST_P(AttentionGradients, MatchAtTheEdgesOfTiles) {
  for (const DType dtype : kComputeTypes) {
    expect_gradients_match({2, 2, 64, {63}}, dtype);
    expect_gradients_match({8, 1, 64, {64}}, dtype);
    expect_gradients_match({4, 1, 80, {65}}, dtype);
    expect_gradients_match({1, 1, 100, {129}}, dtype);
    expect_gradients_match({2, 1, 128, {129}}, dtype);
    expect_gradients_match({6, 2, 96, {129}}, dtype);
    expect_gradients_match({2, 1, 7, {129}}, dtype);
    expect_gradients_match({2, 1, 36, {129}}, dtype);
    for (const int64_t D : {64, 128})
      for (const int64_t window : {0, 50})
        expect_gradients_match({2, 1, D, {64, 1, 63, 70}, window}, dtype);
  }
}

// Heads enough to give each multiprocessor of a GPU something to do, against those of one key
// alone. Of tiles side by side one sees its document of 64 tokens, and the other a longer one.
TEST_P(AttentionGradients, OfManyHeadsAreThoseOfEachAlone) {
  const int64_t K = q_.device() == Device::cuda ? 72 : 4;
  for (const Layout& l :
       {Layout{2 * K, 2 * K, 80, {64, 130}}, Layout{2 * K, K, 128, {1, 64, 70}, 66}}) {
    const Case all = make(l, DType::bf16);
    forward(all);
    backward(all, all.dqkv);
    const int64_t group = l.H / l.K, T = l.tokens();
    for (const int64_t key : {int64_t{0}, l.K / 2, l.K - 1}) {
      // Columns of queries, keys and values that the key's heads have, dense.
      const auto own = [&](const Tensor& qkv) {
        Values to(idx(T * (group + 2) * l.D));
        const std::pair<int64_t, int64_t> parts[] = {
            {key * group, group}, {l.H + key, 1}, {l.H + l.K + key, 1}};
        int64_t column = 0;
        for (const auto& [head, heads] : parts) {
          const Values part = values(qkv.cols(head * l.D, heads * l.D));
          for (int64_t t = 0; t < T; ++t)
            std::copy_n(part.begin() + t * heads * l.D, heads * l.D,
                        to.begin() + t * (group + 2) * l.D + column);
          column += heads * l.D;
        }
        return to;
      };
      Case one = make({group, 1, l.D, l.lengths, l.window}, DType::bf16);
      one.qkv = of(DType::bf16, one.qkv->shape(), own(all.qkv));
      const Tensor d_o = Tensor(*all.d_o).reshape({T, l.H * l.D});
      one.d_o = of(DType::bf16, one.d_o->shape(), values(d_o.cols(key * group * l.D, group * l.D)));
      forward(one);
      backward(one, one.dqkv);
      EXPECT_LT(error(own(all.dqkv), values(one.dqkv)), 4 * tolerance(DType::bf16, l.terms()))
          << l << ", key " << key;
    }
  }
}

// Heads of several widths, and rows that begin at multiples of 16 bytes, of 8, and of none: of
// both, or of outputs alone, which the gradients of queries read and those of keys do not.
TEST_P(AttentionGradients, DoNotDependOnGapsBetweenRowsOfOutputs) {
  constexpr std::pair<int64_t, int64_t> kGaps[] = {{1, 1}, {4, 4}, {8, 8}, {1, 0}, {4, 0}};
  for (const DType dtype : kComputeTypes)
    for (const Layout& l :
         {Layout{2, 2, 36, {65}}, Layout{2, 1, 48, {63, 2}}, Layout{4, 2, 64, {70, 9}},
          Layout{2, 1, 100, {70}, 50}, Layout{2, 1, 128, {3, 126}}, Layout{2, 2, 200, {5}}})
      for (const auto& [more, more_of_d] : kGaps) expect_same_with_gaps(l, dtype, more, more_of_d);
}

TEST_P(AttentionGradients, OfTwoRunsAreBitwiseEqual) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t D : {64, 100, 128}) {
      const Case c = make({8, 2, D, {1, 130, 70}}, dtype);
      forward(c);
      backward(c, c.dqkv);
      const Buffer again = empty(dtype, c.dqkv->shape());
      backward(c, again);
      EXPECT_EQ(values(again), values(c.dqkv)) << name_of(dtype) << " D=" << D;
    }
}

// Of queries and keys that were rotated the gradients are rotated back, whoever does it: of heads
// of several widths, of rows that begin at odd places…
TEST_P(AttentionGradients, OfTurnedInputsAreTurnedBack) {
  for (const DType dtype : kComputeTypes)
    for (const Layout& l :
         {Layout{4, 2, 16, {1, 130, 7}}, Layout{4, 1, 64, {70, 9}}, Layout{2, 2, 128, {65, 130}},
          Layout{2, 1, 100, {70}}, Layout{4, 2, 64, {3, 64, 70}, 50}})
      for (const int64_t more : {0, 4}) expect_turned_back(l, dtype, more);
}

// … and of so many heads that share nothing that a GPU takes others of its kernels for bf16.
TEST_P(AttentionGradients, OfManyTurnedHeadsAreTurnedBack) {
  const int64_t most = q_.device() == Device::cuda ? 400 : 8;
  for (const Layout& l : {Layout{most, most, 64, {100}}, Layout{most / 4, most / 4, 128, {200}}})
    for (const int64_t more : {0, 4}) expect_turned_back(l, DType::bf16, more);
}

}  // namespace
}  // namespace capstan::test
