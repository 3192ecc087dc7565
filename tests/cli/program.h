#pragma once

// The program as a user meets it: command lines in, exit code, stdout and stderr out.

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/files.h"
#include "support/temp_folder.h"

extern char** environ;

namespace capstan::cli_test {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// The text without its line breaks, which depend on how long names are.
inline std::string unwrapped(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) line += line.empty() ? word : " " + word;
  return line;
}

struct Outcome {
  int code = -1;  // 128 + the signal, where one ended it
  std::string out, err;
  double seconds = 0;  // of the processor: a busy machine does not add to it
};

inline void expect_holds(const std::string& text, const Words& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in:\n" << text;
}

// A folder in which the program runs, with a text to train on.
class Cli : public testing::Test {
 protected:
  Cli() {
    ::setenv("OMP_NUM_THREADS", "1", 1);  // threads of a tiny model spend their time waiting
    ::setenv("CAPSTAN_CACHE", (folder.path() / "cache").c_str(), 1);
    std::string text;
    for (int i = 0; i < 40; ++i) text += "Once there was a llama. It ate grass.\n";
    write("text.txt", text);
  }

  void write(const std::string& name, std::string_view text) const {
    fs::create_directories((folder.path() / name).parent_path());
    std::ofstream(folder.path() / name, std::ios::binary) << text;
  }
  fs::path at(const std::string& name) const { return folder.path() / name; }

  Outcome run(Words words, const char* stdout_path = nullptr) const {
    return finish(start(std::move(words), stdout_path), stdout_path);
  }
  // With this text as its input.
  Outcome run_with(const std::string& input, Words words) const {
    write("stdin", input);
    return finish(start(std::move(words), nullptr, at("stdin").c_str()));
  }

  pid_t start(Words words, const char* stdout_path = nullptr, const char* stdin_path = "/dev/null",
              const char* stderr_path = nullptr) const {
    words.insert(words.begin(), CAPSTAN_PROGRAM);
    return start_program(CAPSTAN_PROGRAM, std::move(words), stdout_path, stdin_path, stderr_path);
  }
  // Another program; the first word is its name.
  pid_t start_program(const char* program, Words words, const char* stdout_path = nullptr,
                      const char* stdin_path = "/dev/null",
                      const char* stderr_path = nullptr) const {
    const fs::path out = stdout_path != nullptr ? stdout_path : at("stdout");
    const fs::path err = stderr_path != nullptr ? stderr_path : at("stderr");
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, folder.path().c_str());
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, 0, stdin_path, O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), kFlags, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), kFlags, 0600);
    pid_t pid = 0;
    EXPECT_EQ(posix_spawn(&pid, program, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
  }

  Outcome finish(pid_t pid, const char* stdout_path = nullptr) const {
    int status = 0;
    rusage usage{};
    EXPECT_EQ(wait4(pid, &status, 0, &usage), pid);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    const double seconds =
        static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
        1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    return {code, stdout_path != nullptr ? "" : slurp(at("stdout")), slurp(at("stderr")), seconds};
  }

  static std::string slurp(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  // The command must fail with this code, no result on stdout, and these words on stderr. A
  // training may have told of itself before.
  void expect_refused(int code, const Words& words, const Words& parts) const {
    SCOPED_TRACE(testing::PrintToString(words));
    const Outcome o = run(words);
    EXPECT_EQ(o.code, code) << o.err;
    EXPECT_EQ(o.out.find("saved to"), std::string::npos) << o.out;
    if (o.out.find(" trainable parameters") == std::string::npos) {
      EXPECT_EQ(o.out, "");
    }
    expect_holds(o.err, parts);
    EXPECT_EQ(o.err.find("bug in capstan"), std::string::npos) << o.err;
  }

  // A short run, of a model that `more` tells.
  static Words brief(const Words& more) {
    Words words = {"pretrain",
                   "--data.train_data_path=text.txt",
                   "--logger_name=csv",
                   "--train.lr_warmup_steps=0",
                   "--train.max_seq_length=64",
                   "--train.max_steps=3",
                   "--train.global_batch_size=4",
                   "--train.micro_batch_size=2"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // A model so small that a run takes a fraction of a second.
  static Words tiny(const Words& more = {}) {
    Words words = brief({"--model.hidden_size=16", "--model.intermediate_size=24",
                         "--model.num_hidden_layers=1", "--model.num_attention_heads=2",
                         "--model.num_key_value_heads=1"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void train_tiny(const Words& more = {}) const {
    const Outcome o = run(tiny(more));
    ASSERT_EQ(o.code, 0) << o.err;
  }

  TempFolder folder;
  const std::string made = "out/pretrain/final";
};

}  // namespace capstan::cli_test
