#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace capstan {

// What Linux's control groups allow this process: the least of its own group and of those above,
// as a container or a batch system such as Slurm sets them. What has no value is not limited.
struct GroupLimits {
  std::optional<int64_t> memory;       // bytes
  std::optional<int64_t> memory_left;  // of these: files that the system would drop count as free
  std::optional<double> cores;         // that may be busy on average
};

// Of both versions of control groups, which a system may have side by side. `root` is another than
// "/" in tests.
GroupLimits group_limits(const std::filesystem::path& root = "/");

}  // namespace capstan
