#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace capstan {

// The limits of Linux control groups on this process: the minimum over its own group and all
// parents, as set by a container or a batch system such as Slurm. Fields without a value are not
// limited.
struct GroupLimits {
  std::optional<int64_t> memory;  // bytes
  std::optional<int64_t>
      memory_left;              // of these; file pages that the system can drop count as free
  std::optional<double> cores;  // average number of busy cores
};

// Reads both versions of control groups, which a system may have side by side. `root` differs from
// "/" only in tests.
GroupLimits group_limits(const std::filesystem::path& root = "/");

}  // namespace capstan
