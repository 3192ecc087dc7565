#include "train/kept_input.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/units.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

std::string all_of_stdin() {
  std::string text;
  std::vector<char> block(1 << 20);
  while (const size_t n = std::fread(block.data(), 1, block.size(), stdin))
    text.append(block.data(), n);
  require(std::ferror(stdin) == 0, Fault::file, "standard input: cannot be read");
  return text;
}

bool has_checkpoints(const fs::path& out_dir) {
  std::error_code error;
  for (fs::directory_iterator it(out_dir, error), end; !error && it != end; it.increment(error))
    if (const std::string name = it->path().filename().string();
        name == "final" || name.starts_with("step-"))
      return true;
  return false;
}

}  // namespace

Recipe with_kept_input(const Recipe& recipe, bool receives) {
  if (recipe.json_path != "-") return recipe;
  Recipe r = recipe;
  const fs::path kept = fs::path(r.out_dir) / "stdin.jsonl";
  r.json_path = kept.string();
  if (!receives) return r;
  std::error_code error;
  const std::string records = isatty(STDIN_FILENO) == 0 ? all_of_stdin() : "";
  require(!records.empty() || fs::exists(kept, error), Fault::usage,
          "data.json_path: - reads records from standard input, but nothing came from there; pipe "
          "them in, as JSON lines");
  if (records.empty()) {
    log::say("nothing came from standard input: going on with {}", kept.string());
    return r;
  }
  if (fs::exists(kept, error) && read_text(kept, INT64_MAX) != records) {
    require(r.resume.mode == Resume::Mode::off || !has_checkpoints(r.out_dir), Fault::usage,
            "{}: has other records than those that came from standard input; to resume the run "
            "with them, give it no input (</dev/null), or choose another --out_dir",
            kept.string());
    fs::path aside;
    for (int n = 1; aside.empty() || fs::exists(aside, error); ++n)
      aside = fs::path(r.out_dir) / fmt::format("stdin-{}.jsonl", n);
    fs::rename(kept, aside);
    log::say("moved the records of an earlier run to {}", aside.string());
  }
  write_text(kept, records);
  log::say("{} of records from standard input, kept in {}",
           format_bytes(static_cast<int64_t>(records.size())), kept.string());
  return r;
}

}  // namespace capstan
