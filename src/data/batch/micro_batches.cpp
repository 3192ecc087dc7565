#include "data/batch/micro_batches.h"

#include "base/error.h"
#include "base/units.h"

namespace capstan {
namespace {

int64_t checked_largest(const Dataset& dataset, int64_t micro_batch, const BatchOptions& options) {
  require(dataset.size() > 0, Fault::file, "the data has no samples: there is nothing to train on");
  require(micro_batch > 0, Fault::usage, "the micro-batch must be 1 or more, not {}", micro_batch);
  require(dataset.max_inputs(options.max_seq_length) > 0, Fault::usage,
          "max_seq_length must be {} or more, not {}", dataset.cut() == Cut::tokens ? 2 : 1,
          options.max_seq_length);
  require(options.multiple > 0 && options.vocab > 0, Fault::bug,
          "batches need a vocabulary (got {}) and a multiple (got {}) of 1 or more", options.vocab,
          options.multiple);
  const int64_t tokens = largest_batch(dataset, micro_batch, options);
  require(tokens <= INT32_MAX, Fault::usage,
          "a micro-batch of {} has up to {} tokens, above the limit of {} for 32-bit positions. "
          "Make the micro-batch or max_seq_length smaller",
          count(micro_batch, "sample"), tokens, INT32_MAX);
  return tokens;
}

}  // namespace

int64_t count_targets(const Dataset& dataset, std::span<const int64_t> samples,
                      int64_t max_seq_length) {
  int64_t targets = 0;
  for (const int64_t s : samples) targets += dataset.targets_of(s, max_seq_length);
  return targets;
}

MicroBatches::MicroBatches(const Dataset& dataset, int64_t micro_batch, const BatchOptions& options,
                           const Ranks& ranks)
    : dataset_(dataset),
      micro_batch_(micro_batch),
      options_(options),
      max_tokens_(checked_largest(dataset, micro_batch, options)),
      batch_(max_tokens_, max_documents() + (options.shares > 1 ? 1 : 0)),
      ranks_(ranks) {}

void MicroBatches::start(std::span<const int64_t> samples) {
  all_ = samples;
  current_ = {};
  made_ = false;
  returned_ = passed_ = 0;
  targets_ = count_targets(dataset_, samples, options_.max_seq_length);
  for (int64_t before = 0; before < ranks_.rank; ++before) passed_ += tokens_of(samples_of(before));
}

int64_t MicroBatches::count() const {
  const int64_t at_once = micro_batch_ * ranks_.size;
  return (static_cast<int64_t>(all_.size()) + at_once - 1) / at_once;
}

std::span<const int64_t> MicroBatches::samples_of(int64_t number) const {
  const auto first = std::min(static_cast<size_t>(number * micro_batch_), all_.size());
  return all_.subspan(first, std::min(static_cast<size_t>(micro_batch_), all_.size() - first));
}

int64_t MicroBatches::tokens_of(std::span<const int64_t> samples) const {
  int64_t tokens = 0;
  for (const int64_t s : samples) tokens += dataset_.inputs_of(s, options_.max_seq_length);
  return tokens;
}

void MicroBatches::make_upcoming() {
  if (made_) return;
  if (options_.packed)
    pack(batch_, dataset_, upcoming(), options_, passed_);
  else
    pad(batch_, dataset_, upcoming(), options_, passed_);
  made_ = true;
}

const HostBatch* MicroBatches::peek() {
  if (returned_ == count()) return nullptr;
  try {
    make_upcoming();
  } catch (const Error&) {
    return nullptr;
  }
  return &batch_;
}

const HostBatch* MicroBatches::next() {
  if (returned_ == count()) return nullptr;
  current_ = upcoming();
  make_upcoming();
  made_ = false;
  const int64_t mine = returned_ * ranks_.size + ranks_.rank;
  for (int64_t i = mine; i < mine + ranks_.size; ++i) passed_ += tokens_of(samples_of(i));
  ++returned_;
  return &batch_;
}

}  // namespace capstan
