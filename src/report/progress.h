#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace capstan {

// The width of the terminal that stderr is; 80 if it is unknown.
int terminal_columns();

// The state of a run, to draw the bar once.
struct ProgressState {
  int64_t done = 0, total = 0;  // total 0: unknown
  double elapsed = 0;           // seconds since this process began its first step
  double seconds_per_step = 0;  // 0 or less: unknown, shown as "?"
  std::string notes = {};       // ASCII: "loss=2.134, lr=1.2e-04"
};
// "  3%|█▍        | 12/400 [00:05<02:41, 2.40it/s, notes]" in fewer than `columns` columns: first
// the bar shrinks, then the text is cut. Below one step per second it shows "1.25s/it". Without a
// total: "12it [00:05, 2.40it/s, notes]".
std::string progress_bar(const ProgressState& state, int columns);

// LitGPT's lines, without the newline. An iteration is a micro-batch; a step is an optimizer step.
struct IterationLine {
  int64_t epoch = 1, iter = 0, step = 0;
  double loss = 0;
  std::optional<double> val_loss = {};  // the latest one; "n/a" before the first
  double seconds = 0;                   // of this iteration
  bool stepped = false;                 // it ended with an optimizer step
};
// "Epoch 1 | iter 4 step 1 | loss train: 2.516, val: n/a | iter time: 12.34 ms (step)"
std::string iteration_line(const IterationLine& line);
// "iter 40: val loss 1.2345, val time: 67.89 ms"
std::string validation_line(int64_t iter, double val_loss, double seconds);
// "Final evaluation | val loss: 1.235 | val ppl: 3.437"
std::string final_evaluation_line(double val_loss);

// A progress bar on stderr if that is a terminal, drawn at most ten times a second; elsewhere
// nothing is shown. Not thread safe.
class Progress {
 public:
  // A resumed run has already done `done` of its `total` steps (0: total unknown).
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
  // Excludes this many seconds (of a validation, say) from seconds() and the speed. The remaining
  // time still includes a share of them.
  void exclude(double seconds) { excluded_ += seconds; }

  // Whether the bar is on the same terminal as stdout: then a line per step would only repeat it.
  bool replaces_lines() const;
  // Draws the last state and ends the bar; later calls do nothing.
  void finish();

  double seconds() const;  // training time since the start

 private:
  std::string bar() const;
  void draw();

  int64_t total_, first_, done_, tokens_ = 0;
  bool terminal_;
  bool drawn_ = true;  // the bar on screen shows the last step
  double excluded_ = 0;
  Line last_;
  std::chrono::steady_clock::time_point start_, last_draw_;
};

}  // namespace capstan
