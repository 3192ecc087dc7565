#include "recipe/device_count.h"

namespace capstan {

std::optional<DeviceCount> DeviceCount::parse(std::string_view text) {
  if (text == "auto") return DeviceCount{.automatic = true};
  const auto count = whole_number_of(text);
  if (!count || *count < 0) return std::nullopt;
  return DeviceCount{.count = *count};
}

}  // namespace capstan
