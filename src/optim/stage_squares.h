#pragma once

#include <span>
#include <vector>

#include "model/parameters.h"

namespace capstan {

// The sum of the squares of all gradients that the stages of a pipeline have. Every stage computes
// partial sums of its own; all stages add all of them, in the order of the parameters, and so get
// the bits of one device that has the whole model.
class StageSquares {
 public:
  // Allocates from the queue's arena, outside of a phase.
  StageSquares(Queue& q, const Parameters& params);

  // sum[0] += the sum. `gradients` are those of params.owned(), in that order.
  void add(Queue& q, Tensor sum, std::span<const Tensor> gradients) const;

 private:
  struct Run {  // of partial sums
    int64_t from, to, count;
  };

  Communicator stages_;
  int64_t own_ = 0;            // partial sums of this stage
  std::vector<Run> runs_;      // from `gathered_` to `ordered_`
  Buffer gathered_, ordered_;  // f64
};

}  // namespace capstan
