#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace capstan {

// Where a run is, for one drawing of the bar.
struct ProgressState {
  int64_t done = 0, total = 0;  // total 0: not known
  double elapsed = 0;           // seconds since this process began with the first step it made
  double seconds_per_step = 0;  // not above 0: unknown, shown as "?"
  std::string notes = {};       // ASCII: "loss=2.134, lr=1.2e-04"
};
// "  3%|█▍        | 12/400 [00:05<02:41, 2.40it/s, notes]" in less than `columns` columns: the bar
// gives way first, then the end of the text. Slower than a step a second it says "1.25s/it".
// Without a total "12it [00:05, 2.40it/s, notes]".
std::string progress_bar(const ProgressState& state, int columns);

// LitGPT's lines, without the newline. An iteration is a micro-batch; a step is one of the
// optimizer.
struct IterationLine {
  int64_t epoch = 1, iter = 0, step = 0;
  double loss = 0;
  std::optional<double> val_loss = {};  // the last that was measured; "n/a" before
  double seconds = 0;                   // of this iteration
  bool stepped = false;                 // it ended with an optimizer step
};
// "Epoch 1 | iter 4 step 1 | loss train: 2.516, val: n/a | iter time: 12.34 ms (step)"
std::string iteration_line(const IterationLine& line);
// "iter 40: val loss 1.2345, val time: 67.89 ms"
std::string validation_line(int64_t iter, double val_loss, double seconds);
// "Final evaluation | val loss: 1.235 | val ppl: 3.437"
std::string final_evaluation_line(double val_loss);

// How far a run is, as a bar on stderr where that is a terminal, drawn at most ten times a second;
// elsewhere nothing is shown. Belongs to one thread.
class Progress {
 public:
  // A resumed run has `done` of its `total` steps, 0 where it is not known, behind it.
  explicit Progress(int64_t total_steps, int64_t done = 0);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  struct Line {
    double loss = 0;
    double lr = 0;
    int64_t tokens = 0;  // of this step
  };
  void step(const Line& line);
  // So many of the seconds up to now were not training (but a validation, say). They do not count
  // in seconds() and the speed; the time to go has its share of them.
  void exclude(double seconds) { excluded_ += seconds; }

  // Whether the bar is on the terminal that stdout is: a line for each step would say the same.
  bool replaces_lines() const;
  // Draws the last state and ends the bar; more calls do nothing.
  void finish();

  double seconds() const;  // of training, since the start

 private:
  std::string bar() const;
  void draw();

  int64_t total_, first_, done_, tokens_ = 0;
  bool terminal_;
  bool drawn_ = true;  // the bar on the screen shows the last step
  double excluded_ = 0;
  Line last_;
  std::chrono::steady_clock::time_point start_, last_draw_;
};

}  // namespace capstan
