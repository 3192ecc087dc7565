#include "recipe/recipe_yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>

#include "recipe/values.h"

namespace capstan {
namespace {

std::string quoted(const Option& option, const std::string& value) {
  if (!is_string(option) || (can_be_null(option) && value == "null")) return value;
  YAML::Emitter out;
  out << YAML::DoubleQuoted << value;
  const bool plain = std::all_of(value.begin(), value.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  });
  // A plain word would come back the same, but for those that YAML takes for something else.
  const bool word = plain && value != "null" && value != "true" && value != "false";
  return word ? value : out.c_str();
}

}  // namespace

std::vector<YamlLine> yaml_lines(const Recipe& recipe, Task task) {
  std::vector<YamlLine> lines;
  std::string section;
  for (const Option& o : options()) {
    if (!o.used_by(task)) continue;
    const std::string key = o.key;
    const size_t dot = key.find('.');
    const std::string value = quoted(o, value_of(recipe, o));
    if (key == "data" || key == "optimizer") {
      lines.push_back({key + ":", nullptr});
      lines.push_back({fmt::format("  class_path: {}", value), &o});
      lines.push_back({"  init_args:", nullptr});
      section = key;
      continue;
    }
    const std::string here = dot == std::string::npos ? "" : key.substr(0, dot);
    if (here != section && !here.empty()) lines.push_back({here + ":", nullptr});
    section = here;
    const char* indent = here.empty() ? "" : here == "data" || here == "optimizer" ? "    " : "  ";
    lines.push_back(
        {fmt::format("{}{}: {}", indent, key.substr(here.empty() ? 0 : dot + 1), value), &o});
  }
  return lines;
}

std::string recipe_yaml(const Recipe& recipe, Task task) {
  std::string text;
  for (const YamlLine& line : yaml_lines(recipe, task))
    if (line.option == nullptr || !line.option->mesh) text += line.text + "\n";
  return text;
}

}  // namespace capstan
