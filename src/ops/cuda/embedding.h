#pragma once

#include "ops/embedding.h"

namespace capstan::cuda {

void embedding(Queue& q, const Tensor& y_TD, const Tensor& w_VD, const Tensor& ids_T,
               const EmbeddingRows& rows);
void embedding_backward(Queue& q, const Tensor& dw_VD, const Tensor& dy_TD, const Tensor& ids_T,
                        const EmbeddingRows& rows);

}  // namespace capstan::cuda
