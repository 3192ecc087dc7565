#pragma once

#include "tensor/queue.h"

namespace capstan {

// Which rows of a table w has: those from `first` on. By default it has all.
struct EmbeddingRows {
  int64_t first = 0;
  bool some = false;  // ids may also be of rows that w does not have
};

// y[t,:] = w[ids[t] - first,:]; 0 for an id of a row that w does not have. Without `some`, every id
// must be in [0, V): batches are checked when they are made.
void embedding(Queue& q, Tensor y_TD, Tensor w_VD, Tensor ids_T, const EmbeddingRows& rows = {});

// dw[ids[t] - first,:] += dy[t,:], in the order of t: repeated ids are summed in the same order in
// every run. Ids of other rows add nothing.
void embedding_backward(Queue& q, Tensor dw_VD, Tensor dy_TD, Tensor ids_T,
                        const EmbeddingRows& rows = {});

}  // namespace capstan
