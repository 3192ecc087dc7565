#pragma once

#include "tensor/queue.h"

namespace capstan {

// y[t,:] = w[ids[t],:]. Every id must be in [0, V): batches are checked when they are made.
void embedding(Queue& q, Tensor y_TD, Tensor w_VD, Tensor ids_T);

// dw[ids[t],:] += dy[t,:], in the order of t: repeated ids are summed in the same order in every
// run.
void embedding_backward(Queue& q, Tensor dw_VD, Tensor dy_TD, Tensor ids_T);

}  // namespace capstan
