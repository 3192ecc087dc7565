#include "data/tokenizer/json_tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>

#include "data/tokenizer/golden_tokens.h"
#include "support/message_of.h"

namespace capstan {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

json small() {
  return {{"added_tokens", json::array()},
          {"model",
           {{"type", "BPE"},
            {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"abc", 4}, {"bc", 5}}},
            {"merges", {"b c", "a b", "ab c"}}}}};
}

json token(int id, const char* content) {
  return {{"id", id}, {"content", content}, {"special", true}};
}

JsonTokenizer made(const json& file) {
  const std::string text = file.dump(1);
  return JsonTokenizer(parse_json(text, "t.json"), text, "t.json");
}

std::string refusal(const json& file) {
  return message_of(Fault::file, [&] { made(file); });
}
void expect_refusal(const json& file, const std::string& part) {
  const std::string found = refusal(file);
  EXPECT_NE(found.find(part), std::string::npos) << found;
  EXPECT_EQ(found.rfind("t.json:", 0), 0u) << found;
}

TEST(JsonTokenizer, MergesTheFirstOfTheListFirst) {
  EXPECT_EQ(made(small()).encode("abc"), (Ids{0, 5})) << "b c comes before a b";
  EXPECT_EQ(made(small()).encode("abab"), (Ids{3, 3}));
  EXPECT_EQ(made(small()).encode("a?b"), (Ids{3})) << "without an unknown token, ? is nothing";
}

TEST(JsonTokenizer, ReadsBothFormsOfMerges) {
  json pairs = small();
  pairs["model"]["merges"] = json::parse(R"([["b", "c"], ["a", "b"], ["ab", "c"]])");
  EXPECT_EQ(made(pairs).encode("abcab"), made(small()).encode("abcab"));
}

TEST(JsonTokenizer, TakesWholeWordsFirstWhenMergesAreIgnored) {
  json whole = small();
  whole["model"]["ignore_merges"] = true;
  EXPECT_EQ(made(whole).encode("abc"), (Ids{4}));
}

TEST(JsonTokenizer, ALongWordTakesNoLongTime) {
  const JsonTokenizer tokenizer = made(small());
  const auto start = std::chrono::steady_clock::now();
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "ab";
  EXPECT_EQ(tokenizer.encode(text).size(), 200'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

// With words, and without: by the pre-tokenizer, or between characters that no merge joins.
TEST(JsonTokenizer, TellsHowFarALongTextIsAndCanBeEnded) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "abca";
  for (const bool words : {false, true}) {
    if (words && !has_unicode()) continue;
    json file = small();
    if (words)
      file["pre_tokenizer"] = {{"type", "Split"},
                               {"pattern", {{"String", "ca"}}},
                               {"behavior", "Isolated"},
                               {"invert", false}};
    const JsonTokenizer tokenizer = made(file);
    int64_t bytes = 0, calls = 0;
    const Ids ids = tokenizer.encode_long(text, [&](int64_t more) {
      bytes += more;
      ++calls;
    });
    EXPECT_EQ(ids == tokenizer.encode(text), true);
    EXPECT_EQ(bytes, std::ssize(text));
    EXPECT_GT(calls, 4);
    EXPECT_THROW(tokenizer.encode_long(text, [](int64_t) { throw std::runtime_error("enough"); }),
                 std::runtime_error);
  }
}

TEST(JsonTokenizer, BadUtf8CountsAsReplacementCharacters) {
  if (!has_unicode()) GTEST_SKIP() << "built without ICU";
  const auto path = golden_tokens() / "bytes/tokenizer.json";
  const std::string text = read_text(path);
  const JsonTokenizer tokenizer(parse_json(text, "t"), text, "t");
  EXPECT_EQ(tokenizer.encode("a\xFF z\xE2\x82"), tokenizer.encode("a\uFFFD z\uFFFD"));
}

TEST(JsonTokenizer, RefusesIdsThatCannotBe) {
  json bad = small();
  bad["model"]["vocab"]["ab"] = 1;
  expect_refusal(bad, "is also that of");
  bad["model"]["vocab"]["ab"] = -1;
  expect_refusal(bad, "the id of \"ab\" must be an integer from 0 to");
  bad["model"]["vocab"]["ab"] = 1u << 31;
  expect_refusal(bad, "found 2147483648");
  bad["model"]["vocab"]["ab"] = "3";
  expect_refusal(bad, "found \"3\"");
  bad["model"]["vocab"] = json::object();
  expect_refusal(bad, "vocab: is empty");
}

TEST(JsonTokenizer, SaysWhereABadIdIs) {
  json bad = small();
  bad["model"]["vocab"]["c"] = 1;
  EXPECT_EQ(refusal(bad), "t.json:16:4: the id 1 of \"c\" is also that of \"b\"");
}

TEST(JsonTokenizer, RefusesMergesThatCannotBe) {
  json bad = small();
  bad["model"]["merges"] = {"a x"};
  expect_refusal(bad, "merges[0]: \"x\" is not in the vocabulary");
  bad["model"]["merges"] = {"a b", "a c"};
  expect_refusal(bad, "merges[1]: \"ac\" is not in the vocabulary");
  bad["model"]["merges"] = {"a b", "a b"};
  expect_refusal(bad, "appear in an earlier merge already");
  for (const json& form : {json("ab"), json("a b c"), json(1), json({"a"}), json({"a", 2})}) {
    bad["model"]["merges"] = json::array({form});
    expect_refusal(bad, "expected \"left right\"");
  }
}

TEST(JsonTokenizer, RefusesAddedTokensThatContradict) {
  json bad = small();
  bad["added_tokens"] = {token(9, "a")};
  expect_refusal(bad, "\"a\" has the id 9 here and 0 in the vocabulary");
  bad["added_tokens"] = {token(0, "<s>")};
  expect_refusal(bad, "the id 0 of \"<s>\" is also that of \"a\"");
  bad["added_tokens"] = {token(9, "<s>"), token(9, "</s>")};
  expect_refusal(bad, "[1] the id 9");
  bad["added_tokens"] = {token(9, "<s>"), token(10, "<s>")};
  expect_refusal(bad, "appears twice");
}

TEST(JsonTokenizer, SizeCoversAddedTokens) {
  json with = small();
  with["added_tokens"] = {token(9, "<s>")};
  const JsonTokenizer tokenizer = made(with);
  EXPECT_EQ(tokenizer.vocab_size(), 10);
  EXPECT_EQ(tokenizer.encode("ab<s>c"), (Ids{3, 9, 2}));
  EXPECT_EQ(tokenizer.id_of("<s>"), 9);
  EXPECT_EQ(tokenizer.id_of("abc"), 4);
}

TEST(JsonTokenizer, AContinuationIsNeitherTheStartOfATextNorPartOfItsPrompt) {
  json file = small();
  file["model"]["merges"] = json::array();
  file["model"]["vocab"] = {{"<0xC3>", 0}, {"<0xA9>", 1}, {"\u2581a", 2}, {"\u2581b", 3}};
  const json bytes = {{"type", "ByteFallback"}}, fuse = {{"type", "Fuse"}};
  const json space = {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}};
  for (const int stop : {0, 1}) {
    const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", stop}};
    file["decoder"] = {{"type", "Sequence"}, {"decoders", {space, bytes, fuse, strip}}};
    const JsonTokenizer tokenizer = made(file);
    EXPECT_EQ(tokenizer.decode(Ids{2, 3}), "a b");
    EXPECT_EQ(tokenizer.decode_after(Ids{2}, Ids{3}), " b");
    EXPECT_EQ(tokenizer.decode_after(Ids{}, Ids{3}), "b");
    // A run of bytes is text as a whole or not at all: a bad one must not change the prompt's.
    EXPECT_EQ(tokenizer.decode_after(Ids{0, 1}, Ids{0, 1}), "\u00e9");
    EXPECT_EQ(tokenizer.decode_after(Ids{0, 1}, Ids{0}), "\uFFFD");
  }
}

TEST(JsonTokenizer, NamesWhatItDoesNotKnow) {
  const auto with = [](const char* key, const json& value) {
    json file = small();
    file[key] = value;
    return file;
  };
  expect_refusal(with("normalizer", {{"type", "Magic"}}),
                 "unknown normalizer \"Magic\"; the known");
  expect_refusal(with("pre_tokenizer", {{"type", "Magic"}}), "unknown pre-tokenizer \"Magic\"");
  expect_refusal(with("decoder", {{"type", "Magic"}}), "unknown decoder \"Magic\"; the known");
  expect_refusal(with("pre_tokenizer",
                      {{"type", "Split"}, {"pattern", {{"String", "x"}}}, {"behavior", "Glued"}}),
                 "unknown value \"Glued\"");
  json model = small();
  model["model"]["type"] = "Unigram";
  expect_refusal(model, "only BPE is supported");
  model = small();
  model["model"]["continuing_subword_prefix"] = "##";
  expect_refusal(model, "continuing_subword_prefix \"##\" is not supported");
  model = small();
  model["model"]["dropout"] = 0.1;
  expect_refusal(model, "dropout 0.1 is not supported");
  model = small();
  model["model"]["unk_token"] = "<unk>";
  expect_refusal(model, "unk_token \"<unk>\" is not in the vocabulary");
  expect_refusal(json::object(), "expected the key \"model\"");
}

TEST(JsonTokenizer, RefusesExpressionsThatAreNotValidOrMeanAnotherThing) {
  const auto split_by = [](const char* expression) {
    json file = small();
    file["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}};
    return file;
  };
  expect_refusal(split_by("(a"), "");
  expect_refusal(split_by("a{1,3}+"), "");
}

}  // namespace
}  // namespace capstan
