#pragma once

#include <nccl.h>

#include <array>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/transport.h"

namespace capstan {

// Ranks that are processes with a GPU each. Slices go from GPU to GPU by NCCL's sends and receives
// on the group's lane; sums are ours, so they have the bits of every other transport. Another group
// of the same processes, such as MPI's, carries everything else.
//
// The GPU waits for other ranks, not the host. So a thread watches what it waits for: if that takes
// longer than `timeout`, or another rank has failed, it ends NCCL's work, and the next call throws.
// A group ends together with those that were split from it. They may be destroyed in any order, the
// same on all ranks.
class NcclGroup : public Transport {
 public:
  using Clock = std::chrono::steady_clock;

  // All ranks construct theirs together. Throws Fault::usage if their versions of NCCL differ, and
  // Fault::device if it does not start.
  NcclGroup(const Communicator& processes, Clock::duration timeout);
  // A group that was split from `first`, as NCCL knows it.
  NcclGroup(const NcclGroup& first, ncclComm_t comm, const Ranks& ranks, const Members& members,
            std::string name, Lane lane);
  ~NcclGroup() override;

  int64_t room_for(int64_t whole_bytes) const override { return whole_bytes; }
  // What NCCL waits in is a kernel. Others may have to be loaded meanwhile, which waits for it.
  bool waits_on_device() const override { return true; }
  uint64_t begin(Queue& q, const Collective& c) override;
  void finish(Queue& q, uint64_t sequence) override;
  void check() override;
  void abort(std::string_view why) noexcept override;
  // Of a split group: Fault::bug. The group of all ranks has channels.
  std::unique_ptr<HostChannel> open_channel(std::string name) override;
  // Waits until all collectives of this group are complete.
  std::shared_ptr<Transport> split(const Ranks& ranks, const Members& members, std::string name,
                                   Lane lane) override;

 private:
  // The group of all ranks, and all that were split from it. Of the two mutexes, `calls` is locked
  // first.
  struct Family {
    std::mutex calls;  // of NCCL, one at a time; for every comm_

    std::mutex mutex;  // for the following, and for what the thread of each group uses
    std::vector<NcclGroup*> groups;  // that have not been destroyed
    std::exception_ptr error;        // why they have ended; null: they have not
  };

  // A collective that has begun.
  struct Running {
    Collective call;
    Event ready, started, done;
    std::optional<Clock::time_point> since = {};  // when it was first seen to have started
  };
  static constexpr uint64_t kMost = 256;
  Running& at(uint64_t sequence) { return slots_[sequence % kMost]; }

  void start(const ncclUniqueId& id);
  // Once it can be used.
  void join_family();
  // The comm, unless it was aborted. From now on, it is the caller's.
  ncclComm_t leave_family();
  // Null for a rank whose color is NCCL_SPLIT_NOCOLOR. All ranks call it.
  ncclComm_t split_comm(int color, int key);
  // Waits until at most so many collectives are not complete.
  void wait_for_at_most(uint64_t running);
  void move(Queue& q, const Collective& c);
  // all_gather, all_to_all and the second half of all_reduce.
  void exchange(Queue& q, const Collective& c);
  void pass(Queue& q, const Collective& c);
  void sum(Queue& q, const Collective& c);
  // Sends and receives between these two are one operation.
  void begin_messages();
  void end_messages();
  void send(Queue& q, const Tensor& from, int to);
  void receive(Queue& q, const Tensor& to, int from);
  // Waits until NCCL has done what it was asked for; it may do so in a thread of its own.
  void settle(const char* doing);
  void require_success(ncclResult_t result, const char* doing);

  // Of the thread that watches.
  void watch();
  void look();
  void require_progress(Running& oldest);
  // Ranks among all whose processes have not answered since then, or for half of the timeout: those
  // of the group, or if all of these answer, others, for which they may wait. Asks all again.
  std::vector<int> silent_ranks(Clock::time_point since);
  // Ends the family. When it returns, NCCL has been told to abort all of its comms.
  void end(std::exception_ptr why) noexcept;
  void abort_all();

  const std::shared_ptr<Family> family_;
  const bool was_split_;
  Communicator processes_;
  const int gpu_;
  const Clock::duration timeout_;
  std::array<Running, kMost> slots_;
  uint64_t begun_ = 0;
  std::vector<Tensor> terms_;

  ncclComm_t comm_ = nullptr;  // null: aborted
  // Where a thread of NCCL's puts the comm that is being split from this one.
  ncclComm_t split_ = nullptr;

  std::condition_variable changed_;        // with the family's mutex
  uint64_t published_ = 0, complete_ = 0;  // collectives
  bool leaving_ = false;
  std::thread watch_;  // last: it uses the others
};

}  // namespace capstan
