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

MicroBatches::MicroBatches(const Dataset& dataset, int64_t micro_batch, const BatchOptions& options)
    : dataset_(dataset),
      micro_batch_(micro_batch),
      options_(options),
      max_tokens_(checked_largest(dataset, micro_batch, options)),
      batch_(max_tokens_, max_documents()) {}

void MicroBatches::start(std::span<const int64_t> samples) {
  all_ = rest_ = samples;
  current_ = {};
  made_ = false;
  passed_ = 0;
  targets_ = count_targets(dataset_, samples, options_.max_seq_length);
}

int64_t MicroBatches::count() const {
  return (static_cast<int64_t>(all_.size()) + micro_batch_ - 1) / micro_batch_;
}

std::span<const int64_t> MicroBatches::upcoming() const {
  return rest_.first(std::min(static_cast<size_t>(micro_batch_), rest_.size()));
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
  if (rest_.empty()) return nullptr;
  try {
    make_upcoming();
  } catch (const Error&) {
    return nullptr;
  }
  return &batch_;
}

const HostBatch* MicroBatches::next() {
  if (rest_.empty()) return nullptr;
  current_ = upcoming();
  make_upcoming();
  made_ = false;
  rest_ = rest_.subspan(current_.size());
  passed_ += batch_.tokens() - batch_.padding;
  return &batch_;
}

}  // namespace capstan
