#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace capstan {

// A server as its site sees it.
struct GpuServer {
  std::string gpu;  // "h100-sxm"
  int64_t gpus = 8;
  double watts = 0;            // at most
  int64_t units = 8;           // of a rack: its height
  bool units_known = false;    // else they are assumed
  double port_gigabits = 100;  // that servers with such GPUs usually have for each of them
  std::string origin;          // of `watts`
};

// A GPU by its data sheet.
struct SiteGpu {
  std::string id;  // as in catalogue/gpus.yaml
  double watts = 0;
  int64_t bytes = 0;           // of its memory
  double port_gigabits = 100;  // of network, that servers usually have for each
};

// The server with so many of these GPUs. Its power is the maker's maximum of an 8-GPU server where
// that is known; with another number of GPUs it is in proportion. For other GPUs it is estimated as
// twice what they take: known servers take 1.8 to 2.0 times that. The height is that of an 8-GPU
// server, of this GPU where that is known.
GpuServer server_with(const SiteGpu& gpu, int64_t gpus);

// What the host of a server needs.
struct HostNeeds {
  int64_t ram_bytes = 0;  // as much as its GPUs have together
  int64_t cores = 0;      // GPUs x (workers + 1) + 4
};
HostNeeds host_needs(const SiteGpu& gpu, int64_t gpus, int64_t workers);

}  // namespace capstan
