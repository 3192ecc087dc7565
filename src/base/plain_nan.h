#pragma once

#include <limits>

namespace capstan {

// The number; a NaN without the sign that 0/0 gives it, which would be printed as "-nan".
inline double plain_nan(double x) {
  return x == x ? x : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace capstan
