#include "infer/benchmark.h"

#include <gtest/gtest.h>

#include "base/files.h"
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

TEST(Benchmark, OtherFilesAreRefusedWithTheirLine) {
  const TempFolder folder;
  const auto refusal = [&](Fault fault, const std::string& name, const std::string& lines) {
    return message_of(fault, [&] { read(folder, name, lines); });
  };
  EXPECT_NE(refusal(Fault::usage, "piqa", "{}").find("expected arc_easy"), std::string::npos);
  EXPECT_NE(refusal(Fault::file, "arc_easy", "{\"question\": \"?\"}").find("file.jsonl:1: "),
            std::string::npos);
  EXPECT_NE(refusal(Fault::file, "gsm8k", "\n{\"question\": ").find("file.jsonl:2: "),
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
