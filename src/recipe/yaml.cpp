#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "recipe/recipe.h"

namespace capstan {
namespace {

// Walks a YAML file down to its values and collects what is wrong with them.
class YamlReader {
 public:
  YamlReader(Recipe& recipe, std::string path) : recipe_(recipe), path_(std::move(path)) {}

  std::set<std::string> read() {
    YAML::Node root;
    try {
      root = YAML::LoadFile(path_);
    } catch (const YAML::BadFile&) {
      fail(Fault::file, "{}: cannot be opened", path_);
    } catch (const YAML::Exception& e) {
      fail(Fault::usage, "{}:{}:{}: {}", path_, e.mark.line + 1, e.mark.column + 1, e.msg);
    }
    require(root.IsMap() || root.IsNull(), Fault::usage, "{}: expected keys and values", path_);
    walk(root, "", 1);
    require(errors_.empty(), Fault::usage, "{}", fmt::join(errors_, "\n"));
    return given_;
  }

 private:
  // No key has more parts than this. An alias can put a map inside itself, so there must be an end.
  static constexpr int kDeepest = 4;

  void walk(const YAML::Node& node, const std::string& prefix, int depth) {
    for (const auto& entry : node) {
      const YAML::Mark at = entry.first.Mark();
      try {
        require(entry.first.IsScalar(), Fault::usage, "expected a key, found a list or a map");
        const std::string key = prefix + entry.first.Scalar();
        if (entry.second.IsMap() && depth < kDeepest)
          walk(entry.second, key + ".", depth + 1);
        else if (!(entry.second.IsNull() && is_section(key)))
          set(key, entry.second);
      } catch (const Error& e) {
        errors_.push_back(fmt::format("{}:{}:{}: {}", path_, at.line + 1, at.column + 1, e.what()));
      }
    }
  }

  void set(const std::string& key, const YAML::Node& value) {
    const Option& option = find_option(key);
    require(seen_.insert(key).second, Fault::usage, "{}: given twice", key);
    if (value.IsNull()) return;
    given_.insert(key);
    require(value.IsScalar(), Fault::usage, "{}: expected one value, found a list", key);
    set_option(recipe_, option, value.Scalar());
  }

  static bool is_section(const std::string& key) {
    const auto all = options();
    return std::any_of(all.begin(), all.end(), [&](const Option& o) {
      return std::string_view(o.key).starts_with(key + ".");
    });
  }

  Recipe& recipe_;
  std::string path_;
  std::set<std::string> seen_, given_;  // given_: with a value
  std::vector<std::string> errors_;
};

}  // namespace

std::set<std::string> read_recipe(Recipe& recipe, const std::string& path) {
  std::error_code error;
  require(!std::filesystem::is_directory(path, error), Fault::file,
          "{}: is a folder; give a YAML file", path);
  return YamlReader(recipe, path).read();
}

std::string recipe_yaml(const Recipe& recipe) {
  // A key that has keys below it ("optimizer", "optimizer.lr") cannot be a YAML map as well, so all
  // keys are written flat; read_recipe takes both forms.
  std::string text;
  for (const Option& o : options()) {
    const std::string value = value_of(recipe, o);
    const bool quoted = std::holds_alternative<std::string Recipe::*>(o.field);
    YAML::Emitter out;
    if (quoted)
      out << YAML::DoubleQuoted << value;
    else
      out << value;
    text += fmt::format("{}: {}\n", o.key, out.c_str());
  }
  return text;
}

}  // namespace capstan
