#include "recipe/devices.h"

#include <fmt/ranges.h>

#include "base/text.h"
#include "recipe/scalars.h"

namespace capstan {

std::optional<Devices> Devices::parse(std::string_view text) {
  if (text == "auto") return Devices{.automatic = true};
  const bool brackets = text.starts_with('[') && text.ends_with(']') && text.size() > 1;
  if (!brackets && text.find(',') == std::string_view::npos) {
    const auto count = whole_number_of(text);
    if (!count || *count < 0) return std::nullopt;
    return Devices{.count = *count};
  }
  if (brackets) text = text.substr(1, text.size() - 2);
  Devices listed;
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    const auto gpu = whole_number_of(trimmed(text.substr(0, comma)));
    if (!gpu || *gpu < 0) return std::nullopt;
    listed.gpus.push_back(*gpu);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  listed.count = std::ssize(listed.gpus);
  return listed;
}

std::string Devices::text() const {
  if (automatic) return "auto";
  return gpus.empty() ? std::to_string(count) : fmt::format("[{}]", fmt::join(gpus, ", "));
}

}  // namespace capstan
