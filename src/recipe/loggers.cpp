#include "recipe/loggers.h"

#include <algorithm>

#include "base/names.h"
#include "base/text.h"
#include "recipe/scalars.h"

namespace capstan {

std::optional<Loggers> Loggers::parse(std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']') && text.size() > 1)
    text = text.substr(1, text.size() - 2);
  Loggers loggers;
  loggers.kinds.clear();
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    const auto kind = value_named<Logger>(trimmed(text.substr(0, comma), " "));
    if (!kind) return std::nullopt;
    if (!loggers.has(*kind)) loggers.kinds.push_back(*kind);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return loggers;
}

std::vector<std::string> Loggers::choices() {
  const auto names = names_of<Logger>();
  return {names.begin(), names.end()};
}

std::string Loggers::text() const {
  std::string list;
  for (const Logger kind : kinds) list += (list.empty() ? "" : ", ") + std::string(name_of(kind));
  return kinds.size() == 1 ? list : "[" + list + "]";
}

bool Loggers::has(Logger kind) const {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

}  // namespace capstan
