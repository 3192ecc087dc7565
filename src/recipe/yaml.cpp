#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>

#include "base/error.h"
#include "recipe/recipe.h"

namespace capstan {
namespace {

// Walks a YAML file down to its values and collects what is wrong with them.
class YamlReader {
 public:
  YamlReader(Recipe& recipe, std::string path) : recipe_(recipe), path_(std::move(path)) {}

  void read() {
    YAML::Node root;
    try {
      root = YAML::LoadFile(path_);
    } catch (const YAML::BadFile&) {
      fail(Fault::file, "{}: cannot be opened", path_);
    } catch (const YAML::ParserException& e) {
      fail(Fault::usage, "{}:{}:{}: {}", path_, e.mark.line + 1, e.mark.column + 1, e.msg);
    }
    require(root.IsMap() || root.IsNull(), Fault::usage, "{}: expected keys and values", path_);
    walk(root, "");
    require(errors_.empty(), Fault::usage, "{}", fmt::join(errors_, "\n"));
  }

 private:
  void walk(const YAML::Node& node, const std::string& prefix) {
    for (const auto& entry : node) {
      const std::string key = prefix + entry.first.Scalar();
      if (entry.second.IsMap())
        walk(entry.second, key + ".");
      else if (!entry.second.IsNull())  // null: the default
        set(key, entry);
    }
  }

  template <class Entry>
  void set(const std::string& key, const Entry& entry) {
    const YAML::Mark at = entry.first.Mark();
    try {
      const Option& option = find_option(key);
      require(entry.second.IsScalar(), Fault::usage, "{}: expected one value, found a list", key);
      set_option(recipe_, option, entry.second.Scalar());
    } catch (const Error& e) {
      errors_.push_back(
          fmt::format("{}:{}:{}: {}", path_, at.line + 1, at.column + 1, e.what()));
    }
  }

  Recipe& recipe_;
  std::string path_;
  std::vector<std::string> errors_;
};

}  // namespace

void read_recipe(Recipe& recipe, const std::string& path) {
  require(!std::filesystem::is_directory(path), Fault::file,
          "{}: is a folder; give a YAML file", path);
  YamlReader(recipe, path).read();
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
