#pragma once

#include <algorithm>
#include <cstdint>

#include "model/spec.h"

namespace capstan {

// Where the values of a part of a tensor are in the whole one, both in row-major order: some rows
// of it, which are consecutive there, or `width` of the `columns` of all its rows.
struct TensorCut {
  int64_t first = 0;               // the index of the part's first value in the whole
  int64_t width = 1, columns = 1;  // equal: consecutive values

  bool consecutive() const { return width == columns; }
  int64_t in_whole(int64_t i) const {
    return consecutive() ? first + i : first + i / width * columns + i % width;
  }
  // How many of the part's `count` values come before this index of the whole.
  int64_t before(int64_t whole, int64_t count) const {
    const int64_t at = std::max<int64_t>(0, whole - first);
    const int64_t n = consecutive() ? at : at / columns * width + std::min(at % columns, width);
    return std::min(n, count);
  }
  // Calls body(i, in_whole, n) for n consecutive values from value i of the part on, until `count`
  // values from `begin` on are covered.
  template <class Body>
  void for_runs(int64_t begin, int64_t count, const Body& body) const {
    for (int64_t i = begin, end = begin + count; i < end;) {
      const int64_t n = consecutive() ? end - i : std::min(end - i, width - i % width);
      body(i, in_whole(i), n);
      i += n;
    }
  }
};

// Of a part in the checkpoint's tensor.
inline TensorCut cut_of(const Param& param, const Part& part) {
  const int64_t columns = param.whole_columns();
  return {part.row * columns + part.column, param.columns(), columns};
}

// The same in the parameter of a model on one rank, which has several tensors one after the other.
inline TensorCut cut_in_whole_param(const Param& param, const Part& part) {
  TensorCut cut = cut_of(param, part);
  cut.first += part.whole_first_row * cut.columns;
  return cut;
}

}  // namespace capstan
