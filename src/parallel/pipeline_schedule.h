#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

// What each stage of a pipeline does, and in which order. Pure: there are no devices in it.
namespace capstan {

// A model is cut into stages · chunks pieces of consecutive blocks. Piece k belongs to stage k %
// stages, as its chunk k / stages. The forward pass of a micro-batch goes through the pieces from
// the first to the last, its backward pass back.
struct PipelineShape {
  int stages = 1, chunks = 1;
  int micros = 1;  // micro-batches of a step
  int pieces() const { return stages * chunks; }
  int piece_of(int stage, int chunk) const { return chunk * stages + stage; }
};

enum class PipelineKind : uint8_t {
  one_f_one_b,  // as soon as a stage has its first backward pass it does one of each in turn; of
                // several chunks ("interleaved") the bubble is that much shorter (Narayanan et al.)
  zero_bubble,  // the same, with the gradients of weights computed apart and later, where a stage
                // would wait (ZB-H1, Qi et al.); one chunk. Keeps no more micro-batches than 1F1B
};

struct PipelineAction {
  enum Do : uint8_t {
    forward,
    backward,  // zero_bubble: the gradients of the piece's input alone
    weights,   // zero_bubble: the gradients of its weights
  };
  Do what{};
  int micro = 0, chunk = 0;
  // Where what the micro-batch keeps of this chunk is, from its forward pass to its last action.
  int slot = 0;

  bool operator==(const PipelineAction&) const = default;
};

// The actions of one stage.
struct PipelineSchedule {
  std::vector<PipelineAction> actions;
  int slots = 0;
};

// Of all stages. With fewer micro-batches than stages, or a number of them that the stages do not
// divide, it is as short as the same rules allow.
std::vector<PipelineSchedule> pipeline_schedule(PipelineKind kind, const PipelineShape& shape);

// Throws Fault::bug, naming stage and action, unless every stage has each pass of each micro-batch
// and chunk once, in an order in which no stage waits for ever, with slots that are free when they
// are taken, and messages that are taken in the order in which they are sent, one on each link at a
// time.
void check(PipelineKind kind, const PipelineShape& shape, std::span<const PipelineSchedule> all);

// How long the actions of a chunk take.
struct PipelineCosts {
  double forward = 1, backward = 2, weights = 0;  // zero_bubble: backward 1, weights 1
  double send = 0;                                // from one stage to the next
};
// When the last stage is done if every action starts as soon as it can.
double pipeline_seconds(const PipelineShape& shape, std::span<const PipelineSchedule> all,
                        const PipelineCosts& costs);
// With costs of each stage.
double pipeline_seconds_by_stage(const PipelineShape& shape, std::span<const PipelineSchedule> all,
                                 std::span<const PipelineCosts> costs);

// Cuts blocks with these costs into `pieces` of consecutive ones, at least one each, so that the
// most expensive piece costs least; the first and the last piece have `before` and `after` besides
// (the embedding; the head and the loss). Returns where each piece begins, and where the last ends.
std::vector<int> balanced_cuts(std::span<const double> blocks, int pieces, double before,
                               double after);

}  // namespace capstan
