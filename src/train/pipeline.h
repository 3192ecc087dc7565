#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/batch/device_batch.h"
#include "data/batch/micro_batches.h"
#include "model/parts.h"
#include "parallel/pipeline_schedule.h"
#include "train/train_options.h"

namespace capstan {

// The micro-batches of a step on one stage of a pipeline, several of them in flight. What is sent
// between stages has one buffer at each end; what a micro-batch keeps is in a slot of the queue's
// arena.
class Pipeline {
 public:
  // Where micro-batches come from, in their order.
  struct Source {
    std::function<int64_t()> next_tokens;     // of the next one, before it is taken
    std::function<Batch(DeviceBatch&)> next;  // takes it; without tokens: this rank has none
  };
  // What all of them have in common.
  struct Step {
    int64_t micro_batches = 1;
    std::optional<StepKey> key;
    Scalar scale;
    Tensor loss;
  };

  // Allocates from the queue's arena, outside of a phase.
  Pipeline(Queue& q, const Parts& parts, const PipelineOptions& options, const BatchLimits& limits,
           DeviceBatch::Arrays arrays);

  // Runs all passes of a step, in phases of the arena, and returns when neighbours have taken what
  // this stage sends.
  void run(Queue& q, const Step& step, const Source& source);
  // Requests the memory that run() needs for the largest micro-batch; with `idle`, for none.
  void rehearse(Queue& q, const Step& step, bool idle);
  // Runs a step of largest micro-batches, as many as show what is live at a time.
  void rehearse_step(Queue& q, Step step);

  // On sim: the modelled seconds of all passes of one kind so far, and how many there were.
  struct Passes {
    double seconds = 0;
    double waited = 0;  // of them, by computation
    int64_t count = 0;
    double mean() const { return count > 0 ? seconds / static_cast<double>(count) : 0; }
  };
  const Passes& passes(PipelineAction::Do what) const { return passes_[what]; }
  const PipelineOptions& options() const { return options_; }

 private:
  using Way = Pipe::Way;
  struct Part {
    // Names of phases.
    std::string forward, backward, weights, idle_forward, idle_backward, idle_weights;
  };
  // What comes in by one way, and goes out.
  struct Link {
    Buffer landing, outbox;
    Work receiving, sending;
    size_t next = 0;  // the first action whose message has not been asked for
  };
  Link& link(Way way) { return links_[way == Way::down ? 0 : 1]; }
  Batch& batch_of(int64_t micro) { return batches_[static_cast<size_t>(micro % rooms())]; }
  int64_t rooms() const { return std::ssize(rooms_); }
  Transformer::Kept& kept(const PipelineAction& a) {
    return kept_[static_cast<size_t>(a.slot)][static_cast<size_t>(a.chunk)];
  }
  Transformer& part_of(const PipelineAction& a) const {
    return parts_[static_cast<size_t>(a.chunk)];
  }
  int piece_of(const PipelineAction& a) const;
  bool receives(const PipelineAction& a) const;

  const PipelineSchedule& schedule_for(int64_t micro_batches);
  void load(const PipelineAction& a);
  void perform(Queue& q, const PipelineAction& a, const Step& step);
  void forward(Queue& q, const PipelineAction& a, const Batch& batch, const Step& step);
  void backward(Queue& q, const PipelineAction& a, const Batch& batch, const Step& step);
  void weights(Queue& q, const PipelineAction& a, const Batch& batch, const Step& step);
  void stay_idle(Queue& q, const PipelineAction& a);
  // Whether the gradients of weights are computed apart.
  Transformer::Weights when_weights() const {
    return options_.kind == PipelineKind::zero_bubble ? Transformer::Weights::later
                                                      : Transformer::Weights::now;
  }
  // Asks for the next message of this way, if its size is known and no other was asked for.
  void ask(Queue& q, Way way);
  Buffer take(Queue& q, Way way, const Batch& batch, const char* name);
  void hand_on(Queue& q, Way way, const Buffer& out, int64_t message);
  // The rows for this rank's share of so many tokens.
  Tensor rows_for(const Buffer& buffer, int64_t tokens) const {
    return buffer->rows(0, parts_[0].share_of(tokens));
  }
  GraphKey graph_key(const PipelineAction& a, const Batch& batch, const Step& step) const;
  void begin_pass(const PipelineAction& a, const Step& step);

  Parts parts_;
  PipelineOptions options_;
  bool asks_ahead_;  // for messages, before they are needed
  int slots_ = 1;
  std::vector<Part> names_;         // by part
  std::vector<DeviceBatch> rooms_;  // micro-batches in flight; micro-batch m is in room m % rooms()
  std::vector<Batch> batches_;      // what is in them
  // Of the step that runs:
  const std::vector<PipelineAction>* actions_ = nullptr;
  const Source* source_ = nullptr;
  int64_t loaded_ = 0;                                // micro-batches
  std::vector<std::vector<Transformer::Kept>> kept_;  // by slot and part
  Link links_[2];
  std::array<Passes, 3> passes_;                   // by kind
  std::map<int64_t, PipelineSchedule> schedules_;  // of this stage, by micro-batches
};

// The units of each stage: those of its pieces, and for a tied head the embedding.
StageUnits units_of_stages(const ModelSpec& spec, const std::vector<int>& cuts, int stages);

}  // namespace capstan
