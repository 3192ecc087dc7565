// Feeds text to the reader of recipes: it must accept or throw Fault::usage, and what it accepts
// must be written in a form that it reads back to the same.
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "recipe/recipe_input.h"
#include "recipe/recipe_yaml.h"

namespace {

using namespace capstan;

Recipe read(const std::string& text, Task task) {
  RecipeInput input(task, defaults_of(task));
  input.read_yaml(text, "fuzz");
  return input.finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const Task task : {Task::pretrain, Task::finetune_full, Task::finetune_lora}) {
    try {
      const std::string yaml = recipe_yaml(read(text, task), task);
      if (recipe_yaml(read(yaml, task), task) != yaml) std::abort();
    } catch (const Error& e) {
      if (e.fault() != Fault::usage) std::abort();
    }
  }
  return 0;
}
