#include "base/json_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/message_of.h"

namespace capstan {
namespace {

std::string refusal(std::string_view text, int max_depth = 64) {
  return message_of(Fault::file, [&] { parse_json(text, "a.json", max_depth); });
}

TEST(ParseJson, ReadsEveryKindOfValue) {
  const auto v = parse_json(R"( {"a": [1, -2, 2.5, 18446744073709551615, true, null],
                                 "b": {"c": "é\n\u00e9"}, "": {}} )",
                            "a.json");
  EXPECT_EQ(v, nlohmann::json::parse(R"({"a":[1,-2,2.5,18446744073709551615,true,null],
                                         "b":{"c":"é\né"},"":{}})"));
}

TEST(ParseJson, PointsToTheByteThatIsWrong) {
  EXPECT_TRUE(refusal("").starts_with("a.json:1:1: not valid JSON: ")) << refusal("");
  EXPECT_TRUE(refusal("{\n  \"a\": 1,\n}").starts_with("a.json:3:1: "))
      << refusal("{\n \"a\": 1,\n}");
  EXPECT_TRUE(refusal("{\"é\": x}").starts_with("a.json:1:7: ")) << "columns count characters";
  EXPECT_TRUE(refusal("{} {}").starts_with("a.json:1:4: "));
  EXPECT_TRUE(refusal("[1] // no comments").starts_with("a.json:1:5: "));
}

TEST(ParseJson, RefusesWhatIsNotUtf8) {
  for (const char* text : {"\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\\ud800\"", "\xe9"})
    EXPECT_TRUE(refusal(text).starts_with("a.json:1:")) << refusal(text);
}

TEST(ParseJson, RefusesADuplicateKeyAndPointsToTheSecond) {
  EXPECT_EQ(refusal("{\"a\": 1,\n  \"b\": {\"a\": 2},\n  \"a\": 3}"),
            "a.json:3:3: the key \"a\" appears twice; keep one of them");
  EXPECT_EQ(refusal(R"([{"x\"y": 1, "x\"y": 2}])"),
            R"(a.json:1:14: the key "x\"y" appears twice; keep one of them)");
}

TEST(ParseJson, RefusesDeepNestingHoweverDeep) {
  EXPECT_NO_THROW(parse_json("[[[1]]]", "a.json", 3));
  EXPECT_EQ(refusal("[[[[1]]]]", 3), "a.json:1:4: nested more than 3 deep");
  EXPECT_EQ(refusal(std::string(1'000'000, '[')), "a.json:1:65: nested more than 64 deep");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_NE(refusal(objects).find("nested more than 64 deep"), std::string::npos);
}

// A copy of a value, its text and its destruction are recursive: no reader may have more.
TEST(ParseJson, NoReaderOfTheProgramGoesDeeper) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_EQ(refusal(nested(100'000), 1'000'000), "a.json:1:65: nested more than 64 deep");
  EXPECT_EQ(message_of(Fault::file, [&] { parse_ordered_json(nested(100'000), "a.json"); }),
            "a.json:1:65: nested more than 64 deep");
  EXPECT_TRUE(json_or_null(nested(100'000)).is_null());
  EXPECT_EQ(parse_ordered_json(nested(64), "a.json").dump(), nested(64));
  EXPECT_EQ(json_or_null(nested(64)).dump(), nested(64));
}

TEST(ParseJson, KeepsTheOrderOfKeysIfAsked) {
  const std::string text = R"({"z":{"y":1,"a":[2,{"c":3,"b":4}]},"k":null,"b":"x"})";
  EXPECT_EQ(parse_ordered_json(text, "a.json").dump(), text);
  EXPECT_EQ(message_of(Fault::file, [&] { parse_ordered_json(R"({"z": 1, "z": 1})", "f"); }),
            "f:1:10: the key \"z\" appears twice; keep one of them");
  // Looking for each key among those before it would take minutes.
  std::string many = "{";
  for (int i = 0; i < 100'000; ++i) many += fmt::format("\"{}\":0,", i);
  many.back() = '}';
  EXPECT_EQ(parse_ordered_json(many, "a.json").dump(), many);
}

TEST(ParseJson, GivesNullForWhatItRefusesIfAsked) {
  EXPECT_EQ(json_or_null("{\"a\": 1}")["a"], 1);
  for (const char* bad : {"", "{", "{\"a\": 1} x", "{\"a\": 1, \"a\": 2}", "\"\xff\"", "[1e999]"})
    EXPECT_TRUE(json_or_null(bad).is_null()) << bad;
}

TEST(ParseJson, RefusesANumberThatNoDoubleHolds) {
  EXPECT_NE(refusal("[1e999]").find("number overflow"), std::string::npos);
}

TEST(ParseJson, DoesNotEchoTheFileAtLengthNorItsControlCharacters) {
  const std::string message = refusal("\"" + std::string(1'000'000, '\x1b'));
  EXPECT_LT(message.size(), 400u);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

TEST(ParseJson, APartOfAFileIsToldWhereItBegins) {
  const auto place = [](const char* text) {
    const std::string message =
        message_of(Fault::file, [&] { parse_json(text, "f", 64, {.line = 7, .column = 5}); });
    return message.substr(0, message.find(": "));
  };
  EXPECT_EQ(place("'a'"), "f:7:5");
  EXPECT_EQ(place("[1, x]"), "f:7:9");
  EXPECT_EQ(place("[1,\n x]"), "f:8:2") << "columns of later lines are the file's own";
  EXPECT_EQ(place("{\"a\": 1, \"a\": 2}"), "f:7:14");
  EXPECT_EQ(text_location("äb", "f", 2, {.line = 3, .column = 10}), "f:3:11");
}

TEST(JsonLocation, FindsKeysAndNestedKeys) {
  const std::string text =
      "{\"a\": {\"x\": 1,\n \"é\\\"q\": [{\"z\": 1}], \"b\": 2},\n\"c\": {\"x\": 1}}";
  EXPECT_EQ(json_location(text, "f", {"a"}), "f:1:2");
  EXPECT_EQ(json_location(text, "f", {"a", "b"}), "f:2:22");
  EXPECT_EQ(json_location(text, "f", {"c", "x"}), "f:3:7");
}

TEST(JsonLocation, GivesTheNearestThingForAPathThatEndsEarly) {
  const std::string text = "{\"a\": {\"x\": 1,\n \"q\": [{\"z\": 1}]}}";
  EXPECT_EQ(json_location(text, "f", {"none"}), "f:1:1");
  EXPECT_EQ(json_location(text, "f", {"a", "none"}), "f:1:2");
  EXPECT_EQ(json_location(text, "f", {"a", "q", "z"}), "f:2:2") << "a list's items have no key";
}

TEST(Shown, IsShortAndPlain) {
  EXPECT_EQ(shown(nlohmann::json::parse("[1,2]")), "a list");
  EXPECT_EQ(shown(nlohmann::json::parse("{}")), "an object");
  EXPECT_EQ(shown(nlohmann::json(1.5)), "1.5");
  EXPECT_EQ(shown(nlohmann::json("a\x1b[31m")), "\"a\\u001b[31m\"");
  EXPECT_EQ(in_quotes("\xff"), "\"\\ufffd\"");
  EXPECT_LT(in_quotes(std::string(1000, 'x')).size(), 130u);
}

}  // namespace
}  // namespace capstan
