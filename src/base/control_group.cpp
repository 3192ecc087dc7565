#include "base/control_group.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

namespace capstan {
namespace {

namespace fs = std::filesystem;

// "max" or -1 in a file means no limit: neither is a number above 0.
template <class T>
std::optional<T> number_in(const fs::path& file) {
  T value = 0;
  if (std::ifstream(file) >> value && value > 0) return value;
  return std::nullopt;
}

template <class T>
void lower(std::optional<T>& to, const std::optional<T>& value) {
  if (value) to = std::min(*value, to.value_or(*value));
}

// The number after a name in memory.stat; 0 if missing.
int64_t count_in(const fs::path& file, std::string_view wanted) {
  std::ifstream in(file);
  std::string name;
  int64_t bytes = 0;
  while (in >> name >> bytes)
    if (name == wanted) return bytes;
  return 0;
}

// The file names of the two versions for the same values.
struct Names {
  const char *limit, *used, *droppable;
};
constexpr Names kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr Names kVersion2{"memory.max", "memory.current", "inactive_file"};

void read_memory_limit(const fs::path& group, const Names& names, GroupLimits& limits) {
  // Version 1 reports no limit as a number larger than any machine.
  constexpr int64_t kNone = int64_t{1} << 62;
  const auto limit = number_in<int64_t>(group / names.limit);
  if (!limit || *limit >= kNone) return;
  lower(limits.memory, limit);
  const int64_t used = number_in<int64_t>(group / names.used).value_or(0);
  const int64_t left = *limit - used + count_in(group / "memory.stat", names.droppable);
  lower(limits.memory_left, std::optional(std::clamp<int64_t>(left, 0, *limit)));
}

void read_core_limit(const fs::path& group, GroupLimits& limits) {
  double quota = 0, period = 0;
  if (std::ifstream(group / "cpu.max") >> quota >> period && period > 0)  // version 2
    lower(limits.cores, std::optional(quota / period));
  const auto of_1 = number_in<double>(group / "cpu.cfs_quota_us");
  const auto in_1 = number_in<double>(group / "cpu.cfs_period_us");
  if (of_1 && in_1) lower(limits.cores, std::optional(*of_1 / *in_1));
}

// Calls look(group) for the group at `path` below `top`, for its parents, and for the top itself,
// which may be all that a container sees.
template <class Look>
void for_each_group(const fs::path& top, std::string_view path, const Look& look) {
  for (fs::path group = fs::path(path).relative_path(); !group.empty(); group = group.parent_path())
    look(top / group);
  look(top);
}

}  // namespace

GroupLimits group_limits(const fs::path& root) {
  GroupLimits limits;
  const fs::path top = root / "sys/fs/cgroup";
  std::ifstream membership(root / "proc/self/cgroup");
  // "0::/path" in version 2, "4:memory:/path" and "3:cpu,cpuacct:/path" in version 1.
  for (std::string line; std::getline(membership, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string kinds = line.substr(first + 1, second - first - 1);
    const std::string_view path = std::string_view(line).substr(second + 1);
    const std::string all = "," + kinds + ",";
    if (kinds.empty())
      for_each_group(top, path, [&](const fs::path& group) {
        read_memory_limit(group, kVersion2, limits);
        read_core_limit(group, limits);
      });
    // With several controllers, the folder may list them in another order, with a link for each.
    if (all.find(",memory,") != std::string::npos)
      for_each_group(top / "memory", path,
                     [&](const fs::path& group) { read_memory_limit(group, kVersion1, limits); });
    if (all.find(",cpu,") != std::string::npos)
      for (const std::string& folder : {kinds, std::string("cpu")})
        for_each_group(top / folder, path,
                       [&](const fs::path& group) { read_core_limit(group, limits); });
  }
  return limits;
}

}  // namespace capstan
