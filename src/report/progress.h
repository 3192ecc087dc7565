#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace capstan {

// One line that says how far a run is: a bar that is redrawn where stderr is a terminal, else a
// plain line every `interval` steps.
class Progress {
 public:
  Progress(int64_t total_steps, int64_t interval);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  struct Line {
    double loss = 0;
    double lr = 0;
    double val_loss = -1;  // negative: not known yet
    int64_t tokens = 0;    // of this step
  };
  void step(const Line& line);

  // A line of its own above the bar.
  void say(const std::string& text);
  // Ends the bar; more calls do nothing.
  void finish();

  int64_t tokens() const { return tokens_; }
  double seconds() const;

 private:
  std::string render(const Line& line) const;

  int64_t total_, interval_, done_ = 0, tokens_ = 0;
  bool terminal_, open_ = false;
  std::string last_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace capstan
