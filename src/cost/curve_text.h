#pragma once

#include <string>
#include <vector>

namespace capstan {

// What one choice has cost after 0, 1 … months, drawn with its mark.
struct CostCurve {
  char mark = '1';
  std::vector<double> dollars;
};

// The curves in letters, `height` lines high with the axis and `width` columns wide at most; months
// to the right, dollars up, from 0. Where several meet, the first is drawn. Empty without curves.
std::string curve_text(const std::vector<CostCurve>& curves, int width, int height);

}  // namespace capstan
