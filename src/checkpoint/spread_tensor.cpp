#include "checkpoint/spread_tensor.h"

#include <algorithm>
#include <cstring>

namespace capstan {
namespace {

using Holder = SpreadTensor::Holder;
using Bytes = std::span<const std::byte>;

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

// Calls body(holder, values) for the holders of n values of the tensor from `first` on, with those
// of their share that are among these.
template <class Body>
void for_holders(const SpreadTensor& t, int64_t first, int64_t n, const Body& body) {
  for (const Holder& h : t.holders) {
    const int64_t begin = h.cut.before(first, h.share), end = h.cut.before(first + n, h.share);
    const Range some = overlap({0, h.first, h.count}, {0, begin, end - begin});
    if (some.count > 0) body(h, some);
  }
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
    for_holders(spread_, first, n, [&](const Holder& from, const Range& some) {
      Bytes values;
      if (from.rank == channel_->rank()) {
        values = own_values(t, some.first, some.count, q_, some_);
      } else {
        some_.resize(static_cast<size_t>(some.count * size));
        channel_->receive(some_, from.rank);
        values = some_;
      }
      from.cut.for_runs(some.first, some.count, [&](int64_t i, int64_t in_whole, int64_t count) {
        std::memcpy(room.data() + (in_whole - first) * size,
                    values.data() + (i - some.first) * size, static_cast<size_t>(count * size));
      });
    });
    return room;
  }

 private:
  SpreadTensor spread_;
  Queue* q_;
  HostChannel* channel_;
  std::vector<std::byte> some_;  // values of one rank
};

// The same tensor with the share that another rank has of it, without pieces.
SavedTensor with_share_of(const Parameters& params, const SavedTensor& t, int rank) {
  const ModelSpec& spec = params.spec_of(rank);
  const Param& param = spec.params[static_cast<size_t>(t.range.param)];
  SavedTensor other = saved_part(param, t.range.param, t.part, t.type);
  if (t.block > 1) other = scales_of(other, t.block);
  return other;
}

}  // namespace

std::vector<SpreadTensor> spread(const Parameters& params,
                                 const std::vector<SavedTensor>& tensors) {
  std::vector<std::vector<Range>> owned;  // by rank
  for (int r = 0; r < params.group().size(); ++r) owned.push_back(params.owned_by(r));
  std::vector<SpreadTensor> all;
  for (const SavedTensor& t : tensors) {
    SpreadTensor s{.tensor = only(t, params.owned()), .holders = {}};
    for (int r = 0; r < params.group().size(); ++r) {
      const SavedTensor of_rank = with_share_of(params, t, r);
      const auto& ranges = owned[static_cast<size_t>(r)];
      // In the order of the parameters.
      auto range = std::partition_point(ranges.begin(), ranges.end(),
                                        [&](const Range& x) { return x.param < t.range.param; });
      for (; range != ranges.end() && range->param == t.range.param; ++range)
        if (const Range some = of_rank.within(*range); some.count > 0)
          s.holders.push_back({r, some.first, some.count, of_rank.cut, of_rank.share()});
    }
    std::sort(s.holders.begin(), s.holders.end(), [](const Holder& a, const Holder& b) {
      return a.cut.in_whole(a.first) < b.cut.in_whole(b.first);
    });
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
                  [&](const Holder& holder, const Range& some) {
                    if (holder.rank == channel.rank())
                      channel.send(own_values(t.tensor, some.first, some.count, q, room), 0);
                  });
}

}  // namespace capstan
