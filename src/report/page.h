#pragma once

#include <string>
#include <vector>

#include "report/metrics.h"
#include "report/summary.h"

namespace capstan {

// A run on one page of HTML: verdict, loss curve, numbers, planned and measured memory by category,
// the slowest ops, the recipe, and generated samples. Needs no other file, script or network;
// follows the reader's light or dark setting and prints well. All texts are escaped.
std::string report_html(const RunSummary& run, const std::vector<MetricsRow>& rows);

}  // namespace capstan
