#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/dataset/samples.h"

namespace capstan {

// How max_seq_length counts. Token t is the input whose label is token t + 1, so n tokens make n -
// 1 inputs.
enum class Cut {
  inputs,  // max_seq_length inputs, one token more: text files
  tokens,  // max_seq_length tokens, one input fewer: instructions, as in LitGPT
};

// A view of tokenized samples: all of a source, or some of them. Copies and parts share the samples
// and only store their numbers. Const methods are thread safe.
//
// A sample has two numbers. Its index in this dataset (from 0) is for the methods here, the sampler
// and batches. Its number in the whole source, id_of, is for messages: a split does not change it.
class Dataset {
 public:
  Dataset();
  explicit Dataset(std::shared_ptr<const Samples> samples, Cut cut = Cut::inputs);

  // Adds a sample to a dataset that holds all of its samples (else Fault::bug). Copies shared
  // samples first. `first_target` is the index of the first token that counts for the loss; earlier
  // tokens are context only (a masked prompt). 0 and 1 are equivalent, since nothing predicts token
  // 0. With first_target == tokens.size() there are no targets. Needs at least two tokens
  // (Fault::bug).
  void add(std::span<const int32_t> tokens, int64_t first_target);
  // With several target spans (the turns of a conversation).
  void add(std::span<const int32_t> tokens, std::span<const TargetSpan> targets,
           SampleOrigin origin = {});
  // A name for SampleOrigin::file. The same conditions apply.
  int32_t add_file(const std::string& name);

  int64_t size() const { return is_part_ ? std::ssize(*part_) : samples_->arrays().size(); }
  std::span<const int32_t> tokens_of(int64_t sample) const;
  // In order, disjoint, not empty.
  std::span<const TargetSpan> target_spans_of(int64_t sample) const;
  int64_t longest() const { return longest_; }  // tokens of the longest sample
  int64_t tokens() const { return tokens_; }    // of all samples together

  int64_t id_of(int64_t sample) const;  // number in the whole source, from 0
  const SampleOrigin& origin_of(int64_t sample) const;
  // "train.jsonl:17" if known, else "sample 16": for messages.
  std::string where_of(int64_t sample) const;

  Cut cut() const { return cut_; }
  void set_cut(Cut cut) { cut_ = cut; }
  // The most inputs that a run with this max_seq_length keeps of any sample.
  int64_t max_inputs(int64_t max_seq_length) const {
    return cut_ == Cut::tokens ? max_seq_length - 1 : max_seq_length;
  }
  // A sample's part of a batch after truncation: its inputs, and how many of their labels are
  // targets.
  int64_t inputs_of(int64_t sample, int64_t max_seq_length) const;
  int64_t targets_of(int64_t sample, int64_t max_seq_length) const;

  // The samples with these indices, in this order, as a view of the same memory.
  Dataset part(std::span<const int64_t> samples) const;
  const std::shared_ptr<const Samples>& samples() const { return samples_; }

 private:
  size_t at(int64_t sample) const;  // index in the arrays; bounds-checked
  OwnedSamples& own();              // the samples that add writes to

  std::shared_ptr<const Samples> samples_;
  OwnedSamples* owned_ = nullptr;  // the same, while only this dataset uses it
  std::shared_ptr<const std::vector<int64_t>> part_;
  bool is_part_ = false;
  Cut cut_ = Cut::inputs;
  int64_t longest_ = 0, tokens_ = 0;
};

// Statistics of a dataset truncated at `max_seq_length`, printed once before a run.
struct DatasetCounts {
  int64_t inputs = 0;      // tokens per epoch, without padding
  int64_t targets = 0;     // those whose label is a target
  int64_t longest = 0;     // inputs of the longest sample
  int64_t truncated = 0;   // truncated samples
  int64_t all_masked = 0;  // samples without a target: they cost time and teach nothing
};
DatasetCounts count(const Dataset& dataset, int64_t max_seq_length);

// Every sample is in exactly one of the two, in its original order. Both are views of the same
// samples.
struct Split {
  Dataset train, validation;
};
// Holds out round(fraction * size) samples drawn by `seed`: at least one if fraction > 0, never
// all. Throws Fault::usage for a fraction outside [0, 1), and Fault::file if there are too few
// samples.
Split split(const Dataset& dataset, double validation_fraction, uint64_t seed);

}  // namespace capstan
