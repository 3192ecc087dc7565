#pragma once

#include <functional>

namespace capstan {

// While it lives, evaluate() on this thread calls `go_on` after each micro-batch, and ends early if
// that returns false: then its result means nothing. Among several ranks, `go_on` must give all of
// them the same answer after the same micro-batch.
class EvaluationWatch {
 public:
  explicit EvaluationWatch(std::function<bool()> go_on);
  ~EvaluationWatch();
  EvaluationWatch(const EvaluationWatch&) = delete;
  EvaluationWatch& operator=(const EvaluationWatch&) = delete;

 private:
  std::function<bool()> before_;
};

}  // namespace capstan
