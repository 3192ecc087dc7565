#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "recipe/options.h"

namespace capstan {

// A recipe being gathered: the command's defaults, then files, then the command line. What is wrong
// is collected and reported together, each with its place; a value that a later source replaces is
// never an error.
class RecipeInput {
 public:
  explicit RecipeInput(Task task, Recipe defaults);

  // Everything that a YAML file says: nested ("train:" / "  max_steps: 5"), flat ("train.max_steps:
  // 5") or LitGPT's class_path and init_args. A key without a value is null. A file that cannot be
  // read throws Fault::file at once.
  void read_file(const std::filesystem::path& path);
  // The same from text; `where` stands for the file.
  void read_yaml(const std::string& text, const std::string& where);
  // One key of the command line.
  void set(const std::string& key, const std::string& value);
  // Something else that is wrong.
  void add_error(std::string message) { errors_.push_back({.text = std::move(message)}); }

  // The recipe, once everything was given. Settles what depends on several keys (a warm-up that was
  // not asked for, the optimizer's own defaults) and throws Fault::usage with all errors, one per
  // line: a key that the command does not use or that has no effect beside others is one. What
  // `also` finds wrong in the recipe is told with them; Fault::file where that is all there is, and
  // all of it is of files.
  using Also = std::function<std::vector<Error>(const Recipe&)>;
  Recipe finish(const Also& also = {});
  // Whether a value of this key, or of one in this section, cannot be used.
  bool is_wrong(std::string_view key) const;

  // Where the value of a key came from: "recipe.yaml:14:3", "command line" or "default".
  std::string origin_of(const Option& option) const;
  bool given(std::string_view key) const;
  bool sets(std::string_view key) const;  // it is given, and not as the default
  // What was decided for the user, to be said once: "optimizer.betas: dropped, SGD does not have
  // it".
  const std::vector<std::string>& notes() const { return notes_; }

  // The recipe as YAML, each value with its origin, and what is ignored with the reason.
  std::string print_config(const Recipe& settled) const;

 private:
  struct Given {
    int source = 0;     // 0, 1 … in the order of reading; the command line is the last
    std::string place;  // "file:line:column", or empty for the command line
    std::string value;  // as it was written
  };
  // A later source that gives the key takes the error away: what it replaces need not be right.
  struct WrongValue {
    std::string text;
    std::string place = {};
    std::string key = {};  // ours where it is one of ours, else as it was written
    int source = INT32_MAX;
    bool unknown = false;  // the key, whatever its value
  };
  void set_value(const std::string& key, const Given& given);
  void add_wrong(const std::string& key, const Given& given, const std::string& text);
  void replace(std::string_view key, const Given& given);
  void check_uses();
  void drop_other_arguments(const std::string& section);
  void settle_min_lr();
  void set_model_field(const std::string& field, const Given& given);
  void settle_model();
  bool model_is_replaced();
  void check_model_fields();
  void require_model_sizes();
  void complain(std::string_view key, const std::string& text);
  void note_idle(std::string_view key, const std::string& why);  // if it was given

  Task task_;
  Recipe defaults_, recipe_;
  int sources_ = 0;
  std::map<std::string, Given, std::less<>> given_;
  // What an inline model_config says besides sizes, by LitGPT's names.
  std::map<std::string, Given, std::less<>> model_fields_;
  int inline_model_ = -1;  // the last source with a field of an inline model_config; -1: none
  std::vector<WrongValue> errors_;
  std::vector<std::string> notes_;
};

}  // namespace capstan
