#include "base/shell_words.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <vector>

#include "support/temp_folder.h"

namespace capstan {
namespace {

// What a shell, or Python, prints of a command that is longer than an argument may be.
std::string printed_by(const char* program, const std::string& script) {
  const TempFolder folder;
  const auto file = folder.write("script", script);
  std::string out;
  FILE* const pipe = ::popen((std::string(program) + " " + file.string()).c_str(), "r");
  char block[4096];
  for (size_t n; (n = std::fread(block, 1, sizeof block, pipe)) > 0;) out.append(block, n);
  EXPECT_EQ(::pclose(pipe), 0);
  return out;
}

std::vector<std::string> hostile_words(uint64_t seed) {
  std::vector<std::string> words = {"$(touch pwned)",
                                    "`id`",
                                    "it's",
                                    "a b",
                                    "",
                                    "'",
                                    "\"",
                                    "\\",
                                    "it's \"$HOME\"",
                                    "a\nb",
                                    "*",
                                    "~",
                                    "-n",
                                    "#x",
                                    "a=b",
                                    "{a,b}",
                                    "!!",
                                    "it's!",
                                    "a;b",
                                    "a&b",
                                    "<x>",
                                    "größe",
                                    "\x01\x7f\xff"};
  std::mt19937_64 random(seed);
  constexpr std::string_view kLetters = "ab '\"\\$`!*?[]{}()<>|&;#~=%@^\n\t-/.";
  for (int i = 0; i < 300; ++i) {
    std::string word;
    for (uint64_t left = random() % 8; left > 0; --left)
      word += kLetters[random() % kLetters.size()];
    words.push_back(word);
  }
  return words;
}

TEST(ShellWords, AreReadByAShellAsTheyWere) {
  const uint64_t seed = std::random_device()();
  const std::vector<std::string> words = hostile_words(seed);
  std::string expected;
  for (const std::string& word : words) expected += word + '\0';
  EXPECT_EQ(printed_by("sh", "printf '%s\\0' " + in_shell(words)), expected) << "seed " << seed;
}

TEST(ShellWords, AreReadByPythonAsTheyWere) {
  const uint64_t seed = std::random_device()();
  std::string script = "import sys\n", expected;
  for (const std::string& word : hostile_words(seed)) {
    if (word.find('\xff') != std::string::npos) continue;  // not UTF-8, as its scripts are
    script += "sys.stdout.write(" + in_python(word) + " + '\\0')\n";
    expected += word + '\0';
  }
  EXPECT_EQ(printed_by("python3", script), expected) << "seed " << seed;
}

TEST(ShellWords, PlainOnesStayAsTheyAre) {
  for (const char* word : {"out/step-000100", "--train.lr=1e-4", "a,b:c@d+e%f_g"})
    EXPECT_EQ(in_shell(word), word);
  EXPECT_EQ(in_shell("[0, 1]"), "'[0, 1]'");
  EXPECT_EQ(in_shell("print('a')"), "\"print('a')\"");
  EXPECT_EQ(in_shell(std::vector<std::string>{"capstan", "plan", "a b"}), "capstan plan 'a b'");
}

}  // namespace
}  // namespace capstan
