#include "data/prompt/chat_template.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "data/errors.h"
#include "data/tokenizer/fake_tokenizer.h"
#include "data/tokenizer/tokenizer_folder.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json golden() {
  return json::parse(read_text(CAPSTAN_SOURCE_DIR "/tests/golden_chat/templates.json"));
}

std::vector<Message> messages_of(const json& list) {
  std::vector<Message> messages;
  for (const json& m : list) {
    const auto role = m["role"].get<std::string>();
    messages.push_back({role == "system" ? Role::system
                        : role == "user" ? Role::user
                                         : Role::assistant,
                        m["content"].get<std::string>()});
  }
  return messages;
}

std::string label(const json& c) {
  return c.value("template", c.value("model", "")) + ", " + c["case"].get<std::string>();
}

TEST(ChatTemplate, DetectedOnesPrintWhatJinjaPrints) {
  int64_t cases = 0;
  for (const json& c : golden()) {
    if (!c.contains("jinja")) continue;
    const auto text = [&](const char* key) { return c[key].get<std::string>(); };
    const auto chat = detect_chat_template(text("jinja"), text("bos"), text("eos"));
    ASSERT_TRUE(chat.has_value()) << label(c);
    EXPECT_EQ(chat->name, text("template") == "smollm2" ? "chatml" : text("template"));
    const auto pieces = render(*chat, messages_of(c["messages"]), c["generation"].get<bool>());
    EXPECT_EQ(text_of(pieces), text("text")) << label(c);
    ++cases;
  }
  EXPECT_EQ(cases, 7 * 4);
}

TEST(ChatTemplate, IdsEqualThoseOfTransformers) {
  const fs::path tokenizers = CAPSTAN_SOURCE_DIR "/../shared/data/tokenizers";
  if (!fs::exists(tokenizers)) GTEST_SKIP() << "no tokenizers beside the source";
  std::map<std::string, std::unique_ptr<Tokenizer>> loaded;
  int64_t cases = 0;
  for (const json& c : golden()) {
    if (!c.contains("ids")) continue;
    const auto model = c["model"].get<std::string>();
    if (!loaded.contains(model)) loaded[model] = load_tokenizer(tokenizers / model);
    const auto chat = chat_template_of(tokenizers / model);
    ASSERT_TRUE(chat.has_value()) << model;
    const auto pieces = render(*chat, messages_of(c["messages"]), c["generation"].get<bool>());
    EXPECT_EQ(text_of(pieces), c["text"].get<std::string>()) << label(c);
    EXPECT_EQ(encode(pieces, *loaded[model]).tokens, c["ids"].get<std::vector<int32_t>>())
        << label(c);
    ++cases;
  }
  EXPECT_EQ(cases, 2 * 4);
}

const std::vector<Message> kTwoTurns = {{Role::system, "S"},
                                        {Role::user, "one"},
                                        {Role::assistant, "first"},
                                        {Role::user, "two"},
                                        {Role::assistant, "second"}};

// The learned tokens of a rendering, one string for each span.
std::vector<std::string> learned(const ChatTemplate& chat, const FakeTokenizer& tokenizer) {
  const EncodedPieces encoded = encode(render(chat, kTwoTurns, false), tokenizer);
  std::vector<std::string> all;
  for (const TargetSpan& s : encoded.learned)
    all.push_back(tokenizer.decode(
        std::span(encoded.tokens)
            .subspan(static_cast<size_t>(s.begin), static_cast<size_t>(s.end - s.begin))));
  return all;
}

TEST(ChatTemplate, AnswersAndTheirEndsAreLearned) {
  using Strings = std::vector<std::string>;
  for (const ChatTemplate& chat : chat_templates()) {
    const FakeTokenizer tokenizer(chat.specials);
    const Strings parts = learned(chat, tokenizer);
    EXPECT_EQ(parts, (Strings{"first" + chat.assistant_end, "second" + chat.assistant_end}))
        << chat.name;
  }
}

TEST(ChatTemplate, ATokenThatSpansTheBorderIsLearned) {
  // As SentencePiece does it: a space and the letter after it are one token.
  const FakeTokenizer tokenizer({"<s>", "</s>"}, "<s>", "</s>", {" f", " s"});
  EXPECT_EQ(learned(*find_chat_template("llama2"), tokenizer),
            (std::vector<std::string>{" first </s>", " second </s>"}));
}

TEST(ChatTemplate, UnknownOnesAreNotGuessed) {
  EXPECT_FALSE(detect_chat_template("", "", ""));
  EXPECT_FALSE(detect_chat_template("{{ messages[0]['content'] }}", "<s>", "</s>"));
  EXPECT_FALSE(detect_chat_template("<|im_start|>user<|im_sep|>", "", "")) << "Phi-4";
  EXPECT_FALSE(detect_chat_template("<|user|>\n<|end|><|assistant|>", "", "")) << "Phi-3";
}

TEST(ChatTemplate, IsFoundInAModelsFolder) {
  const TempFolder folder;
  EXPECT_FALSE(chat_template_of(folder.path()));
  const auto with = [&](const json& config) {
    folder.write("tokenizer_config.json", config.dump());
    return chat_template_of(folder.path());
  };
  EXPECT_FALSE(with({{"bos_token", "<s>"}}));
  EXPECT_EQ(with({{"chat_template", "[INST] <<SYS>>"},
                  {"bos_token", {{"content", "<B>"}}},
                  {"eos_token", "<E>"}})
                ->assistant_end,
            " <E>");
  const json list = json::array({{{"name", "tool_use"}, {"template", "[INST]"}},
                                 {{"name", "default"}, {"template", "<|im_start|>"}}});
  EXPECT_EQ(with({{"chat_template", list}})->name, "chatml");
  folder.write("chat_template.jinja", "<start_of_turn>");
  EXPECT_EQ(chat_template_of(folder.path())->name, "gemma") << "its own file wins";
  folder.write("tokenizer_config.json", "{\n x}");
  expect_error(Fault::file, {"tokenizer_config.json:2:2: not valid JSON"},
               [&] { chat_template_of(folder.path()); });
}

TEST(ChatTemplate, FingerprintsTellTemplatesApart) {
  std::set<std::string> all;
  for (const ChatTemplate& chat : chat_templates()) all.insert(fingerprint(chat));
  EXPECT_EQ(all.size(), chat_templates().size());
  ChatTemplate other = *find_chat_template("chatml");
  other.default_system = "";
  EXPECT_NE(fingerprint(other), fingerprint(*find_chat_template("chatml")));
}

}  // namespace
}  // namespace capstan
