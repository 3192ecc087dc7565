#include "base/subnormals.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace capstan {
namespace {

// The floating-point control register of a thread, and its bits for subnormal numbers.
#if defined(__x86_64__)
constexpr uint64_t kFlush = 0x8000 | 0x0040;  // results, operands
uint64_t control() {
  return _mm_getcsr();
}
void set_control(uint64_t bits) {
  _mm_setcsr(static_cast<unsigned>(bits));
}
#elif defined(__aarch64__)
constexpr uint64_t kFlush = uint64_t{1} << 24;
uint64_t control() {
  uint64_t bits = 0;
  asm volatile("mrs %0, fpcr" : "=r"(bits));
  return bits;
}
void set_control(uint64_t bits) {
  asm volatile("msr fpcr, %0" : : "r"(bits));
}
#else
constexpr uint64_t kFlush = 0;
uint64_t control() {
  return 0;
}
void set_control(uint64_t) {}
#endif

}  // namespace

void flush_subnormals() {
  set_control(control() | kFlush);
#pragma omp parallel
  set_control(control() | kFlush);
}

ExactSubnormals::ExactSubnormals() : before_(control()) {
  set_control(before_ & ~kFlush);
}
ExactSubnormals::~ExactSubnormals() {
  set_control(before_);
}

}  // namespace capstan
