#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/dataset/samples.h"

namespace capstan {

// What max_seq_length limits. Token t is the input whose label is token t + 1, so n tokens make
// n - 1 inputs.
enum class Cut {
  inputs,  // max_seq_length inputs, so one token more: text files
  tokens,  // max_seq_length tokens in all, so one input fewer: instructions, as LitGPT counts
};

// A view of tokenized samples: all of a source, or some of them. Copies and parts share the samples
// and cost their numbers alone. Const methods are safe from several threads at once.
//
// A sample has two names. Its index in this dataset (from 0) is what the methods here, the sampler
// and batches take. Its number in the whole source, id_of, is what people are told: it is the same
// before and after a split.
class Dataset {
 public:
  Dataset();
  explicit Dataset(std::shared_ptr<const Samples> samples, Cut cut = Cut::inputs);

  // Adds to a dataset that holds all of its samples (else Fault::bug). Samples that are shared are
  // copied first. `first_target` is the index of the first token that counts for the loss; those
  // before it are seen, not learned (a masked prompt). 0 and 1 are the same, since nothing predicts
  // token 0. With first_target == tokens.size() nothing counts. At least two tokens (Fault::bug).
  void add(std::span<const int32_t> tokens, int64_t first_target);
  // With several parts that count (the turns of a conversation).
  void add(std::span<const int32_t> tokens, std::span<const TargetSpan> targets,
           SampleOrigin origin = {});
  // A name for SampleOrigin::file. The same conditions.
  int32_t add_file(const std::string& name);

  int64_t size() const { return is_part_ ? std::ssize(*part_) : samples_->arrays().size(); }
  std::span<const int32_t> tokens_of(int64_t sample) const;
  // In order, apart, none empty.
  std::span<const TargetSpan> target_spans_of(int64_t sample) const;
  // The first token that counts, or the number of tokens where none does.
  int64_t first_target_of(int64_t sample) const;
  int64_t longest() const { return longest_; }  // tokens of the longest sample
  int64_t tokens() const { return tokens_; }    // of all samples together

  int64_t id_of(int64_t sample) const;  // number in the whole source, from 0
  const SampleOrigin& origin_of(int64_t sample) const;
  // "train.jsonl:17" where that is known, else "sample 16": for messages.
  std::string where_of(int64_t sample) const;

  Cut cut() const { return cut_; }
  void set_cut(Cut cut) { cut_ = cut; }
  // Inputs that a run with this max_seq_length keeps of any sample.
  int64_t max_inputs(int64_t max_seq_length) const {
    return cut_ == Cut::tokens ? max_seq_length - 1 : max_seq_length;
  }
  // What a sample gives to a batch, after the cut: inputs, and those of them whose label counts.
  int64_t inputs_of(int64_t sample, int64_t max_seq_length) const;
  int64_t targets_of(int64_t sample, int64_t max_seq_length) const;

  // The samples with these indices, in this order, as a view of the same memory.
  Dataset part(std::span<const int64_t> samples) const;
  const std::shared_ptr<const Samples>& samples() const { return samples_; }

 private:
  size_t at(int64_t sample) const;  // index in the arrays; checks
  OwnedSamples& own();              // what add writes to

  std::shared_ptr<const Samples> samples_;
  OwnedSamples* owned_ = nullptr;  // the same, while this dataset may change it
  std::shared_ptr<const std::vector<int64_t>> part_;
  bool is_part_ = false;
  Cut cut_ = Cut::inputs;
  int64_t longest_ = 0, tokens_ = 0;
};

// What a run that cuts samples at `max_seq_length` makes of a dataset: said once before it starts.
struct DatasetCounts {
  int64_t inputs = 0;      // tokens in one epoch, without padding
  int64_t targets = 0;     // of them, those whose label counts
  int64_t longest = 0;     // inputs of the longest sample
  int64_t truncated = 0;   // samples that lose tokens
  int64_t all_masked = 0;  // samples without a target: they cost time and teach nothing
};
DatasetCounts count(const Dataset& dataset, int64_t max_seq_length);

// Every sample is in exactly one of the two, in its old order. Both are views of the same samples.
struct Split {
  Dataset train, validation;
};
// round(fraction * size) samples drawn by `seed` are held out: at least one if fraction > 0, never
// all. Throws Fault::usage for a fraction outside [0, 1), Fault::file when there is no sample to
// spare.
Split split(const Dataset& dataset, double validation_fraction, uint64_t seed);

}  // namespace capstan
