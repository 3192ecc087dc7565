#pragma once

#include <string>

namespace capstan {

// Fills `fraction` of `width` columns in eighths of a block and pads with spaces: "██▌  ". Clamps
// the fraction to [0, 1]; NaN counts as 0.
std::string block_bar(double fraction, int width);

}  // namespace capstan
