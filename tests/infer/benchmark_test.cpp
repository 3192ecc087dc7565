#include "infer/benchmark.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "base/files.h"
#include "base/text.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

Benchmark read(const TempFolder& folder, const std::string& name, const std::string& lines) {
  write_text(folder / "file.jsonl", lines);
  return read_benchmark(name + ":" + (folder / "file.jsonl").string());
}

// As lm-evaluation-harness writes them.
TEST(Benchmark, QuestionsAreThoseOfTheHarness) {
  const TempFolder folder;
  const Benchmark arc = read(folder, "arc_challenge",
                             R"({"question": "Why?", "choices": {"text": ["so", "not"], )"
                             R"("label": ["1", "2"]}, "answerKey": "2"})"
                             "\n\n");
  ASSERT_EQ(arc.items.size(), 1u);
  EXPECT_EQ(arc.items[0].context, "Question: Why?\nAnswer:");
  EXPECT_EQ(arc.items[0].choices, (std::vector<std::string>{"so", "not"}));
  EXPECT_EQ(arc.items[0].right, 1u);
  const Benchmark swag =
      read(folder, "hellaswag",
           R"({"activity_label": "Baking", "ctx_a": "[header] How to bake [title] A cake.  ", )"
           R"("ctx_b": "then SHE", "endings": ["runs [step] away ", "b"], "label": "0"})");
  EXPECT_EQ(swag.items[0].context, "Baking: How to bake. A cake.  Then she");
  EXPECT_EQ(swag.items[0].choices[0], "runs away");
  const Benchmark mmlu = read(folder, "mmlu_high_school_physics",
                              R"({"question": " What? ", "choices": ["a", "b", "c", "d"], )"
                              R"("answer": 3, "subject": "high_school_physics"})");
  EXPECT_EQ(mmlu.items[0].context,
            "The following are multiple choice questions (with answers) about high school "
            "physics.\n\nWhat?\nA. a\nB. b\nC. c\nD. d\nAnswer:");
  EXPECT_EQ(mmlu.items[0].right, 3u);
  const Benchmark gsm = read(folder, "gsm8k", R"({"question": "2+2", "answer": "#### 4"})");
  EXPECT_TRUE(gsm.is_written());
  EXPECT_EQ(gsm.items[0].context, "Question: 2+2\nAnswer:");
}

TEST(Benchmark, NumbersAreFoundAsTheHarnessFindsThem) {
  EXPECT_EQ(strict_number("so it is #### 1,234.\n#### 5"), "1,234.");
  EXPECT_EQ(strict_number("#### -7"), "-7");
  EXPECT_EQ(strict_number("it is 7"), "[invalid]");
  EXPECT_EQ(flexible_number("3 apples and $4.50, or -2"), "-2");
  EXPECT_EQ(flexible_number("about 12,000."), "12,000.");
  EXPECT_EQ(flexible_number("none"), "[invalid]");
  EXPECT_TRUE(same_answer("1,234.", "Because.\n#### 1234"));
  EXPECT_TRUE(same_answer("$5", "#### 5"));
  EXPECT_FALSE(same_answer("[invalid]", "#### 5"));
  EXPECT_FALSE(same_answer("51", "#### 5"));
}

std::string random_text(std::mt19937_64& random, const char* alphabet, size_t most) {
  std::string text;
  const size_t letters = std::string(alphabet).size();
  for (size_t left = random() % most; left > 0; --left) text += alphabet[random() % letters];
  return text;
}

// As lm-evaluation-harness's preprocess, by regular expressions.
std::string without_marks_by_regex(const std::string& text) {
  std::string s = std::regex_replace(std::string(trimmed(text)), std::regex(" \\[title\\]"), ". ");
  s = std::regex_replace(s, std::regex("\\[[^\\n]*?\\]"), "");
  return std::regex_replace(s, std::regex("  "), " ");
}

TEST(Benchmark, PageMarksGoAsTheHarnessRemovesThem) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (int i = 0; i < 3000; ++i) {
    std::string text = random_text(random, "[]a \n[] ", 30);
    if (i % 3 == 0) text.insert(random() % (text.size() + 1), " [title]");
    ASSERT_EQ(without_page_marks(text), without_marks_by_regex(text)) << "seed " << seed;
  }
}

TEST(Benchmark, NumbersAreThoseOfTheHarnessesExpressions) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  const std::regex strict("#### (-?[0-9.,]+)"), flexible("(-?[$0-9.,]{2,})|(-?[0-9]+)");
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_text(random, "#-1 9.,$a\n", 25) + (i % 2 == 0 ? "#### " : "") +
                             random_text(random, "#-1 9.,$a", 8);
    std::smatch found;
    const bool any = std::regex_search(text, found, strict);
    ASSERT_EQ(strict_number(text), any ? found[1].str() : "[invalid]") << "seed " << seed;
    std::string last = "[invalid]";
    for (std::sregex_iterator it(text.begin(), text.end(), flexible), end; it != end; ++it)
      last = it->str();
    ASSERT_EQ(flexible_number(text), last) << text << ", seed " << seed;
  }
}

// std::regex overflowed the stack here, or took hours.
TEST(Benchmark, LongTextsAreReadInOnePass) {
  constexpr size_t kLong = 8'000'000;
  const std::string open(kLong, '['), digits(kLong, '7'), spaces(kLong, ' ');
  EXPECT_EQ(without_page_marks(open).size(), kLong);
  EXPECT_EQ(without_page_marks(open + "\n" + open + "]"), open + "\n");
  EXPECT_EQ(without_page_marks("[" + digits + "]x"), "x");
  EXPECT_EQ(without_page_marks("x" + spaces + "x").size(), kLong / 2 + 2);
  EXPECT_EQ(strict_number("#### " + digits), digits);
  EXPECT_EQ(flexible_number(digits), digits);
  EXPECT_EQ(flexible_number(std::string(kLong, '-')), "[invalid]");
}

TEST(Benchmark, AFieldIsNamedWithItsLine) {
  const TempFolder folder;
  const auto refusal = [&](const char* name, const std::string& line) {
    const std::string message =
        message_of(Fault::file, [&] { read(folder, name, "\n" + line + "\n"); });
    return message.substr(std::min(message.size(), message.find("file.jsonl")));
  };
  EXPECT_EQ(refusal("hellaswag", R"({"ctx": "x", "ind": 1})"),
            "file.jsonl:2: hellaswag: expected the field \"activity_label\", found \"ctx, ind\"");
  const std::string swag = R"({"activity_label": "a", "ctx_a": "b", "ctx_b": "c", )";
  EXPECT_EQ(refusal("hellaswag", swag + R"("endings": ["x", 2], "label": "0"})"),
            "file.jsonl:2: hellaswag: endings: expected a list of texts, found a list of something "
            "else");
  for (const char* label : {"\"\"", "\"2\"", "-1", "0.5", "null", "\"x\"", "99999999999999999999"})
    EXPECT_EQ(refusal("hellaswag", swag + R"("endings": ["x", "y"], "label": )" + label + "}")
                  .find("file.jsonl:2: hellaswag: label: expected a number from 0 to 1, found "),
              0u)
        << label;
  EXPECT_EQ(refusal("mmlu", R"({"question": 7, "choices": ["a", "b", "c", "d"], "answer": 1})"),
            "file.jsonl:2: mmlu: question: expected a text, found 7");
  EXPECT_EQ(refusal("arc", R"({"question": "?", "choices": ["a"], "answerKey": "A"})"),
            "file.jsonl:2: arc: choices: expected a record, found a list");
  EXPECT_EQ(refusal("arc", R"({"question": "?", "choices": {"text": ["a"]}, "answerKey": "A"})"),
            "file.jsonl:2: arc: choices: expected the field \"label\", found \"text\"");
  EXPECT_EQ(refusal("gsm8k", "7"), "file.jsonl:2: gsm8k: expected a record, found 7");
  EXPECT_EQ(refusal("gsm8k", "[1, x]").find("file.jsonl:2:5: not valid JSON"), 0u);
  EXPECT_EQ(refusal("gsm8k", std::string(100'000, '[')),
            "file.jsonl:2:65: nested more than 64 deep");
}

TEST(Benchmark, OtherFilesAreRefusedWithTheirLine) {
  const TempFolder folder;
  const auto refusal = [&](Fault fault, const std::string& name, const std::string& lines) {
    return message_of(fault, [&] { read(folder, name, lines); });
  };
  EXPECT_NE(refusal(Fault::usage, "piqa", "{}").find("expected arc_easy"), std::string::npos);
  EXPECT_NE(refusal(Fault::file, "arc_easy", "{\"question\": \"?\"}").find("file.jsonl:1: "),
            std::string::npos);
  EXPECT_NE(refusal(Fault::file, "gsm8k", "\n{\"question\": ").find("file.jsonl:2:14: not"),
            std::string::npos);
  EXPECT_NE(refusal(Fault::file, "arc_easy",
                    R"({"question": "?", "choices": {"text": ["a"], "label": ["A"]}, )"
                    R"("answerKey": "B"})")
                .find("none of the choices"),
            std::string::npos);
  EXPECT_NE(refusal(Fault::file, "mmlu", "").find("no records"), std::string::npos);
  EXPECT_NE(message_of(Fault::usage, [] { read_benchmark("arc_easy"); }).find("NAME:FILE"),
            std::string::npos);
}

}  // namespace
}  // namespace capstan
