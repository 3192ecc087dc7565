#pragma once

#include <nccl.h>

#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/communicator.h"
#include "comm/transport.h"

namespace capstan {

// Ranks that are processes with a GPU each. Slices go from GPU to GPU by NCCL's sends and receives
// on the comm lane; sums are ours, so they have the bits of every other transport. Another group of
// the same processes, such as MPI's, carries everything else.
//
// The GPU waits for other ranks, not the host. So a thread watches what it waits for: if that takes
// longer than `timeout`, or another rank has failed, it ends NCCL's work, and the next call throws.
class NcclGroup : public Transport {
 public:
  using Clock = std::chrono::steady_clock;

  // All ranks construct theirs together. Throws Fault::usage if their versions of NCCL differ, and
  // Fault::device if it does not start.
  NcclGroup(const Communicator& processes, Clock::duration timeout);
  ~NcclGroup() override;

  int64_t room_for(int64_t whole_bytes) const override { return whole_bytes; }
  uint64_t begin(Queue& q, const Collective& c) override;
  void finish(Queue& q, uint64_t sequence) override;
  void check() override;
  void abort(std::string_view why) noexcept override;
  std::unique_ptr<HostChannel> open_channel(std::string name) override;

 private:
  // A collective that has begun.
  struct Running {
    Collective call;
    Event ready, started, done;
    std::optional<Clock::time_point> since = {};  // when it was first seen to have started
  };
  static constexpr uint64_t kMost = 256;
  Running& at(uint64_t sequence) { return slots_[sequence % kMost]; }

  void start(const ncclUniqueId& id);
  void wait_for_slot();
  void gather(Queue& q, const Collective& c);
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
  void end(std::exception_ptr why) noexcept;

  Communicator processes_;
  const int gpu_;
  const Clock::duration timeout_;
  std::array<Running, kMost> slots_;
  uint64_t begun_ = 0;
  std::vector<Tensor> terms_;

  std::mutex calls_;  // of NCCL, one at a time
  ncclComm_t comm_ = nullptr;

  std::mutex mutex_;  // for all that follows
  std::condition_variable changed_;
  uint64_t published_ = 0, complete_ = 0;  // collectives
  std::exception_ptr error_;
  bool leaving_ = false;
  std::thread watch_;  // last: it uses the others
};

}  // namespace capstan
