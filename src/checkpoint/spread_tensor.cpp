#include "checkpoint/spread_tensor.h"

#include <algorithm>
#include <cstring>

namespace capstan {
namespace {

using Holder = SpreadTensor::Holder;
using Bytes = std::span<const std::byte>;

Range values_of(const Holder& holder) {
  return {0, holder.first, holder.count};
}

// n values of this rank from `first` on, which lie in one of its pieces: a view, or copied to
// `room`.
Bytes own_values(const SavedTensor& t, int64_t first, int64_t n, Queue* q,
                 std::vector<std::byte>& room) {
  const auto piece =
      std::find_if(t.pieces.begin(), t.pieces.end(), [&](const SavedTensor::Piece& p) {
        return p.first <= first && first + n <= p.first + p.values.numel();
      });
  require(piece != t.pieces.end(), Fault::bug, "{}: this rank lacks values {} to {}", t.name, first,
          first + n);
  const Tensor values = piece->values.rows(first - piece->first, n);
  const auto bytes = static_cast<size_t>(values.nbytes());
  if (q == nullptr) return {static_cast<const std::byte*>(values.raw()), bytes};
  room.resize(bytes);
  q->download(room.data(), values);
  return room;
}

// Calls body(holder, values) for the holders of n values from `first` on, in order.
template <class Body>
void for_holders(const SpreadTensor& t, int64_t first, int64_t n, const Body& body) {
  for (const Holder& holder : t.holders)
    if (const Range some = overlap(values_of(holder), {0, first, n}); some.count > 0)
      body(holder.rank, some);
}

// A tensor of rank 0 while it is written.
class Collected {
 public:
  Collected(SpreadTensor tensor, Queue* q, HostChannel& channel)
      : spread_(std::move(tensor)), q_(q), channel_(&channel) {}

  Bytes read(int64_t first, int64_t n, std::vector<std::byte>& room) {
    const SavedTensor& t = spread_.tensor;
    if (spread_.holders.size() == 1 && spread_.holders[0].rank == channel_->rank())
      return own_values(t, first, n, q_, room);
    const int64_t size = size_of(t.type);
    room.resize(static_cast<size_t>(n * size));
    for_holders(spread_, first, n, [&](int rank, const Range& some) {
      const auto to = std::span(room).subspan(static_cast<size_t>((some.first - first) * size),
                                              static_cast<size_t>(some.count * size));
      if (rank != channel_->rank()) return channel_->receive(to, rank);
      const Bytes own = own_values(t, some.first, some.count, q_, own_room_);
      std::memcpy(to.data(), own.data(), own.size());
    });
    return room;
  }

 private:
  SpreadTensor spread_;
  Queue* q_;
  HostChannel* channel_;
  std::vector<std::byte> own_room_;
};

}  // namespace

std::vector<SpreadTensor> spread(const Parameters& params,
                                 const std::vector<SavedTensor>& tensors) {
  std::vector<std::vector<Range>> owned;  // by rank
  for (int r = 0; r < params.group().size(); ++r) owned.push_back(params.owned_by(r));
  std::vector<SpreadTensor> all;
  for (const SavedTensor& t : tensors) {
    SpreadTensor s{.tensor = only(t, params.owned()), .holders = {}};
    for (int r = 0; r < params.group().size(); ++r) {
      const auto& ranges = owned[static_cast<size_t>(r)];
      // In the order of the parameters.
      auto range = std::partition_point(ranges.begin(), ranges.end(),
                                        [&](const Range& x) { return x.param < t.range.param; });
      for (; range != ranges.end() && range->param == t.range.param; ++range)
        if (const Range some = t.within(*range); some.count > 0)
          s.holders.push_back({r, some.first, some.count});
    }
    std::sort(s.holders.begin(), s.holders.end(),
              [](const Holder& a, const Holder& b) { return a.first < b.first; });
    all.push_back(std::move(s));
  }
  return all;
}

TensorToWrite to_write(const SpreadTensor& tensor, Queue* q, HostChannel& channel) {
  const SavedTensor& t = tensor.tensor;
  TensorToWrite out{{t.name, t.type, {}}, t.type, {}};
  for (int d = 0; d < t.shape.rank(); ++d) out.item.shape.push_back(t.shape[d]);
  out.read = [values = Collected(tensor, q, channel)](int64_t first, int64_t n,
                                                      std::vector<std::byte>& room) mutable {
    return values.read(first, n, room);
  };
  return out;
}

void send_values(std::span<const SpreadTensor> tensors, Queue* q, HostChannel& channel) {
  std::vector<std::byte> room;
  for (const SpreadTensor& t : tensors)
    for (int64_t first = 0; first < t.tensor.numel(); first += kBlockValues)
      for_holders(t, first, std::min(kBlockValues, t.tensor.numel() - first),
                  [&](int rank, const Range& some) {
                    if (rank == channel.rank())
                      channel.send(own_values(t.tensor, some.first, some.count, q, room), 0);
                  });
}

}  // namespace capstan
