#include "report/bar.h"

#include <array>
#include <cmath>

namespace capstan {

std::string block_bar(double fraction, int width) {
  static constexpr std::array<const char*, 8> kEighths{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double filled = fraction >= 1 ? 1 : (fraction > 0 ? fraction : 0);
  const int eighths = static_cast<int>(std::lround(filled * width * 8));
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += "█";
  bar += kEighths[static_cast<size_t>(eighths % 8)];
  const int used = eighths / 8 + (eighths % 8 > 0 ? 1 : 0);
  if (used < width) bar.append(static_cast<size_t>(width - used), ' ');
  return bar;
}

}  // namespace capstan
