#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "recipe/recipe_input.h"
#include "recipe/recipe_yaml.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan::test {

class Input : public testing::Test {
 protected:
  // The recipe that a file and words of the command line make.
  Recipe read(std::string_view yaml,
              std::initializer_list<std::pair<const char*, const char*>> words = {},
              Task task = Task::finetune_full) {
    input = std::make_unique<RecipeInput>(task, defaults_of(task));
    input->read_file(folder.write("r.yaml", yaml));
    for (const auto& [key, value] : words) input->set(key, value);
    return input->finish();
  }
  // The message of what is wrong, with the folder's name left out.
  std::string refusal(std::string_view yaml,
                      std::initializer_list<std::pair<const char*, const char*>> words = {},
                      Task task = Task::finetune_full) {
    std::string message = message_of(Fault::usage, [&] { read(yaml, words, task); });
    const std::string path = folder / "r.yaml";
    for (size_t at; (at = message.find(path)) != std::string::npos;)
      message.replace(at, path.size(), "r.yaml");
    return message;
  }
  std::string origin(const char* key) const {
    std::string text = input->origin_of(find_option(key));
    return text.substr(text.rfind('/') + 1);
  }

  TempFolder folder;
  std::unique_ptr<RecipeInput> input;
};

}  // namespace capstan::test
