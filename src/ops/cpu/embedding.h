#pragma once

#include "ops/embedding.h"

namespace capstan::cpu {

void embedding(const Tensor& y_TD, const Tensor& w_VD, const Tensor& ids_T,
               const EmbeddingRows& rows);

// Number of values of `order`, which embedding_backward needs if dw is not f32.
int64_t embedding_order_size(DType dw, int64_t tokens);
void embedding_backward(const Tensor& dw_VD, const Tensor& dy_TD, const Tensor& ids_T,
                        const EmbeddingRows& rows, const Tensor& order);

}  // namespace capstan::cpu
