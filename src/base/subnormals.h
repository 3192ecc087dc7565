#pragma once

#include <cstdint>

namespace capstan {

// Turns on flush-to-zero in the calling thread and those of parallel_for: numbers below the
// smallest normal one (1.2e-38 for f32) count as 0, as operands and as results. x86 processors are
// a hundred times slower on such numbers, and no result depends on them. Threads that these start
// later inherit the setting.
void flush_subnormals();

// Turns off flush-to-zero in its thread while it lives: for results that others must be able to
// reproduce bit by bit, such as the codes of quantized weights.
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
