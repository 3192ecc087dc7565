#include "ops/attention.h"

#include "ops/bytes_of.h"
#include "ops/check.h"
#include "ops/cpu/attention.h"
#include "ops/cuda/attention/attention.h"

namespace capstan {
namespace {

void check_inputs(const char* op, const Tensor& q_THD, const Tensor& k_TKD, const Tensor& v_TKD) {
  require(q_THD.rank() == 3 && k_TKD.rank() == 3 && v_TKD.shape() == k_TKD.shape(), Fault::bug,
          "{}: q is {}, k {}, v {}; expected [T, H, D], [T, K, D], [T, K, D]", op, q_THD.shape(),
          k_TKD.shape(), v_TKD.shape());
  require(q_THD.dim(2) == k_TKD.dim(2) && k_TKD.dim(1) > 0 && q_THD.dim(1) % k_TKD.dim(1) == 0,
          Fault::bug, "{}: {} query heads of {} do not share {} key heads of {}", op, q_THD.dim(1),
          q_THD.dim(2), k_TKD.dim(1), k_TKD.dim(2));
  for (const Tensor& t : {q_THD, k_TKD, v_TKD})
    require(t.dtype() == q_THD.dtype() && is_floating(t.dtype()), Fault::bug,
            "{}: q, k and v must all be f32, all bf16 or all f16", op);
}

void check_like(const char* op, const char* name, const Tensor& x, const Tensor& like) {
  require(x.shape() == like.shape() && x.dtype() == like.dtype(), Fault::bug,
          "{}: {} is {} of {}, expected {} of {}", op, name, x.shape(), name_of(x.dtype()),
          like.shape(), name_of(like.dtype()));
}

void check_mask(const char* op, const AttentionMask& mask, const Tensor& q_THD, const Tensor& k_TKD,
                const Tensor& lse_HT) {
  require(q_THD.dim(0) == k_TKD.dim(0), Fault::bug, "{}: {} queries, {} keys", op, q_THD.dim(0),
          k_TKD.dim(0));
  require(mask.starts.dtype() == DType::i32 && mask.starts.rank() == 1 &&
              mask.starts.dim(0) >= mask.documents + 1,
          Fault::bug, "{}: the mask has {} starts for {} documents", op, mask.starts.numel(),
          mask.documents);
  require(mask.longest <= q_THD.dim(0) && mask.longest * mask.documents >= q_THD.dim(0), Fault::bug,
          "{}: {} documents of at most {} do not make {} tokens", op, mask.documents, mask.longest,
          q_THD.dim(0));
  require(lse_HT.dtype() == DType::f32 && lse_HT.contiguous() &&
              lse_HT.numel() == q_THD.dim(0) * q_THD.dim(1),
          Fault::bug, "{}: lse must be f32 [{}, {}]", op, q_THD.dim(1), q_THD.dim(0));
}

// An upper bound if the mask does not say: documents of equal length.
double visible_pairs(const AttentionMask& mask, int64_t tokens) {
  if (mask.pairs > 0 || tokens == 0) return mask.pairs;
  return static_cast<double>(tokens) / static_cast<double>(mask.longest) *
         attention_pairs(mask.longest, mask.window);
}

int64_t scratch_bytes(const Queue& q, int64_t keys, const Tensor& query) {
  if (q.target() == Device::cuda) return 0;
  return cpu::attention_scratch(keys, query.dim(2), query.dtype());
}

// A cuda kernel that also rotates dq and dk back reads the angles.
void gradients(Queue& q, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& d_o,
               const Tensor& o, const Tensor& lse, const Tensor& query, const Tensor& k,
               const Tensor& v, const AttentionMask& mask, float scale, const RopeAngles& rotated) {
  const double pairs = visible_pairs(mask, query.dim(0)) * static_cast<double>(query.dim(1));
  const auto span = q.account({"attention_backward", OpKind::attention_backward},
                              {.flops = 10 * pairs * static_cast<double>(query.dim(2)),
                               .bytes = bytes_of({dq, dk, dv, d_o, o, lse, query, k, v})});
  const int64_t room = q.target() == Device::cuda ? cuda::attention_backward_scratch(query)
                                                  : cpu::attention_backward_scratch(
                                                        mask.longest, query.dim(2), query.dtype());
  const Buffer scratch = q.scratch(DType::u8, {room}, "attention backward");
  dispatch(
      q,
      [&] { cpu::attention_backward(dq, dk, dv, d_o, o, lse, query, k, v, mask, scale, scratch); },
      [&] {
        cuda::attention_backward(q, dq, dk, dv, d_o, o, lse, query, k, v, mask, scale, rotated,
                                 scratch);
      });
}

}  // namespace

double attention_pairs(int64_t n, int64_t window) {
  const auto seen = static_cast<double>(window > 0 && window < n ? window : n);
  return static_cast<double>(n) * seen - seen * (seen - 1) / 2;
}

void attention(Queue& q, Tensor o, Tensor lse, Tensor query, Tensor k, Tensor v,
               const AttentionMask& mask, float scale) {
  check_inputs("attention", query, k, v);
  check_like("attention", "o", o, query);
  check_mask("attention", mask, query, k, lse);
  const double pairs = visible_pairs(mask, query.dim(0)) * static_cast<double>(query.dim(1));
  const auto span = q.account({"attention", OpKind::attention},
                              {.flops = 4 * pairs * static_cast<double>(query.dim(2)),
                               .bytes = bytes_of({o, lse, query, k, v})});
  const Buffer scratch = q.scratch(DType::u8, {scratch_bytes(q, mask.longest, query)}, "attention");
  dispatch(
      q, [&] { cpu::attention(o, lse, query, k, v, mask, scale, scratch); },
      [&] { cuda::attention(q, o, lse, query, k, v, mask, scale); });
}

void attention_backward(Queue& q, Tensor dq, Tensor dk, Tensor dv, Tensor d_o, Tensor o, Tensor lse,
                        Tensor query, Tensor k, Tensor v, const AttentionMask& mask, float scale,
                        const RopeAngles& rotated) {
  check_inputs("attention_backward", query, k, v);
  check_like("attention_backward", "dq", dq, query);
  check_like("attention_backward", "dk", dk, k);
  check_like("attention_backward", "dv", dv, v);
  check_like("attention_backward", "do", d_o, query);
  check_like("attention_backward", "o", o, query);
  check_mask("attention_backward", mask, query, k, lse);
  if (rotated) {
    check::rank("attention_backward", "cos", rotated.cos_PD, 2, 2);
    const Shape table{rotated.cos_PD.dim(0), query.dim(2) / 2};
    check::exact("attention_backward", "cos", rotated.cos_PD, DType::f32, table);
    check::exact("attention_backward", "sin", rotated.sin_PD, DType::f32, table);
    check::exact("attention_backward", "positions", rotated.positions_T, DType::i32,
                 {query.dim(0)});
  }
  const bool apart = rotated && !(q.target() == Device::cuda && cuda::rotates_back(query));
  gradients(q, dq, dk, dv, d_o, o, lse, query, k, v, mask, scale, apart ? RopeAngles() : rotated);
  if (!apart) return;
  for (const Tensor& x : {dq, dk})
    rope(q, x, rotated.cos_PD, rotated.sin_PD, rotated.positions_T, Rotation::back);
}

void attention_cached(Queue& q, Tensor o, Tensor query, Tensor k, Tensor v, int64_t start,
                      int64_t window, float scale) {
  check_inputs("attention_cached", query, k, v);
  check_like("attention_cached", "o", o, query);
  require(start >= 0 && start + query.dim(0) <= k.dim(0), Fault::bug,
          "attention_cached: positions {} to {} in a cache of {}", start, start + query.dim(0),
          k.dim(0));
  const auto keys = static_cast<double>(start + query.dim(0));
  const auto width = static_cast<double>(k.dim(1) * k.dim(2) * size_of(k.dtype()));
  const auto span = q.account({"attention_cached", OpKind::attention},
                              {.flops = 4 * static_cast<double>(query.numel()) * keys,
                               .bytes = bytes_of({o, query}) + 2 * keys * width});
  const Buffer scratch = q.scratch(DType::u8, {scratch_bytes(q, k.dim(0), query)}, "attention");
  dispatch(
      q, [&] { cpu::attention_cached(o, query, k, v, start, window, scale, scratch); },
      [&] { cuda::attention_cached(q, o, query, k, v, start, window, scale); });
}

}  // namespace capstan
