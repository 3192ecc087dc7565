#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/collective.h"
#include "comm/host_channel.h"
#include "comm/ranks.h"

namespace capstan {

class Transport;

// A group of ranks that compute together, as seen by one of them. Every rank calls the same
// collectives in the same order. A handle: copies are the same group. Belongs to the rank's thread.
//
// Sums have one order: rank 0 first, in f32, rounded once to the result's type; of ranks on several
// machines, those of each machine first (by_machine). So all transports give the same bits.
//
//   Work sum = group.reduce_scatter(q, mine, whole);
//   …                       other work; `whole` and `mine` stay as they are
//   sum.join(q);
//
// The default group has one rank. Its collectives do nothing, except to copy `mine` if it is not
// already the slice of `whole`.
class Communicator {
 public:
  Communicator() = default;
  explicit Communicator(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {}

  int rank() const;
  int size() const;
  Ranks ranks() const { return {rank(), size()}; }
  std::string_view name() const;
  // Some ranks of this group, of which this one is one. All ranks of the group call the collectives
  // of such parts in the same order, each those of its own part; parts are of one size.
  Communicator part(const Members& members) const;
  // Another group, of some ranks of this one, with collectives of its own: their order has nothing
  // to do with that of this group's. All ranks of this group call it together, each for the group
  // that it is to belong to; this group is not itself a part or another's. On a GPU its collectives
  // are work of `lane`. It ends when this group ends, and the other way round.
  Communicator split(const Members& members, std::string_view name, Lane lane) const;
  // The same group, of which so many neighbours each are on one machine: its collectives add theirs
  // first, then the sums of the machines in their order.
  Communicator by_machine(int machines) const;
  // The same group, for collectives on values of this unit of a model: messages name it.
  Communicator for_unit(int unit) const;
  // A number for all collectives so far: kinds, types, sizes and units, in their order.
  uint64_t digest() const;

  // A collective that has begun. It is complete, for work that is put on the queue afterwards, when
  // join() returns. Until then its operands must live, and nothing else may touch them. Collectives
  // of a group complete in the order in which they began.
  class Work {
   public:
    Work() = default;  // complete
    void join(Queue& q);
    bool pending() const { return transport_ != nullptr; }

   private:
    friend class Communicator;
    Work(std::shared_ptr<Transport> transport, uint64_t sequence)
        : transport_(std::move(transport)), sequence_(sequence) {}
    std::shared_ptr<Transport> transport_;
    uint64_t sequence_ = 0;
  };

  // Each begins after the work that is on the queue now. `mine` has 1 / size() of the values of
  // `whole`; it may be this rank's slice of `whole`, or separate memory.
  [[nodiscard]] Work all_gather(Queue& q, Tensor whole, Tensor mine) const;
  // mine = the sum of this rank's slice of every rank's `whole`, or mine += that.
  [[nodiscard]] Work reduce_scatter(Queue& q, Tensor mine, Tensor whole,
                                    Write mode = Write::replace) const;
  // Every rank's x = their sum. The number of values must be a multiple of size().
  [[nodiscard]] Work all_reduce(Queue& q, Tensor x) const;

  // Slice r of `to` = this rank's slice of rank r's `from`. The two are of equal size, a multiple
  // of size(), and separate memory. For one rank a copy.
  [[nodiscard]] Work all_to_all(Queue& q, Tensor to, Tensor from) const;

  // In a group of two: rank 1's x becomes rank 0's. For rank 0 it is complete when rank 1 has it.
  [[nodiscard]] Work pass(Queue& q, Tensor x) const;

  // Memory in which the transport sums tensors of up to `largest_bytes`; empty if it needs none. To
  // be kept as long as the group sums. Allocates Category::communication, outside of a phase.
  [[nodiscard]] Buffer make_room(Arena& arena, int64_t largest_bytes) const;

  bool needs_room() const;

  // x (one f64) = the sum of every rank's x, in rank order. `room` is from make_scalars, which
  // takes no memory for one rank.
  Buffer make_scalars(Arena& arena) const;
  void sum_scalars(Queue& q, Tensor x, Tensor room) const;

  // This rank's slice of a `whole`.
  Tensor slice_of(const Tensor& whole) const;

  // Whether a collective occupies the device while it waits for other ranks.
  bool waits_on_device() const;

  // A channel between the same ranks. All ranks open theirs in the same order. It ends with the
  // group, but not the group with it.
  std::unique_ptr<HostChannel> open_channel(std::string_view name) const;

  // Seconds that this rank has waited in join() for collectives to complete.
  double waited() const;

  // Throws Fault::peer if the group has ended: what its collectives delivered may then be wrong.
  void check() const;
  // Ranks whose process has not answered since then; asks all of them again. None if the transport
  // cannot tell.
  std::vector<int> silent_since(std::chrono::steady_clock::time_point then) const;
  // Ends all collectives of the group, and of those that it was split from or into, now and later,
  // with this error on every other rank. When it returns, no rank reads this one's memory.
  void abort(std::string_view why) const noexcept;

 private:
  Work begin(Queue& q, Collective c) const;

  std::shared_ptr<Transport> transport_;  // null: one rank
  std::optional<Members> part_;           // none: all ranks
  int unit_ = -1;
  int machines_ = 1;
};

using Work = Communicator::Work;

}  // namespace capstan
