#include "data/batch/batch.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "ops/head_loss.h"

namespace capstan {
namespace {

int64_t padded_length(int64_t longest, const BatchOptions& options) {
  const int64_t rounded = (longest + options.multiple - 1) / options.multiple * options.multiple;
  return std::min(rounded, options.max_seq_length);
}

void check_capacity(const HostBatch& batch, int64_t tokens, size_t documents) {
  require(static_cast<size_t>(tokens) <= batch.ids.capacity() &&
              documents + 1 <= batch.starts.capacity(),
          Fault::bug, "a batch for {} tokens in {} documents cannot hold {} tokens in {}",
          batch.ids.capacity(), batch.starts.capacity() - 1, tokens, documents);
}

void check_ids(std::span<const int32_t> tokens, int64_t vocab, const Dataset& dataset,
               int64_t sample) {
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (tokens[t] >= 0 && tokens[t] < vocab) continue;
    // Not `require`: formatting the name would allocate, which a step must not.
    fail(Fault::file,
         "{}: token {} has id {}, the model's vocabulary ends at {}. The data was tokenized for "
         "another model: use this model's tokenizer",
         dataset.where_of(sample), t, tokens[t], vocab - 1);
  }
}

// Appends one document and pads it to `length`.
void append(HostBatch& batch, const Dataset& dataset, int64_t sample, int64_t length,
            const BatchOptions& options, int64_t first_ordinal) {
  const auto tokens = dataset.tokens_of(sample);
  const int64_t inputs = dataset.inputs_of(sample, options.max_seq_length);
  const auto used = tokens.first(static_cast<size_t>(inputs) + 1);
  check_ids(used, options.vocab, dataset, sample);

  const auto first = static_cast<size_t>(batch.tokens());
  const int64_t ordinal = first_ordinal + batch.tokens() - batch.padding;
  for (int64_t t = 0; t < length; ++t) {
    batch.ids.push_back(t < inputs ? used[static_cast<size_t>(t)] : 0);
    batch.labels.push_back(kIgnore);
    batch.positions.push_back(static_cast<int32_t>(t));
    batch.ordinals.push_back(static_cast<int32_t>(ordinal + t));
  }
  for (const TargetSpan& span : dataset.target_spans_of(sample)) {
    const auto end = std::min(static_cast<size_t>(span.end), used.size());
    for (auto t = static_cast<size_t>(std::max(span.begin, 1)); t < end; ++t)
      batch.labels[first + t - 1] = used[t];
  }
  batch.starts.push_back(static_cast<int32_t>(batch.tokens()));
  batch.targets += dataset.targets_of(sample, options.max_seq_length);
  batch.longest = std::max(batch.longest, length);
  batch.padding += length - inputs;
  batch.truncated += used.size() < tokens.size();
}

// Appends a document of padding, if it takes one.
void make_equal_shares(HostBatch& batch, int64_t shares) {
  const int64_t length = with_shares(batch.tokens(), shares) - batch.tokens();
  if (length == 0) return;
  check_capacity(batch, batch.tokens() + length, static_cast<size_t>(batch.documents()) + 1);
  for (int64_t t = 0; t < length; ++t) {
    batch.ids.push_back(0);
    batch.labels.push_back(kIgnore);
    batch.positions.push_back(static_cast<int32_t>(t));
    batch.ordinals.push_back(batch.ordinals.back());
  }
  batch.starts.push_back(static_cast<int32_t>(batch.tokens()));
  batch.longest = std::max(batch.longest, length);
  batch.padding += length;
}

}  // namespace

HostBatch::HostBatch(int64_t max_tokens, int64_t max_documents) {
  // Starts are i32 on the device.
  require(max_tokens > 0 && max_tokens <= INT32_MAX && max_documents > 0, Fault::bug,
          "a batch for {} tokens in {} documents", max_tokens, max_documents);
  for (auto* values : {&ids, &labels, &positions, &ordinals})
    values->reserve(static_cast<size_t>(max_tokens));
  starts.reserve(static_cast<size_t>(max_documents) + 1);
  clear();
}

void HostBatch::clear() {
  for (auto* values : {&ids, &labels, &positions, &ordinals, &starts}) values->clear();
  starts.push_back(0);
  targets = longest = padding = truncated = 0;
  static std::atomic<int64_t> fillings = 0;
  serial = ++fillings;
}

void pack(HostBatch& batch, const Dataset& dataset, std::span<const int64_t> samples,
          const BatchOptions& options, int64_t first_ordinal) {
  int64_t tokens = 0;
  for (const int64_t s : samples) tokens += dataset.inputs_of(s, options.max_seq_length);
  check_capacity(batch, tokens, samples.size());
  batch.clear();
  for (const int64_t s : samples)
    append(batch, dataset, s, dataset.inputs_of(s, options.max_seq_length), options, first_ordinal);
  make_equal_shares(batch, options.shares);
}

void pad(HostBatch& batch, const Dataset& dataset, std::span<const int64_t> samples,
         const BatchOptions& options, int64_t first_ordinal) {
  int64_t longest = 0;
  for (const int64_t s : samples)
    longest = std::max(longest, dataset.inputs_of(s, options.max_seq_length));
  const int64_t length = padded_length(longest, options);
  check_capacity(batch, length * static_cast<int64_t>(samples.size()), samples.size());
  batch.clear();
  for (const int64_t s : samples) append(batch, dataset, s, length, options, first_ordinal);
  make_equal_shares(batch, options.shares);
}

int64_t largest_batch(const Dataset& dataset, int64_t samples, const BatchOptions& options) {
  const int64_t n = std::min(samples, dataset.size());
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < dataset.size(); ++i)
    lengths.push_back(dataset.inputs_of(i, options.max_seq_length));
  std::partial_sort(lengths.begin(), lengths.begin() + n, lengths.end(), std::greater<>());
  if (n == 0) return 0;
  const int64_t tokens = options.packed
                             ? std::accumulate(lengths.begin(), lengths.begin() + n, int64_t{0})
                             : n * padded_length(lengths[0], options);
  return with_shares(tokens, options.shares);
}

}  // namespace capstan
