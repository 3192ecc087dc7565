#pragma once

#include <string>

namespace capstan {

inline constexpr int kWidestBar = 24, kNarrowestBar = 4;  // columns, of a bar beside text

// Fills `fraction` of `width` columns in eighths of a block and pads with spaces: "██▌  ". Clamps
// the fraction to [0, 1]; NaN counts as 0.
std::string block_bar(double fraction, int width);

// "02:41", "1:02:41": tqdm's format, shorter than format_duration for short times; "?" for a time
// that is negative or not finite.
std::string clock_text(double seconds);
// "812", "3.1k", "50.0M"
std::string short_count(double n);

}  // namespace capstan
