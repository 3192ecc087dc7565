#include "site/server.h"

#include <fmt/format.h>

namespace capstan {
namespace {

struct KnownServer {
  std::string_view gpu;
  double watts;
  int64_t units;
  std::string_view name;
};
// 8-GPU servers. Their heights, and the power of the A100's, are general knowledge.
constexpr KnownServer kServers[] = {{"a100-40-sxm", 6500, 6, "DGX A100"},
                                    {"a100-80-sxm", 6500, 6, "DGX A100"},
                                    {"h100-sxm", 10200, 8, "DGX H100"},
                                    {"h200", 10200, 8, "DGX H200"},
                                    {"b200", 14300, 10, "DGX B200"}};
constexpr int64_t kKnownGpus = 8;
constexpr double kServerPerGpuWatts = 2;

}  // namespace

GpuServer server_with(const SiteGpu& gpu, int64_t gpus) {
  GpuServer s;
  s.gpu = gpu.id;
  s.gpus = gpus;
  s.port_gigabits = gpu.port_gigabits;
  for (const KnownServer& known : kServers) {
    if (known.gpu != gpu.id) continue;
    s.watts = known.watts * static_cast<double>(gpus) / kKnownGpus;
    s.units = known.units;
    s.units_known = gpus == kKnownGpus;
    s.origin = gpus == kKnownGpus
                   ? fmt::format("the maximum of a {}", known.name)
                   : fmt::format("estimated: {}/{} of a {}", gpus, kKnownGpus, known.name);
    return s;
  }
  s.watts = kServerPerGpuWatts * gpu.watts * static_cast<double>(gpus);
  s.origin = "estimated: twice the power of its GPUs";
  return s;
}

HostNeeds host_needs(const SiteGpu& gpu, int64_t gpus, int64_t workers) {
  return {.ram_bytes = gpus * gpu.bytes, .cores = gpus * (workers + 1) + 4};
}

}  // namespace capstan
