#include "ops/embedding.h"

#include "ops/check.h"
#include "ops/cpu/embedding.h"
#include "ops/cuda/embedding.h"

namespace capstan {
namespace {

void check_operands(const char* op, const char* y, const Tensor& y_TD, const char* w,
                    const Tensor& w_VD, const Tensor& ids_T, const EmbeddingRows& rows) {
  check::rank(op, w, w_VD, 2, 2);
  check::rank(op, "ids", ids_T, 1, 1);
  check::dense(op, w, w_VD, w_VD.shape());
  check::exact(op, "ids", ids_T, DType::i32, ids_T.shape());
  check::dense(op, y, y_TD, {ids_T.dim(0), w_VD.dim(1)});
  require(rows.first >= 0, Fault::bug, "{}: the first row of {} is {}", op, w, rows.first);
}

}  // namespace

void embedding(Queue& q, Tensor y_TD, Tensor w_VD, Tensor ids_T, const EmbeddingRows& rows) {
  check_operands("embedding", "y", y_TD, "w", w_VD, ids_T, rows);
  // Only the rows that are looked up are read.
  const int64_t table_bytes = y_TD.numel() * size_of(w_VD.dtype());
  const auto span =
      q.account({"embedding", OpKind::copy},
                {.bytes = static_cast<double>(y_TD.nbytes() + table_bytes + ids_T.nbytes())});
  dispatch(
      q, [&] { cpu::embedding(y_TD, w_VD, ids_T, rows); },
      [&] { cuda::embedding(q, y_TD, w_VD, ids_T, rows); });
}

void embedding_backward(Queue& q, Tensor dw_VD, Tensor dy_TD, Tensor ids_T,
                        const EmbeddingRows& rows) {
  check_operands("embedding_backward", "dy", dy_TD, "dw", dw_VD, ids_T, rows);
  const int64_t table_bytes = 2 * dy_TD.numel() * size_of(dw_VD.dtype());  // read and written
  const auto span =
      q.account({"embedding_backward", OpKind::elementwise},
                {.flops = static_cast<double>(dy_TD.numel()),
                 .bytes = static_cast<double>(dy_TD.nbytes() + table_bytes + ids_T.nbytes())});
  const int64_t sorted =
      q.target() == Device::cuda ? 0 : cpu::embedding_order_size(dw_VD.dtype(), ids_T.dim(0));
  const Buffer order = q.scratch(DType::i32, {sorted}, "tokens by id");
  dispatch(
      q, [&] { cpu::embedding_backward(dw_VD, dy_TD, ids_T, rows, order); },
      [&] { cuda::embedding_backward(q, dw_VD, dy_TD, ids_T, rows); });
}

}  // namespace capstan
