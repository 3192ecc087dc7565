#include "base/subnormals.h"

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace capstan {
namespace {

void flush_in_this_thread() {
#if defined(__x86_64__)
  constexpr unsigned kFlushResults = 0x8000, kFlushOperands = 0x0040;
  _mm_setcsr(_mm_getcsr() | kFlushResults | kFlushOperands);
#elif defined(__aarch64__)
  constexpr uint64_t kFlush = uint64_t{1} << 24;
  uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" : : "r"(control | kFlush));
#endif
}

}  // namespace

void flush_subnormals() {
  flush_in_this_thread();
#pragma omp parallel
  flush_in_this_thread();
}

}  // namespace capstan
