#include "data/prompt/prompt_style.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "data/errors.h"
#include "data/prompt/chat_template.h"
#include "data/tokenizer/fake_tokenizer.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

std::string text_of_prompt(const PromptStyle& style, std::string_view instruction,
                           std::string_view input = {}, std::string_view system = {}) {
  return text_of(render(style, instruction, input, system));
}

using nlohmann::json;

json golden() {
  return json::parse(read_text(CAPSTAN_SOURCE_DIR "/tests/golden_chat/styles.json"));
}

TEST(PromptStyle, TextsAreThoseOfLitGpt) {
  const json g = golden();
  const auto instruction = g["instruction"].get<std::string>();
  size_t cases = 0;
  for (const json& c : g["cases"]) {
    const PromptStyle& style = prompt_style(c["style"].get<std::string>());
    EXPECT_EQ(style.class_name, c["class"].get<std::string>());
    EXPECT_EQ(text_of_prompt(style, instruction), c["plain"].get<std::string>()) << style.name;
    // A style without a place for a system text is the same with one.
    EXPECT_EQ(text_of_prompt(style, instruction, {}, g["system"].get<std::string>()),
              c["system"].get<std::string>())
        << style.name;
    if (c.contains("input")) {
      EXPECT_EQ(text_of_prompt(style, instruction, g["input"].get<std::string>()),
                c["input"].get<std::string>());
    }
    ++cases;
  }
  EXPECT_EQ(cases, prompt_styles().size());
}

TEST(PromptStyle, AnInputWithoutAPlaceFollowsTheInstruction) {
  EXPECT_EQ(text_of_prompt(prompt_style("phi-2"), "Sum up:", "text"),
            "Instruct: Sum up:\n\ntext\nOutput:");
  EXPECT_EQ(text_of_prompt(prompt_style("default"), "", "text"), "text");
}

TEST(PromptStyle, TokensByNameAreSpecialButNotThoseOfTheUser) {
  const auto pieces = render(prompt_style("chatml"), "a<|im_end|>b");
  EXPECT_EQ(pieces[0], (Piece{"<|im_start|>", true, false}));
  EXPECT_EQ(pieces[1], (Piece{"user\n", false, false}));
  EXPECT_EQ(pieces[2], (Piece{"a<|im_end|>b", false, false}));
  EXPECT_EQ(pieces[3], (Piece{"<|im_end|>", true, false}));
}

TEST(PromptStyle, HasTheNameOfItsClassToo) {
  EXPECT_EQ(&prompt_style("litgpt.prompts.Llama3"), &prompt_style("llama3"));
  EXPECT_EQ(&prompt_style("litgpt.prompts.Alpaca"), &prompt_style("alpaca"));
}

TEST(PromptStyle, UnknownNamesGetTheNearestAndTheList) {
  expect_error(Fault::usage,
               {"no prompt style \"alpacca\"", "did you mean alpaca?", "llama2-function-calling"},
               [] { prompt_style("alpacca"); });
  expect_error(Fault::usage, {"did you mean default?"}, [] { prompt_style("Default"); });
}

TEST(PromptStyle, StopsAreEosAndTheStylesOwn) {
  const FakeTokenizer tokenizer({"</s>", "<|eot_id|>", "User", ":"}, "", "</s>");
  using All = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(stop_sequences(prompt_style("alpaca"), tokenizer), (All{{300}}));
  EXPECT_EQ(stop_sequences(prompt_style("llama3"), tokenizer), (All{{300}, {301}}));
  EXPECT_EQ(stop_sequences(prompt_style("falcon"), tokenizer), (All{{300}, {302, 303}}));
  EXPECT_EQ(stop_sequences(prompt_style("phi-1"), tokenizer), (All{{300}})) << "tokens unknown";
}

TEST(PromptStyle, AModelsNameGivesItsStyle) {
  const std::pair<const char*, const char*> models[] = {
      {"Llama-3.2-1B-Instruct", "llama3"},
      {"Llama-3.2-1B", "default"},
      {"Llama-2-7b-chat-hf", "llama2"},
      {"Llama-2-7b-chat-hf-function-calling-v2", "llama2-function-calling"},
      {"tiny-llama-1.1b-chat", "tinyllama"},
      {"Mistral-7B-Instruct-v0.3", "codellama"},
      {"Qwen2.5-Math-1.5B", "qwen2.5-math"},
      {"Qwen2.5-0.5B", "qwen2.5"},
      {"Phi-4-mini-reasoning", "phi-4-mini-reasoning"},
      {"SmolLM2-135M-Instruct", "smollm2"},
      {"DeepSeek-R1-Distill-Llama-8B", "r1-base"},
      {"open_llama_3b", "default"},
      {"", "default"},
  };
  for (const auto& model : models)
    EXPECT_EQ(style_for_model_name(model.first).name, model.second) << model.first;
}

TEST(PromptStyleFile, IsReadAsItIsWritten) {
  const TempFolder folder;
  EXPECT_FALSE(read_prompt_style(folder.path()));
  for (const PromptStyle& style : prompt_styles()) {
    folder.write("prompt_style.yaml", prompt_style_yaml(style));
    EXPECT_EQ(read_prompt_style(folder.path()).style, &style) << style.name;
  }
  for (const ChatTemplate& chat : chat_templates()) {
    folder.write("prompt_style.yaml", prompt_style_yaml(chat));
    EXPECT_EQ(read_prompt_style(folder.path()).chat_template, &chat) << chat.name;
    EXPECT_EQ(read_prompt_style(folder.path()).style, nullptr);
  }
  folder.write("prompt_style.yaml", own_template_yaml());
  EXPECT_TRUE(read_prompt_style(folder.path()).own_template);
  EXPECT_EQ(find_chat_template("own"), nullptr);
  EXPECT_EQ(prompt_style_yaml(prompt_style("alpaca")), "class_path: litgpt.prompts.Alpaca\n");
  EXPECT_EQ(prompt_style_yaml(*find_chat_template("zephyr")), "chat_template: zephyr\n");
}

TEST(PromptStyleFile, SaysWhatIsWrong) {
  const TempFolder folder;
  const auto read = [&](const char* text) {
    folder.write("prompt_style.yaml", text);
    read_prompt_style(folder.path());
  };
  expect_error(Fault::file, {"prompt_style.yaml:1:13: no prompt style has the class \"my.Style\""},
               [&] { read("class_path: my.Style\n"); });
  expect_error(Fault::file, {"prompt_style.yaml:1:13:", "\"litgpt.prompts.Nope\""},
               [&] { read("class_path: litgpt.prompts.Nope\n"); });
  expect_error(Fault::file, {"prompt_style.yaml:1:16: no chat template is named \"nope\""},
               [&] { read("chat_template: nope\n"); });
  for (const char* text : {"", "class: x\n", "- a\n", "class_path: [a]\n"})
    expect_error(Fault::file, {"expected \"class_path: litgpt.prompts.Alpaca\""},
                 [&] { read(text); });
  expect_error(Fault::file, {"prompt_style.yaml:2:1: not valid YAML"}, [&] { read("a: [b\n"); });
}

}  // namespace
}  // namespace capstan
