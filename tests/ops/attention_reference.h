#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>
#include <vector>

#include "ops/attention.h"
#include "ops/reference.h"

// What attention is compared with: its definition in f64, and problems of any layout.
namespace capstan::test {

// Packed documents: H query heads and K key heads of D values.
struct Layout {
  int64_t H, K, D;
  std::vector<int64_t> lengths;  // of the documents
  int64_t window = 0;

  int64_t tokens() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  int64_t longest() const {
    return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(D)); }
  // An output rests on sums over a head and over the keys.
  int64_t terms() const { return D + longest(); }
};

inline std::ostream& operator<<(std::ostream& to, const Layout& l) {
  to << "H=" << l.H << " K=" << l.K << " D=" << l.D << " window=" << l.window << " documents of";
  for (const int64_t length : l.lengths) to << ' ' << length;
  return to;
}

struct AttentionValues {
  Values o_THD, lse_HT;
};

// Every token with those of its document up to itself, or the last `window` of them. q_THD, k_TKD
// and v_TKD are dense.
AttentionValues attention_f64(const Layout& l, const Values& q, const Values& k, const Values& v,
                              double scale);

// NaN when either holds one; infinite when lengths differ.
double largest_difference(const Values& a, const Values& b);

// One problem. q, k and v are columns of one buffer, as a fused projection leaves them; so are
// their gradients.
struct Case {
  Layout layout;
  Buffer qkv, dqkv, o, d_o, lse, starts;
  AttentionMask mask;

  Tensor q(const Tensor& buffer) const {
    return buffer.cols(0, layout.H * layout.D).heads(layout.H);
  }
  Tensor k(const Tensor& buffer) const { return kv(buffer, layout.H); }
  Tensor v(const Tensor& buffer) const { return kv(buffer, layout.H + layout.K); }

 private:
  Tensor kv(const Tensor& buffer, int64_t head) const {
    return buffer.cols(head * layout.D, layout.K * layout.D).heads(layout.K);
  }
};

// Attention on every device, of any layout.
class AttentionOnEveryDevice : public OnEveryDevice {
 protected:
  // Rows of q, k and v have `more` values than they need.
  Case make(const Layout& l, DType dtype, int64_t more = 0) {
    const int64_t T = l.tokens(), width = (l.H + 2 * l.K) * l.D + more;
    Values starts{0};
    for (const int64_t length : l.lengths) starts.push_back(starts.back() + double(length));
    const auto documents = static_cast<int64_t>(l.lengths.size());
    Case c{.layout = l,
           .qkv = random(dtype, {T, width}),
           .dqkv = empty(dtype, {T, width}),
           .o = empty(dtype, {T, l.H, l.D}),
           .d_o = random(dtype, {T, l.H, l.D}),
           .lse = empty(DType::f32, {l.H, T}),
           .starts = of(DType::i32, {documents + 1}, starts),
           .mask = {}};
    c.mask = {c.starts, documents, l.longest(), l.window};
    return c;
  }
  void forward(const Case& c) {
    attention(q_, c.o, c.lse, c.q(c.qkv), c.k(c.qkv), c.v(c.qkv), c.mask, c.layout.scale());
  }
  void backward(const Case& c, const Tensor& dqkv) {
    attention_backward(q_, c.q(dqkv), c.k(dqkv), c.v(dqkv), c.d_o, c.o, c.lse, c.q(c.qkv),
                       c.k(c.qkv), c.v(c.qkv), c.mask, c.layout.scale());
  }
  AttentionValues expected(const Case& c) {
    return attention_f64(c.layout, values(c.q(c.qkv)), values(c.k(c.qkv)), values(c.v(c.qkv)),
                         double{c.layout.scale()});
  }

  void expect_matches_f64(const Layout& l, DType dtype) {
    const Case c = make(l, dtype);
    forward(c);
    const AttentionValues r = expected(c);
    EXPECT_LT(error(values(c.o), r.o_THD), tolerance(dtype, l.terms()))
        << name_of(dtype) << ' ' << l;
    // A score is a sum of D products, whose rounding is relative to |q| |k| scale, here sqrt(D).
    const double size = std::sqrt(double(l.D)) + std::log(double(l.longest()));
    EXPECT_LT(largest_difference(values(c.lse), r.lse_HT), size * tolerance(DType::f32, l.terms()))
        << name_of(dtype) << ' ' << l;
  }
};

}  // namespace capstan::test
