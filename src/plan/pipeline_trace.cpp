#include "plan/pipeline_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"

namespace capstan {
namespace {

using Do = PipelineAction::Do;

class Timeline {
 public:
  explicit Timeline(const PipelineStep& step)
      : step_(step),
        clocks_(step.schedules.size()),
        traces_(step.schedules.size()),
        forward_(static_cast<size_t>(step.shape.micros * step.shape.pieces())),
        backward_(forward_.size()) {}

  TraceFile make() {
    run_passes();
    const double passes = *std::max_element(clocks_.begin(), clocks_.end());
    const double end = passes + *std::max_element(step_.rests.begin(), step_.rests.end());
    TraceFile file;
    for (size_t s = 0; s < traces_.size(); ++s) {
      wait(s, passes, "for the passes of other stages");
      pass(s, step_.rests[s], {.name = "update", .note = "and all else besides passes"});
      wait(s, end, "for the updates of other stages");
      traces_[s].finish(end, "step");
      file.processes.push_back({static_cast<int>(s), name_of(s), std::move(traces_[s])});
    }
    file.flows = std::move(flows_);
    return file;
  }

 private:
  // Where a pass is among the events of its stage, and when it is done.
  struct Done {
    bool is = false;
    TraceFlow::End event;
    double time = 0;
  };

  // Each stage goes on as far as it can, in turn, until all are done.
  void run_passes() {
    std::vector<size_t> next(traces_.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t s = 0; s < traces_.size(); ++s) {
        const auto& actions = step_.schedules[s].actions;
        for (; next[s] < actions.size() && perform(s, actions[next[s]]); ++next[s]) moved = true;
      }
    }
    for (size_t s = 0; s < traces_.size(); ++s)
      require(next[s] == step_.schedules[s].actions.size(), Fault::bug,
              "pipeline: stage {} waits for ever", s);
  }

  // False if what it needs is not done yet.
  bool perform(size_t stage, const PipelineAction& a) {
    const PipelineShape& shape = step_.shape;
    const PipelineCosts& costs = step_.costs[stage];
    const int piece = shape.piece_of(static_cast<int>(stage), a.chunk);
    const bool down = a.what == Do::forward, up = a.what == Do::backward;
    const Done* const needed = down && piece > 0 ? &at(forward_, a.micro, piece - 1)
                               : up && piece + 1 < shape.pieces()
                                   ? &at(backward_, a.micro, piece + 1)
                                   : nullptr;
    if (needed != nullptr && !needed->is) return false;
    const char* const name = down ? "forward" : up ? "backward" : "weights";
    if (needed != nullptr) receive(stage, a, *needed, down ? Lane::receive_down : Lane::receive_up);
    const double seconds = down ? costs.forward : up ? costs.backward : costs.weights;
    const size_t event = pass(stage, seconds,
                              {.name = fmt::format("{} {}", name, a.micro),
                               .note = shape.chunks > 1 ? fmt::format("chunk {}", a.chunk) : ""});
    if (needed != nullptr)
      flows_.push_back({down ? "activations" : "gradients", needed->event, {stage, event}});
    if (down || up)
      at(down ? forward_ : backward_, a.micro, piece) = {true, {stage, event}, clocks_[stage]};
    return true;
  }

  void receive(size_t stage, const PipelineAction& a, const Done& sent, Lane lane) {
    const double send = step_.shape.stages > 1 ? step_.costs[stage].send : 0;
    const bool down = lane == Lane::receive_down;
    traces_[stage].add({.name = fmt::format("{} {}", down ? "activations" : "gradients", a.micro),
                        .row = Trace::row(lane),
                        .begin = sent.time,
                        .end = sent.time + send,
                        .bytes = step_.message_bytes,
                        .note = fmt::format("from stage {}", sent.event.process)});
    wait(stage, sent.time + send,
         fmt::format("for {} {} of stage {}", down ? "forward" : "backward", a.micro,
                     sent.event.process));
  }

  void wait(size_t stage, double until, std::string why) {
    if (until > clocks_[stage]) until_then(stage, {.name = "wait", .note = std::move(why)}, until);
  }

  // The next event of the lane of computation; returns its number.
  size_t pass(size_t stage, double seconds, TraceEvent event) {
    return until_then(stage, std::move(event), clocks_[stage] + seconds);
  }
  size_t until_then(size_t stage, TraceEvent event, double end) {
    event.row = Trace::row(Lane::compute);
    event.begin = std::exchange(clocks_[stage], end);
    event.end = end;
    return traces_[stage].add(std::move(event));
  }

  Done& at(std::vector<Done>& done, int micro, int piece) const {
    return done[static_cast<size_t>(micro * step_.shape.pieces() + piece)];
  }

  std::string name_of(size_t stage) const {
    const auto first = static_cast<int>(stage) * step_.ranks;
    if (step_.ranks == 1) return fmt::format("stage {}: rank {}", stage, first);
    return fmt::format("stage {}: ranks {} to {}", stage, first, first + step_.ranks - 1);
  }

  const PipelineStep& step_;
  std::vector<double> clocks_;
  std::vector<Trace> traces_;
  std::vector<Done> forward_, backward_;  // by micro-batch and piece
  std::vector<TraceFlow> flows_;
};

}  // namespace

TraceFile pipeline_trace(const PipelineStep& step) {
  return Timeline(step).make();
}

}  // namespace capstan
