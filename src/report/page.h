#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/metrics.h"
#include "report/summary.h"

namespace capstan {

// How every such page begins.
inline constexpr std::string_view kReportBegin =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
    "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
    "'unsafe-inline'\"/>\n";

// A run on one page of HTML: verdict, loss curve, numbers, planned and measured memory by category,
// the slowest ops, the recipe, and generated samples. Needs no other file, script or network;
// follows the reader's light or dark setting and prints well. All texts are escaped.
std::string report_html(const RunSummary& run, const std::vector<MetricsRow>& rows);

}  // namespace capstan
