#include "report/markup.h"

#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace capstan {
namespace {

// nlohmann's writer replaces invalid UTF-8 by U+FFFD; its reader undoes the escapes.
std::string valid_utf8(std::string_view text) {
  const std::string quoted =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return parse_json(quoted, "the text").get<std::string>();
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string out;
  for (const char c : valid_utf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default:
        if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f)
          out += "\xef\xbf\xbd";
        else
          out += c;
    }
  }
  return out;
}

}  // namespace capstan
