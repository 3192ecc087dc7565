#include "report/trackers/machine_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

namespace capstan {
namespace {

struct Megabytes {
  double total = 0, available = 0;
};
Megabytes memory_megabytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  double value = 0;
  Megabytes memory;
  while (file >> key >> value && std::getline(file, unit)) {
    if (key == "MemTotal:") memory.total = 1024 * value / 1e6;  // it counts in KiB
    if (key == "MemAvailable:") memory.available = 1024 * value / 1e6;
  }
  return memory;
}

}  // namespace

MachineLoad::Ticks MachineLoad::ticks() {
  std::ifstream file("/proc/stat");
  std::string word;
  Ticks sum;
  double value = 0;
  file >> word;
  for (int i = 0; i < 8 && file >> value; ++i) {
    sum.total += value;
    if (i == 3 || i == 4) sum.idle += value;
  }
  return sum;
}

std::vector<std::pair<std::string, double>> MachineLoad::now() {
  std::vector<std::pair<std::string, double>> load;
  const Ticks here = ticks();
  const double passed = here.total - before_.total, idle = here.idle - before_.idle;
  before_ = here;
  if (passed > 0) load.emplace_back("cpu_utilization_percentage", 100 * (1 - idle / passed));
  if (const Megabytes memory = memory_megabytes(); memory.total > 0) {
    load.emplace_back("system_memory_usage_megabytes", memory.total - memory.available);
    load.emplace_back("system_memory_usage_percentage",
                      100 * (1 - memory.available / memory.total));
  }
  for (int card = 0; card < cards_.count(); ++card) {
    const GpuReading reading = cards_.read(card, false);
    const std::string gpu = fmt::format("gpu_{}_", card);
    if (reading.busy) load.emplace_back(gpu + "utilization_percentage", 100 * *reading.busy);
    if (reading.watts) load.emplace_back(gpu + "power_usage_watts", *reading.watts);
    if (!reading.memory) continue;
    const auto used = static_cast<double>(reading.memory->used);
    const auto total = static_cast<double>(std::max<int64_t>(1, reading.memory->total));
    load.emplace_back(gpu + "memory_usage_megabytes", used / 1e6);
    load.emplace_back(gpu + "memory_usage_percentage", 100 * used / total);
  }
  return load;
}

}  // namespace capstan
