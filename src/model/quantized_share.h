#pragma once

#include "model/tensor_cut.h"
#include "ops/quantize.h"

namespace capstan {

// Quantizes x, a whole tensor of a checkpoint, as `kind`, and keeps a share of it: `to` [rows,
// columns], of the rows or columns that `cut` names, gets the codes and scales that these values
// have in the whole. A share without double quantization of a tensor with it has the products of
// its scales. No block of values is cut (make_spec).
//
// Takes memory for the whole tensor, quantized, while it runs, and passes it through the host.
void quantize_share(Queue& q, const QuantizedMatrix& to, Quantize kind, const Tensor& x,
                    const TensorCut& cut);

}  // namespace capstan
