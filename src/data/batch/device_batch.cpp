#include "data/batch/device_batch.h"

#include <algorithm>

#include "ops/head_loss.h"

namespace capstan {
namespace {

// Lays out the arrays of a batch one after the other, so that one copy moves them. Each is aligned
// like a buffer of its own.
int64_t aligned_values(int64_t values) {
  return aligned_to_buffers(values * size_of(DType::i32)) / size_of(DType::i32);
}

using Arrays = DeviceBatch::Arrays;

int64_t size_of_arrays(Arrays which, int64_t tokens, int64_t documents) {
  return (which == Arrays::with_ordinals ? 4 : 3) * aligned_values(tokens) + documents + 1;
}

struct Views {
  Tensor ids, labels, positions, ordinals, starts;

  Views(Arrays which, const Tensor& room, int64_t tokens, int64_t documents) {
    int64_t first = 0;
    const auto next = [&](int64_t values) {
      const Tensor view = room.rows(first, values);
      first += aligned_values(values);
      return view;
    };
    ids = next(tokens);
    labels = next(tokens);
    positions = next(tokens);
    if (which == Arrays::with_ordinals) ordinals = next(tokens);
    starts = next(documents + 1);
  }
};

// The labels that count among this rank's tokens.
int64_t own_targets(const HostBatch& host, const Ranks& sharing) {
  const int64_t own = host.tokens() / sharing.size;
  const auto first = host.labels.begin() + sharing.rank * own;
  return own - std::count(first, first + own, kIgnore);
}

}  // namespace

void BatchLimits::include(const BatchLimits& other) {
  tokens = std::max(tokens, other.tokens);
  documents = std::max(documents, other.documents);
  longest = std::max(longest, other.longest);
}

BatchLimits BatchLimits::for_shares(int64_t shares) const {
  if (shares == 1) return *this;
  return {with_shares(tokens, shares), documents + 1, std::max(longest, shares - 1)};
}

BatchLimits limits_of(const Dataset& dataset, int64_t micro_batch, const BatchOptions& options) {
  const int64_t longest = count(dataset, options.max_seq_length).longest;
  const int64_t rounded = (longest + options.multiple - 1) / options.multiple * options.multiple;
  return {.tokens = largest_batch(dataset, micro_batch, options),
          .documents = std::min(micro_batch, dataset.size()),
          .longest = options.packed ? longest
                                    : std::min(rounded, std::max(longest, options.max_seq_length))};
}

DeviceBatch::DeviceBatch(Queue& q, const BatchLimits& limits, const ModelConfig& model,
                         Arrays arrays, const Ranks& sharing)
    : limits_(limits),
      sharing_(sharing),
      window_(model.sliding_window),
      arrays_(arrays),
      room_(q.arena().make(Category::data, DType::i32,
                           {size_of_arrays(arrays, limits.tokens, limits.documents)},
                           "micro-batch")),
      ahead_(q, room_, Category::data, "next micro-batch") {}

Batch DeviceBatch::view(int64_t tokens, int64_t documents, int64_t longest) const {
  const Views arrays(arrays_, room_, tokens, documents);
  const int64_t own = tokens / sharing_.size;
  const auto share = [&](const Tensor& all) {
    return all && sharing_.size > 1 ? all.rows(sharing_.rank * own, own) : all;
  };
  Batch b;
  b.ids_T = share(arrays.ids);
  b.labels_T = share(arrays.labels);
  b.positions_T = share(arrays.positions);
  b.ordinals_T = share(arrays.ordinals);
  b.mask = {arrays.starts, documents, longest, window_, 0};
  return b;
}

Batch DeviceBatch::largest() const {
  return view(limits_.tokens, limits_.documents, limits_.longest);
}

void DeviceBatch::send(const HostBatch& host) {
  const Views to(arrays_, ahead_.host_buffer(), host.tokens(), host.documents());
  std::copy(host.ids.begin(), host.ids.end(), to.ids.as<int32_t>());
  std::copy(host.labels.begin(), host.labels.end(), to.labels.as<int32_t>());
  std::copy(host.positions.begin(), host.positions.end(), to.positions.as<int32_t>());
  if (to.ordinals) std::copy(host.ordinals.begin(), host.ordinals.end(), to.ordinals.as<int32_t>());
  std::copy(host.starts.begin(), host.starts.end(), to.starts.as<int32_t>());
  ahead_.send(size_of_arrays(arrays_, host.tokens(), host.documents()));
  sent_ = host.serial;
}

Batch DeviceBatch::upload(Queue& q, const HostBatch& host) {
  Batch b = view(host.tokens(), host.documents(), host.longest);
  b.targets = sharing_.size == 1 ? host.targets : own_targets(host, sharing_);
  for (size_t d = 0; d + 1 < host.starts.size(); ++d)
    b.mask.pairs += attention_pairs(host.starts[d + 1] - host.starts[d], b.mask.window);
  if (copies_ahead()) {
    if (sent_ != host.serial) send(host);
    sent_ = 0;
    ahead_.receive();
    return b;
  }
  const int64_t first = sharing_.rank * b.tokens();
  q.upload(b.ids_T, host.ids.data() + first);
  q.upload(b.labels_T, host.labels.data() + first);
  q.upload(b.positions_T, host.positions.data() + first);
  if (b.ordinals_T) q.upload(b.ordinals_T, host.ordinals.data() + first);
  q.upload(b.mask.starts, host.starts.data());
  return b;
}

}  // namespace capstan
