#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "recipe/keys.h"
#include "recipe/recipe_input.h"
#include "recipe/recipe_yaml.h"
#include "recipe/values.h"

namespace capstan {
namespace {

// No key has more parts than this. An alias can put a map inside itself, so there must be an end.
constexpr int kDeepest = 4;
// Aliases also make many keys of few.
constexpr size_t kMostKeys = 10'000;

struct Entry {
  std::string key;
  YAML::Node value;
  std::string place;
};

bool is_section(const std::string& key) {
  const auto all = options();
  return key.ends_with(".init_args") || key == "model_config" || key == "log" ||
         key == "log.metadata" || key == "data.init_args.columns" ||
         std::any_of(all.begin(), all.end(), [&](const Option& o) {
           return std::string_view(o.key).starts_with(key + ".");
         });
}

void flatten(const YAML::Node& node, const std::string& prefix, int depth, const std::string& file,
             size_t& keys, std::vector<Entry>& entries, RecipeInput& input) {
  for (const auto& entry : node) {
    require(++keys <= kMostKeys, Fault::usage, "{}: expected a recipe, found more than {} keys",
            file, kMostKeys);
    const YAML::Mark at = entry.first.Mark();
    const std::string place = fmt::format("{}:{}:{}", file, at.line + 1, at.column + 1);
    if (!entry.first.IsScalar()) {
      input.add_error(fmt::format("{}: expected a key, found a list or a map", place));
      continue;
    }
    const std::string key = prefix + entry.first.Scalar();
    const bool is_class = key.ends_with(".prompt_style");  // or the name of one
    if (entry.second.IsMap() && depth < kDeepest && (is_class || is_section(key)))
      flatten(entry.second, key + ".", depth + 1, file, keys, entries, input);
    else if (!(entry.second.IsNull() && is_section(key)))
      entries.push_back({key, entry.second, place});
  }
}

// What comes after a recipe in its file.
class Rest final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override { begin = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { note(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                const std::string&) override {
    note(mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    note(mark);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    note(mark);
  }
  void OnMapEnd() override {}

  YAML::Mark begin;
  std::optional<YAML::Mark> content;

 private:
  void note(const YAML::Mark& mark) {
    if (!content) content = mark;
  }
};

// A file may have several documents, divided by "---"; a recipe is one. (Not by YAML::LoadAll,
// which does not end where a document cannot.)
void refuse_rest(const std::string& text, const std::string& file, RecipeInput& input) {
  std::istringstream in(text);
  YAML::Parser parser(in);
  Rest recipe, rest;
  if (!parser.HandleNextDocument(recipe) || !parser.HandleNextDocument(rest)) return;
  const auto at = static_cast<size_t>(std::max(rest.begin.pos, 0));
  if (rest.content)
    input.add_error(
        fmt::format("{}:{}: expected one recipe, found a second after '---'; put it "
                    "into a file of its own, and give both with --config",
                    file, rest.content->line + 1));
  else if (at >= text.size() || text.compare(at, 3, "---") != 0)
    input.add_error(fmt::format("{}:{}:{}: expected keys and values", file, rest.begin.line + 1,
                                rest.begin.column + 1));
}

// A value as set_option takes it.
std::string text_of(const Entry& entry) {
  const YAML::Node& value = entry.value;
  if (value.IsNull()) return "null";
  if (value.IsScalar()) return value.Scalar();
  if (model_field(entry.key)) {  // one of LitGPT's: rope_adjustments, sliding_window_indices
    YAML::Emitter out;
    out << YAML::Flow << value;
    return out.c_str();
  }
  find_option(entry.key);  // a key that does not exist is the first thing to say
  require(value.IsSequence(), Fault::usage, "{}: expected one value, found a map", entry.key);
  std::vector<std::string> items;
  for (const YAML::Node& item : value) {
    require(item.IsScalar(), Fault::usage,
            "{}: expected single values in the list, found a list or a map", entry.key);
    items.push_back(item.Scalar());
  }
  return fmt::format("[{}]", fmt::join(items, ", "));
}

}  // namespace

void RecipeInput::read_file(const std::filesystem::path& path) {
  const std::string file = path.string();
  std::error_code error;
  require(!std::filesystem::is_directory(path, error), Fault::file,
          "{}: is a folder; give a YAML file", file);
  read_yaml(read_text(path, 1 << 20), file);
}

void RecipeInput::read_yaml(const std::string& text, const std::string& file) {
  std::vector<Entry> entries;
  try {
    const YAML::Node root = YAML::Load(text);
    size_t keys = 0;
    if (root.IsMap())
      flatten(root, "", 1, file, keys, entries, *this);
    else if (!root.IsNull())
      add_error(fmt::format("{}: expected keys and values", file));
    refuse_rest(text, file, *this);
  } catch (const YAML::Exception& e) {
    add_error(fmt::format("{}:{}:{}: {}", file, std::max(e.mark.line, 0) + 1,
                          std::max(e.mark.column, 0) + 1, e.msg));
    return;
  }
  const int source = sources_++;
  for (const Entry& entry : entries) {
    Given given{.source = source, .place = entry.place, .value = ""};
    try {
      if (entry.value.IsNull() && !model_field(entry.key) &&
          (changes_nothing(entry.key, "null") || !can_be_null(find_option(entry.key))))
        continue;
      given.value = text_of(entry);
      set_value(entry.key, given);
    } catch (const Error& e) {
      add_wrong(entry.key, given, e.what());
    } catch (const YAML::Exception& e) {
      add_wrong(entry.key, given, fmt::format("{}: {}", entry.key, e.msg));
    }
  }
}

std::string RecipeInput::print_config(const Recipe& settled) const {
  std::string text;
  for (const YamlLine& line : yaml_lines(settled, task_)) {
    if (line.option == nullptr) {
      text += line.text + "\n";
      continue;
    }
    const bool changed = value_of(settled, *line.option) != value_of(recipe_, *line.option);
    text += fmt::format("{:<44} # {}{}\n", line.text, origin_of(*line.option),
                        line.option->ignored != nullptr
                            ? fmt::format("; ignored: {}", line.option->ignored)
                            : (changed ? "; settled" : ""));
  }
  return text;
}

}  // namespace capstan
