// What goes to stdout and what to stderr, and what a terminal shows.
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "base/wrapped.h"
#include "program.h"
#include "support/terminal.h"

namespace capstan::cli_test {
namespace {

class Output : public Cli {
 protected:
  // A training that goes on until it is told to stop.
  static Words endless() { return tiny({"--train.max_steps=100000000"}); }

  // A pipe that the program writes to and the test reads from.
  class Pipe {
   public:
    explicit Pipe(const fs::path& path) : path_(path) {
      EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
      // Opened before there is a writer, who would wait for a reader.
      end_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
    }
    ~Pipe() { close(); }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    const char* path() const { return path_.c_str(); }
    void close() {
      if (end_ >= 0) ::close(end_);
      end_ = -1;
    }
    // Up to this text, or to the end.
    std::string read_until(const std::string& text) const {
      ::fcntl(end_, F_SETFL, 0);  // from here on it waits
      std::string got;
      std::array<char, 256> piece{};
      while (got.find(text) == std::string::npos) {
        const ssize_t n = ::read(end_, piece.data(), piece.size());
        if (n <= 0) break;
        got.append(piece.data(), static_cast<size_t>(n));
      }
      return got;
    }

   private:
    fs::path path_;
    int end_ = -1;
  };
  // Runs with stderr, and with stdout unless a file is named, on a terminal.
  Outcome run_on_terminal(const Words& words, const char* stdout_path = nullptr) const {
    Terminal terminal(80);
    const std::string device = ::ttyname(terminal.there());
    const pid_t pid = start(words, stdout_path != nullptr ? stdout_path : device.c_str(),
                            "/dev/null", device.c_str());
    std::string shown;
    int status = 0;
    while (::waitpid(pid, &status, WNOHANG) == 0) shown += terminal.text(20, 1);
    shown += terminal.text(20, 20);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            stdout_path != nullptr ? slurp(stdout_path) : "", shown};
  }
};

TEST_F(Output, OfATrainingIsOnStdoutAndStderrHasWarningsAlone) {
  const Outcome o = run(tiny());
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err, "");
  expect_holds(o.out, {"trainable parameters", "training samples", "  memory             planned",
                       "Verifying settings ...",
                       "Epoch 1 | iter 2 step 1 | loss train: ", "Final evaluation | val loss",
                       "| - Training Time", "| - Saved To", "saved to out/pretrain/final"});
  EXPECT_EQ(o.out.find_first_of("\r\x1b"), std::string::npos) << "no bar";
  const Outcome warned = run(tiny({"--train.lr_warmup_steps=3", "--out_dir=warned"}));
  EXPECT_EQ(warned.err.rfind("warning: the warm-up of 3 steps is as long as the run", 0), 0U);
  EXPECT_EQ(std::count(warned.err.begin(), warned.err.end(), '\n'), 1) << warned.err;
}

TEST_F(Output, LinesAreThereWhenTheyAreSaid) {
  const Pipe pipe(at("pipe"));
  const pid_t pid = start(endless(), pipe.path());
  expect_holds(pipe.read_until("step 3 |"), {"Epoch 1 | iter 2 step 1 |"});
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), 0) << "it is still running";
  ::kill(pid, SIGTERM);
  pipe.read_until("there is no such line");
  EXPECT_EQ(finish(pid, pipe.path()).code, 128 + SIGTERM);
}

TEST_F(Output, AReaderThatGoesAwayStopsNoTraining) {
  Pipe pipe(at("pipe"));
  const pid_t pid = start(tiny(), pipe.path());
  pipe.read_until("\n");
  pipe.close();  // as `head -1`
  const Outcome o = finish(pid, pipe.path());
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err, "");
  EXPECT_TRUE(fs::exists(at(made) / "model.safetensors"));
}

TEST_F(Output, AFullDiskUnderTheLogStopsNoTraining) {
  const Outcome o = run(tiny(), "/dev/full");
  EXPECT_EQ(o.code, 0);
  expect_holds(o.err, {"warning: standard output: cannot write: No space left on device"});
  EXPECT_TRUE(fs::exists(at(made) / "model.safetensors"));
}

TEST_F(Output, OnOneTerminalBarAndLinesDoNotMix) {
  const Outcome o = run_on_terminal(tiny({"--train.max_steps=6", "--eval.interval=2"}));
  ASSERT_EQ(o.code, 0) << o.err;
  int validations = 0, bars = 0;
  for (const std::string& line : lines_on_screen(o.err)) {
    validations += std::regex_match(
        line, std::regex("iter \\d+: val loss \\d+\\.\\d{4}, val time: \\d+\\.\\d\\d ms"));
    bars += line.find("%|") != std::string::npos;
    EXPECT_EQ(line.find("Epoch"), std::string::npos) << "the bar says it: " << line;
  }
  EXPECT_EQ(validations, 2) << o.err;
  EXPECT_EQ(bars, 1) << "as it was in the end\n" << o.err;
  expect_holds(o.err, {"100%|", "6/6 [", "saved to out/pretrain/final"});
}

TEST_F(Output, WithStdoutInAFileTheTerminalHasTheBarAlone) {
  const Outcome o = run_on_terminal(tiny(), at("log").c_str());
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out.find_first_of("\r\x1b"), std::string::npos) << o.out;
  expect_holds(o.out, {"Epoch 1 | iter 2 step 1 |", "saved to "});
  const auto lines = lines_on_screen(o.err);
  ASSERT_EQ(lines.size(), 1U) << o.err;
  EXPECT_EQ(lines[0].rfind("100%|", 0), 0U) << lines[0];
}

TEST_F(Output, OfThePlanForMachinesIsAloneOnStdout) {
  write("r.yaml", "optimizer.betas: [0.8, 0.9]\n");
  Words words = tiny({"--config=r.yaml", "--optimizer=SGD", "--json"});
  words.insert(words.begin(), "plan");
  const Outcome o = run(words);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(nlohmann::json::parse(o.out)["fits"].get<bool>());
  expect_holds(o.err, {"optimizer.betas (r.yaml:1:1): dropped"});
}

TEST_F(Output, CountsOneOfAThing) {
  const Outcome one = run(tiny({"--train.max_steps=1", "--train.lr_warmup_steps=1"}));
  ASSERT_EQ(one.code, 0) << one.err;
  expect_holds(one.out, {"\n1 step, ", "a Llama of 1 layer and 16 channels"});
  expect_holds(one.err, {"the warm-up of 1 step is as long as the run of 1 or longer:"});
  expect_holds(slurp(at("out/pretrain/report.html")), {"Trained 1 step in"});
  write("one.json", R"([{"instruction": "a", "output": "b"}])");
  const Outcome e = run({"evaluate", made, "--data=one.json"});
  ASSERT_EQ(e.code, 0) << e.err;
  expect_holds(e.out, {" tokens of 1 sample\n"});
  EXPECT_TRUE(std::regex_search(e.err, std::regex("\\d+ tokens in "))) << e.err;
  const Outcome g = run({"generate", made, "--max_new_tokens=1", "--temperature=0"});
  EXPECT_NE(g.err.find("1 token in "), std::string::npos) << g.err;
}

TEST_F(Output, HelpFitsOnAScreenAndItsReaderMayGoAway) {
  for (const char* command : {"plan", "pretrain", "finetune", "generate", "doctor"}) {
    std::istringstream lines(run({command, "--help"}).out);
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(columns_of(line), 100) << command << ": " << line;
  }
  // With SIGPIPE ignored, as by a parent that wants errors instead.
  const std::string script = fmt::format(
      "trap '' PIPE; '{}' finetune --help 2>'{}' | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}",
      CAPSTAN_PROGRAM, at("stderr").string());
  for (int i = 0; i < 20; ++i) {
    const pid_t pid = start_program("/bin/bash", {"bash", "-c", script});
    const Outcome o = finish(pid);
    EXPECT_EQ(o.out, "0\n");
    EXPECT_EQ(o.err, "");
  }
}

}  // namespace
}  // namespace capstan::cli_test
