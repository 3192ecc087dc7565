#pragma once

#include <string>
#include <vector>

#include "report/metrics.h"
#include "report/summary.h"

namespace capstan {

// A run on one page of HTML: the verdict, the loss curve, the numbers, memory by category as
// planned and measured, the longest ops, the recipe and samples of text. Needs no other file,
// script or network; follows the reader's light or dark setting and prints. All texts are escaped.
std::string report_html(const RunSummary& run, const std::vector<MetricsRow>& rows);

}  // namespace capstan
