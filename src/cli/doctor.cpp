#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/log.h"
#include "base/visible.h"
#include "cli/command_line.h"
#include "cli/outputs.h"
#include "cli/version.h"
#include "doctor/bug_report.h"
#include "doctor/doctor.h"

namespace capstan::cli {
namespace {

constexpr int kSomeProblem = 1;

void print_findings(const std::vector<Finding>& findings) {
  for (const Finding& f : findings)
    fmt::print("{:<8}{}: {}{}\n", name_of(f.severity), visible(f.about), visible(f.text),
               f.advice.empty() ? "" : fmt::format("; {}", f.advice));
}

void print_findings_json(const std::vector<Finding>& findings, int64_t problems) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& f : findings)
    list.push_back({{"severity", name_of(f.severity)},
                    {"about", f.about},
                    {"found", f.text},
                    {"advice", f.advice}});
  const nlohmann::ordered_json out = {{"problems", problems}, {"findings", list}};
  // A folder's name may not be UTF-8.
  cli::print_json(out);
}

}  // namespace

int doctor(const Arguments& arguments) {
  CommandLine line(
      "Checks what this machine offers for a run and what is wrong with it. Prints one line per "
      "finding: ok, note or problem, with advice. Exit code 0: no problem; 1: at least one.",
      "capstan doctor");
  std::string out_dir = "out";
  std::string report;
  bool json = false;
  line.option("--out_dir", out_dir,
              "output folder of a run: a 64 MiB file is written there (or in its nearest existing "
              "parent) and removed");
  line.flag("--json", json, "print JSON");
  line.option(
      "--report", report,
      "file for all that a bug report needs: the findings, this system, the environment, and "
      "the recipe, files and last measurements of the run in --out_dir; secrets are masked");
  if (!line.parse(arguments)) return 0;
  if (!report.empty()) require_output("--report", report, kBugReport);
  MachineFacts facts = look_at_machine(out_dir);
  facts.program.version = CAPSTAN_VERSION;
  facts.program.commit = CAPSTAN_COMMIT;
  facts.program.architectures = CAPSTAN_CUDA_ARCHITECTURES;
  const std::vector<Finding> findings = judge(facts);
  const int64_t problems = std::count_if(findings.begin(), findings.end(), [](const Finding& f) {
    return f.severity == Severity::problem;
  });
  if (json)
    print_findings_json(findings, problems);
  else
    print_findings(findings);
  if (!report.empty()) {
    write_text(report, bug_report(facts, findings, out_dir), 0600);
    log::info("the report is in {}; read it before you pass it on", report);
  }
  return problems == 0 ? 0 : kSomeProblem;
}

}  // namespace capstan::cli
