#include "report/put_aside.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "report/growing_file.h"

namespace capstan {

namespace fs = std::filesystem;

fs::path put_aside(const fs::path& path) {
  std::error_code error;
  fs::path aside = path.string() + kAsideSuffix;
  for (int n = 2; fs::exists(fs::symlink_status(aside, error)); ++n)
    aside = fmt::format("{}{}-{}", path.string(), kAsideSuffix, n);
  fs::rename(path, aside, error);
  require(!error, Fault::file, "{}: cannot rename to {}: {}", path.string(), aside.string(),
          error.message());
  return aside;
}

bool is_put_aside(const fs::path& path) {
  const std::string name = path.filename().string();
  const size_t at = name.rfind(kAsideSuffix);
  if (at == std::string::npos) return false;
  const std::string number = name.substr(at + std::string_view(kAsideSuffix).size());
  return number.empty() || (number[0] == '-' && number.size() > 1 &&
                            number.find_first_not_of("0123456789", 1) == std::string::npos);
}

void move_bad_lines(const fs::path& file, const std::vector<BadLine>& lines) {
  if (lines.empty()) return;
  constexpr size_t kShown = 3;
  GrowingFile aside(file.string() + kAsideSuffix, 0);
  for (const BadLine& line : lines) aside.append(line.text + "\n");
  aside.sync();
  for (size_t i = 0; i < std::min(kShown, lines.size()); ++i)
    log::warn("{}; moved the line to {}", lines[i].why, aside.path().string());
  if (lines.size() > kShown)
    log::warn("moved {} more lines to {}", lines.size() - kShown, aside.path().string());
}

}  // namespace capstan
