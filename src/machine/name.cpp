#include "machine/name.h"

#include <unistd.h>

#include <fmt/format.h>
#include <array>

#include <fstream>

#include "base/parallel.h"
#include "base/units.h"

namespace capstan {
namespace {

// The value of the first line "NAME : value" in a file such as /proc/cpuinfo.
std::string line_of(const char* file, std::string_view name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(name) || colon == std::string::npos) continue;
    const size_t from = line.find_first_not_of(" \t", colon + 1);
    return from == std::string::npos ? "" : line.substr(from);
  }
  return "";
}

}  // namespace

std::string cpu_model() {
  for (const char* name : {"model name", "Model", "CPU implementer"})
    if (const std::string found = line_of("/proc/cpuinfo", name); !found.empty())
      return std::string_view(name) == "CPU implementer" ? "ARM, implementer " + found : found;
  return "unknown";
}

std::string machine_name(Device device) {
  if (device == Device::cuda) return device_name(device);
  return fmt::format("{}, {}", cpu_model(), count(num_threads(), "thread"));
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

}  // namespace capstan
