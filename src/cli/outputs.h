#pragma once

#include "base/output_file.h"

// The kinds of files that commands write where their user says (run/run_folder.h has those of
// runs).
namespace capstan::cli {

inline constexpr OutputKind kPlanPage = {"a plan's page",
                                         "<!doctype html>\n<!-- A plan, by capstan plan"};
inline constexpr OutputKind kCalibrationFile = {"a calibration",
                                                R"({"format": "capstan calibration")"};
inline constexpr OutputKind kBugReport = {"a bug report", "# Bug report of capstan "};

}  // namespace capstan::cli
