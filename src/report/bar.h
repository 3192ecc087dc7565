#pragma once

#include <string>

namespace capstan {

// `fraction` of `width` columns in eighths of a block, filled up with spaces: "██▌  ". A fraction
// outside [0, 1] is taken for the nearer end; NaN for 0.
std::string block_bar(double fraction, int width);

}  // namespace capstan
