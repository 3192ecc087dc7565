#include "machine/memory.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "base/control_group.h"
#include "base/process_limits.h"

namespace capstan {
namespace {

constexpr int64_t kUnknown = INT64_MAX;                // unknown: let the allocation decide
constexpr int64_t kDriversShare = int64_t{384} << 20;  // tensor/cuda/graphs.h has its share

int64_t machine_memory() {
  std::ifstream meminfo("/proc/meminfo");
  std::string name;
  int64_t kib = 0;
  while (meminfo >> name >> kib) {
    if (name == "MemAvailable:") return kib * 1024;
    meminfo.ignore(256, '\n');
  }
  return kUnknown;
}

}  // namespace

int64_t available_memory(Device device) {
  if (device == Device::cuda) return std::max<int64_t>(0, free_device_memory() - kDriversShare);
  int64_t least = std::min(machine_memory(), group_limits().memory_left.value_or(kUnknown));
  if (const auto left = process_limits().memory_left)
    least = std::clamp<int64_t>(*left - needed_beside_plan(), 0, least);
  return least;
}

int64_t left_to_cuda() {
  constexpr int64_t kContext = int64_t{512} << 20;  // 518 MiB on an H200
  return kContext + kDriversShare;
}

Room room_for(Device device) {
  if (device == Device::cuda) return {available_memory(device), available_memory(Device::cpu)};
  return {available_memory(device)};
}

bool fits(const RunPlan& plan, const Room& room) {
  return plan.device.total_bytes <= room.device && plan.host.total_bytes <= room.host;
}

}  // namespace capstan
