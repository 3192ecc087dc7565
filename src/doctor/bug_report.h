#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "doctor/facts.h"
#include "doctor/findings.h"

namespace capstan {

// All that somebody who looks into a fault needs, as one text (Markdown): the program and its
// libraries, the findings, the system, the limits of the process, the variables of the environment
// that change a run, and of the run in `out_dir`, if there is one, its recipe, files, last
// measurements and marks of an end that did not come. Secrets are masked (doctor/secrets.h).
// No data and no weights. Missing parts are said to be missing.
std::string bug_report(const MachineFacts& facts, const std::vector<Finding>& findings,
                       const std::filesystem::path& out_dir);

}  // namespace capstan
