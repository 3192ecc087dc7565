#pragma once

#include <initializer_list>

#include "tensor/tensor.h"

namespace capstan {

// For the account of an op that reads or writes each of these once.
inline double bytes_of(std::initializer_list<Tensor> tensors) {
  int64_t sum = 0;
  for (const Tensor& t : tensors) sum += t.nbytes();
  return static_cast<double>(sum);
}

}  // namespace capstan
