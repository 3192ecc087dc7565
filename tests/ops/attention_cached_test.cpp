#include "ops/attention.h"
#include "ops/reference.h"

namespace capstan::test {
namespace {

// Decoding must give what attention over the whole document gives, however it is cut into pieces.
class AttentionCached : public OnEveryDevice {
 protected:
  struct Document {
    int64_t T, H, K, D, window;
    DType dtype;
    Buffer q, k, v;
    Values o_THD;  // from attention
    float scale() const { return 1 / std::sqrt(static_cast<float>(D)); }
  };

  Document make(int64_t T, int64_t H, int64_t K, int64_t D, int64_t window, DType dtype) {
    Document d{T,
               H,
               K,
               D,
               window,
               dtype,
               random(dtype, {T, H, D}),
               random(dtype, {T, K, D}),
               random(dtype, {T, K, D}),
               {}};
    const Buffer o = empty(dtype, {T, H, D}), lse = empty(DType::f32, {H, T});
    const Buffer starts = of(DType::i32, {2}, {0, double(T)});
    attention(q_, o, lse, d.q, d.k, d.v, {starts, 1, T, window}, d.scale());
    d.o_THD = values(o);
    return d;
  }

  // Feeds pieces of the given lengths to a cache of `capacity` whose unused rows are NaN.
  Values decode(const Document& d, const std::vector<int64_t>& pieces, int64_t capacity) {
    const Buffer k = empty(d.dtype, {capacity, d.K, d.D}), v = empty(d.dtype, {capacity, d.K, d.D});
    const Buffer o = empty(d.dtype, {d.T, d.H, d.D});
    int64_t start = 0;
    for (const int64_t n : pieces) {
      q_.upload(k->rows(start, n), d.k->rows(start, n).raw());
      q_.upload(v->rows(start, n), d.v->rows(start, n).raw());
      attention_cached(q_, o->rows(start, n), d.q->rows(start, n), k, v, start, d.window,
                       d.scale());
      start += n;
    }
    return values(o);
  }

  // Both are off by as much as rounding explains.
  static double tol(const Document& d) { return 2 * tolerance(d.dtype, d.D + d.T); }
};
INSTANTIATE_TEST_SUITE_P(Ops, AttentionCached, testing::ValuesIn(devices_present()), device_name);

TEST_P(AttentionCached, EqualsAttentionAtEverySplit) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t window : {0, 1, 5, 40, 1000}) {
      const Document d = make(67, 4, 2, 16, window, dtype);
      EXPECT_LT(error(decode(d, {67}, 67), d.o_THD), tol(d));
      for (int64_t n = 1; n < d.T; ++n)
        EXPECT_LT(error(decode(d, {n, d.T - n}, 70), d.o_THD), tol(d))
            << name_of(dtype) << " window " << window << ", cut at " << n;
    }
}

TEST_P(AttentionCached, EqualsAttentionTokenByToken) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t window : {0, 1, 5, 64}) {
      const Document d = make(67, 7, 1, 48, window, dtype);
      const std::vector<int64_t> ones(67, 1);
      EXPECT_LT(error(decode(d, ones, 128), d.o_THD), tol(d)) << name_of(dtype) << " " << window;
    }
}

TEST_P(AttentionCached, EqualsAttentionInRaggedPieces) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t window : {0, 5, 64}) {
      const Document d = make(200, 2, 2, 100, window, dtype);
      EXPECT_LT(error(decode(d, {3, 64, 1, 65, 1, 1, 63, 2}, 201), d.o_THD), tol(d))
          << name_of(dtype) << " " << window;
    }
}

// On a GPU the keys of a query are dealt out to many, in several rounds, and those of a piece of
// many tokens to few; rows of 50 channels do not begin at multiples of 16 bytes.
TEST_P(AttentionCached, EqualsAttentionOverManyKeys) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t D : {24, 50, 64, 100, 128, 200, 256})
      for (const int64_t window : {0, 300}) {
        const Document d = make(600, 2, 1, D, window, dtype);
        EXPECT_LT(error(decode(d, {517, 1, 1, 64, 1, 16}, 600), d.o_THD), tol(d))
            << name_of(dtype) << " D=" << D << " window " << window;
      }
}

TEST_P(AttentionCached, OperandsMayHaveStrides) {
  const Document d = make(10, 4, 2, 16, 0, DType::f32);
  const Buffer qkv = random(DType::f32, {10, 8 * 16}), wide = random(DType::f32, {10, 6 * 16});
  const Tensor q = qkv->cols(0, 64).heads(4), k = qkv->cols(64, 32).heads(2);
  const Tensor v = qkv->cols(96, 32).heads(2), o = wide->cols(16, 64).heads(4);
  const Values left = values(wide->cols(0, 16)), right = values(wide->cols(80, 16));
  const Buffer dense = empty(DType::f32, {10, 4, 16});
  attention_cached(q_, o, q, k, v, 0, 0, d.scale());
  attention_cached(q_, dense, of(DType::f32, {10, 4, 16}, values(q)),
                   of(DType::f32, {10, 2, 16}, values(k)), of(DType::f32, {10, 2, 16}, values(v)),
                   0, 0, d.scale());
  EXPECT_LT(error(values(o), values(dense)), tol(d));
  EXPECT_EQ(values(wide->cols(0, 16)), left) << "wrote outside of the view";
  EXPECT_EQ(values(wide->cols(80, 16)), right) << "wrote outside of the view";
}

TEST_P(AttentionCached, DoesNotDependOnTheThreads) {
  const Document d = make(70, 7, 1, 16, 30, DType::bf16);
  expect_same_for_any_threads([&] { return decode(d, {66, 1, 3}, 80); });
}

TEST_P(AttentionCached, RefusesWrongOperands) {
  const Buffer q = random(DType::f32, {3, 4, 16}), k = random(DType::f32, {8, 2, 16});
  const Buffer bf = random(DType::bf16, {8, 2, 16}), three = random(DType::f32, {8, 3, 16});
  const auto bug = [&](const Tensor& o, const Tensor& query, const Tensor& key, const Tensor& value,
                       int64_t start) {
    expect_bug("attention_cached",
               [&] { attention_cached(q_, o, query, key, value, start, 0, 1); });
  };
  bug(q, q, k, k, 6);  // beyond the capacity
  bug(q, q, k, k, -1);
  bug(q, q, k, bf, 0);
  bug(q, q, three, three, 0);
  bug(q->rows(0, 2), q, k, k, 0);
  bug(q, q, k, k->rows(0, 7), 0);
}

TEST(AttentionCachedOnSim, CostsAndScratchAgree) {
  for (const DType dtype : kComputeTypes)
    expect_same_on_sim([&](Queue& queue) {
      const Buffer q = buffer_of(queue, dtype, {3, 4, 16}, Values(192));
      const Buffer k = buffer_of(queue, dtype, {8, 2, 16}, Values(256));
      const Buffer o = buffer_of(queue, dtype, {3, 4, 16}, Values(192));
      attention_cached(queue, o, q, k, k, 5, 2, 1);
    });
}

}  // namespace
}  // namespace capstan::test
