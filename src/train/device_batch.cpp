#include "train/device_batch.h"

#include <algorithm>

namespace capstan {

void BatchLimits::include(const BatchLimits& other) {
  tokens = std::max(tokens, other.tokens);
  documents = std::max(documents, other.documents);
  longest = std::max(longest, other.longest);
}

BatchLimits limits_of(const Dataset& dataset, int64_t micro_batch, const BatchOptions& options) {
  const int64_t longest = count(dataset, options.max_seq_length).longest;
  const int64_t rounded = (longest + options.multiple - 1) / options.multiple * options.multiple;
  return {.tokens = largest_batch(dataset, micro_batch, options),
          .documents = std::min(micro_batch, dataset.size()),
          .longest = options.packed ? longest
                                    : std::min(rounded, std::max(longest, options.max_seq_length))};
}

DeviceBatch::DeviceBatch(Queue& q, const BatchLimits& limits, const ModelConfig& model)
    : limits_(limits), window_(model.sliding_window) {
  const auto tensor = [&](int64_t size, const char* name) {
    return q.arena().make(Category::data, DType::i32, {size}, name);
  };
  ids_ = tensor(limits.tokens, "ids");
  labels_ = tensor(limits.tokens, "labels");
  positions_ = tensor(limits.tokens, "positions");
  starts_ = tensor(limits.documents + 1, "document starts");
}

Batch DeviceBatch::view(int64_t tokens, int64_t documents, int64_t longest) const {
  Batch b;
  b.ids_T = ids_->rows(0, tokens);
  b.labels_T = labels_->rows(0, tokens);
  b.positions_T = positions_->rows(0, tokens);
  b.mask = {starts_->rows(0, documents + 1), documents, longest, window_, 0};
  return b;
}

Batch DeviceBatch::largest() const {
  return view(limits_.tokens, limits_.documents, limits_.longest);
}

Batch DeviceBatch::upload(Queue& q, const HostBatch& host) const {
  Batch b = view(host.tokens(), host.documents(), host.longest);
  b.targets = host.targets;
  for (size_t d = 0; d + 1 < host.starts.size(); ++d)
    b.mask.pairs += attention_pairs(host.starts[d + 1] - host.starts[d], b.mask.window);
  q.upload(b.ids_T, host.ids.data());
  q.upload(b.labels_T, host.labels.data());
  q.upload(b.positions_T, host.positions.data());
  q.upload(b.mask.starts, host.starts.data());
  return b;
}

}  // namespace capstan
