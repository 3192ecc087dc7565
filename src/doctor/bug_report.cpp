#include "doctor/bug_report.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "base/units.h"
#include "doctor/secrets.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

std::string section(std::string_view title, std::string_view body) {
  return fmt::format("\n## {}\n\n```\n{}{}```\n", title, body.empty() ? "nothing\n" : body,
                     body.empty() || body.ends_with('\n') ? "" : "\n");
}

// The text of a small file that may be missing.
std::string text_of(const fs::path& file, int64_t most = 1 << 20) {
  std::error_code error;
  if (!fs::exists(file, error)) return "";
  try {
    return read_text(file, most);
  } catch (const Error& e) {
    return fmt::format("{}\n", e.what());
  }
}

std::string last_lines(const std::string& text, size_t lines) {
  size_t at = text.size();
  for (size_t i = 0; i <= lines && at != std::string::npos && at > 0; ++i)
    at = text.rfind('\n', at - 1);
  return at == std::string::npos || at == 0 ? text : text.substr(at + 1);
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& f : findings)
    text += fmt::format("{:<8}{}: {}{}\n", name_of(f.severity), f.about, f.text,
                        f.advice.empty() ? "" : "; " + f.advice);
  return text;
}

std::string system_text() {
  utsname name{};
  ::uname(&name);
  std::string text =
      fmt::format("{} {} {} {}\n", name.sysname, name.release, name.version, name.machine);
  for (const char* key : {"PRETTY_NAME=", "VERSION_ID="}) {
    const std::string release = text_of("/etc/os-release");
    if (const size_t at = release.find(key); at != std::string::npos)
      text += release.substr(at, release.find('\n', at) - at) + "\n";
  }
  const std::string load = text_of("/proc/loadavg");
  return text + "load " + (load.empty() ? "unknown\n" : load);
}

std::string limits_text() {
  struct Limit {
    __rlimit_resource resource;
    const char* name;
  };
  constexpr std::array<Limit, 7> kLimits = {{{RLIMIT_AS, "address space"},
                                             {RLIMIT_DATA, "data"},
                                             {RLIMIT_FSIZE, "file size"},
                                             {RLIMIT_NPROC, "processes and threads"},
                                             {RLIMIT_NOFILE, "open files"},
                                             {RLIMIT_MEMLOCK, "locked memory"},
                                             {RLIMIT_STACK, "stack"}}};
  std::string text;
  for (const Limit& l : kLimits) {
    rlimit found{};
    if (::getrlimit(l.resource, &found) != 0) continue;
    text +=
        fmt::format("{:<24}{}\n", l.name,
                    found.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(found.rlim_cur));
  }
  return text;
}

// What changes a run: not the user's whole environment.
std::string environment_text(const std::string& home) {
  constexpr std::string_view kBeginnings[] = {
      "CAPSTAN_", "OMP_",   "OPENBLAS_", "GOMP_", "MKL_",    "CUDA_",    "NVIDIA_",
      "NCCL_",    "OMPI_",  "PMIX_",     "PMI_",  "PRTE_",   "SLURM_",   "HF_",
      "MLFLOW_",  "WANDB_", "XDG_",      "LD_",   "MALLOC_", "LC_",      "LANG",
      "CURL_",    "SSL_",   "http",      "HTTP",  "TERM",    "NO_COLOR", "TMPDIR"};
  std::vector<std::string> lines;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t name = text.find('=');
    if (name == std::string_view::npos ||
        std::none_of(std::begin(kBeginnings), std::end(kBeginnings),
                     [&](auto b) { return text.starts_with(b); }))
      continue;
    const bool secret = names_secret(text.substr(0, name));
    lines.push_back(secret ? fmt::format("{}=***", text.substr(0, name)) : masked(text, home));
  }
  std::sort(lines.begin(), lines.end());
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

std::string files_text(const fs::path& folder) {
  constexpr size_t kMostShown = 200;
  std::vector<std::string> lines;
  std::error_code error;
  for (auto i = fs::recursive_directory_iterator(folder, error);
       !error && i != fs::recursive_directory_iterator(); i.increment(error)) {
    const bool is_file = i->is_regular_file(error);
    lines.push_back(fmt::format("{:>14} {}{}", is_file ? std::to_string(i->file_size(error)) : "",
                                i->path().lexically_relative(folder).string(), is_file ? "" : "/"));
  }
  std::sort(lines.begin(), lines.end(),
            [](const auto& a, const auto& b) { return a.substr(15) < b.substr(15); });
  std::string all;
  for (size_t i = 0; i < std::min(lines.size(), kMostShown); ++i) all += lines[i] + "\n";
  if (lines.size() > kMostShown) all += fmt::format("and {} more\n", lines.size() - kMostShown);
  return all;
}

// The newest file of that name below the folder.
fs::path newest(const fs::path& folder, std::string_view name) {
  fs::path found;
  fs::file_time_type when;
  std::error_code error;
  for (auto i = fs::recursive_directory_iterator(folder, error);
       !error && i != fs::recursive_directory_iterator(); i.increment(error)) {
    if (i->path().filename() != name) continue;
    const auto changed = i->last_write_time(error);
    if (!error && (found.empty() || changed > when)) {
      found = i->path();
      when = changed;
    }
  }
  return found;
}

std::string run_text(const fs::path& out_dir, const std::string& home) {
  std::error_code error;
  if (!fs::is_directory(out_dir, error)) return "";
  constexpr size_t kLines = 40;
  std::string text = section("Files of " + out_dir.string(), files_text(out_dir));
  if (const fs::path recipe = newest(out_dir, "hyperparameters.yaml"); !recipe.empty())
    text += section("Recipe: " + recipe.string(), text_of(recipe));
  if (const fs::path metrics = newest(out_dir, "metrics.csv"); !metrics.empty()) {
    const std::string all = text_of(metrics, 256 << 20);
    text += section("Measurements: the end of " + metrics.string(),
                    all.substr(0, all.find('\n') + 1) +
                        (std::count(all.begin(), all.end(), '\n') > static_cast<long>(kLines)
                             ? "…\n" + last_lines(all, kLines)
                             : all.substr(std::min(all.find('\n') + 1, all.size()))));
  }
  return masked(text, home);
}

}  // namespace

std::string bug_report(const MachineFacts& facts, const std::vector<Finding>& findings,
                       const fs::path& out_dir) {
  const std::string home = environment_value("HOME");
  const ProgramFacts& p = facts.program;
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::string text = fmt::format(
      "# Bug report of capstan {}\n\n"
      "Made on {:04}-{:02}-{:02} {:02}:{:02} UTC by 'capstan doctor --report'. Passwords, tokens "
      "and "
      "keys are masked; read it before you pass it on.\n\n"
      "What did you do, what did you expect, what happened? Write it here, with the command and "
      "its "
      "output.\n",
      p.version, utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min);
  text +=
      section("Program", fmt::format("capstan {} ({})\ncompiler: {}\nCUDA: {}\nBLAS: {}\nICU: {}\n"
                                     "threads: {}\n",
                                     p.version, p.commit, __VERSION__,
                                     p.cuda ? "kernels for " + p.architectures : "built without",
                                     p.blas, p.icu.empty() ? "built without" : p.icu, p.threads));
  text += section("Findings", masked(findings_text(findings), home));
  text += section("System", system_text());
  text += section("Limits of a process", limits_text());
  text += section("Environment", environment_text(home));
  const std::string run = run_text(out_dir, home);
  return text + (run.empty() ? fmt::format("\nThere is no run in {}; --out_dir names one.\n",
                                           masked(out_dir.string(), home))
                             : run);
}

}  // namespace capstan
