#pragma once

#include <cstdint>

namespace capstan {

// From here on, in the calling thread and in those of parallel_for: a number nearer to 0 than the
// least normal one (1.2e-38 for f32) is taken for 0, and a result that would be one is 0. x86
// processors take a hundred times as long for such numbers, and no result depends on them.
// Threads that these start later inherit it.
void flush_subnormals();

// While it lives, its thread computes with subnormal numbers again: for what others must be able to
// repeat bit by bit, such as the codes of quantized weights.
class ExactSubnormals {
 public:
  ExactSubnormals();
  ExactSubnormals(const ExactSubnormals&) = delete;
  ExactSubnormals& operator=(const ExactSubnormals&) = delete;
  ~ExactSubnormals();

 private:
  uint64_t before_;
};

}  // namespace capstan
