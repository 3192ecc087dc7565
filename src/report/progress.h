#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace capstan {

// "42% ███░░░ text" in less than `columns` columns: the bar gives way first, then the end of the
// text, which must be ASCII.
std::string progress_bar(double fraction, const std::string& text, int columns);

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
    double val_loss = -1;  // negative: none was measured after this step
    int64_t tokens = 0;    // of this step
  };
  // A step with a validation loss gets a line that stays, whatever the interval.
  void step(const Line& line);
  // So many of the seconds up to now were not training (but a validation, say). They do not count
  // in seconds() and the speed; the time to go has its share of them.
  void exclude(double seconds) { excluded_ += seconds; }

  // A line of its own above the bar.
  void say(const std::string& text);
  // Ends the bar; more calls do nothing.
  void finish();

  int64_t tokens() const { return tokens_; }
  double seconds() const;  // of training, since the start

 private:
  std::string render(const Line& line) const;

  int64_t total_, interval_, done_ = 0, tokens_ = 0;
  bool terminal_, open_ = false;
  double excluded_ = 0;
  std::string last_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace capstan
