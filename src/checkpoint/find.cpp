#include "checkpoint/find.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoint/manifest.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

bool is_step_name(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  return name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
         name.find_first_not_of("0123456789", kPrefix.size()) == std::string_view::npos;
}

// The folders that may be checkpoints. A folder that a crash left between two renames counts under
// its final name.
std::vector<fs::path> candidates(const fs::path& out_dir) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(out_dir, error)) {
    std::string name = entry.path().filename();
    if (!entry.is_directory(error)) continue;
    constexpr std::string_view kReplaced = ".capstan-old";
    if (name.starts_with('.') && name.ends_with(kReplaced)) {
      name = name.substr(1, name.size() - 1 - kReplaced.size());
      if (fs::exists(out_dir / name, error)) continue;
    }
    if (is_checkpoint_name(name) && fs::exists(entry.path() / "training_state", error))
      found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool has_moments(const FoundCheckpoint& c) {
  std::error_code error;
  return fs::exists(c.dir / kOptimizerFile, error);
}

// Newest first. Checkpoints with an unreadable state go to `skipped`.
std::vector<FoundCheckpoint> by_step(const fs::path& out_dir, std::vector<std::string>& skipped) {
  std::vector<FoundCheckpoint> found;
  for (const fs::path& dir : candidates(out_dir)) {
    try {
      found.push_back({dir, read_state(dir)});
    } catch (const Error& e) {
      skipped.emplace_back(e.what());
    }
  }
  std::stable_sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
    if (a.state.step != b.state.step) return a.state.step > b.state.step;
    return has_moments(a) && !has_moments(b);
  });
  return found;
}

template <class Check>
bool passes(const Check& check, const fs::path& dir, std::vector<std::string>& skipped) {
  try {
    check(dir);
    return true;
  } catch (const Error& e) {
    skipped.emplace_back(e.what());
    return false;
  }
}

}  // namespace

bool is_checkpoint_name(std::string_view name) {
  return name == "final" || is_step_name(name);
}

CheckpointSearch newest_checkpoint(const fs::path& out_dir, int64_t enough) {
  CheckpointSearch search;
  int64_t damaged = -1;  // its steps
  for (FoundCheckpoint& c : by_step(out_dir, search.skipped)) {
    if (!has_moments(c) && c.state.step == damaged && damaged < enough) continue;
    if (!passes(verify_checkpoint, c.dir, search.skipped)) {
      damaged = c.state.step;
      continue;
    }
    search.newest = std::move(c);
    break;
  }
  return search;
}

void keep_last(const fs::path& out_dir, int count, const fs::path& own) {
  require(count >= 1, Fault::bug, "keep_last: {} checkpoints", count);
  remove_leftovers(out_dir);
  std::vector<std::string> damaged;
  std::vector<FoundCheckpoint> complete;
  // Checkpoints saved without moments are models: no run can resume from them.
  for (FoundCheckpoint& c : by_step(out_dir, damaged))
    if (passes(verify_sizes, c.dir, damaged) && has_moments(c)) complete.push_back(std::move(c));
  // Reads only the newest, unless it is damaged.
  const auto good = std::find_if(complete.begin(), complete.end(), [&](const FoundCheckpoint& c) {
    return passes(verify_checkpoint, c.dir, damaged);
  });
  for (const std::string& why : damaged) log::warn("{}", why);
  int kept = 0;
  for (auto c = complete.begin(); c != complete.end(); ++c) {
    if (!is_step_name(c->dir.filename().string()) || ++kept <= count || c <= good) continue;
    if (c->dir.filename() != own.filename()) remove_folder(c->dir);
  }
}

}  // namespace capstan
