#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "comm/mpi/mpi_process.h"
#include "comm/transport.h"

namespace capstan {

// One rank of a group of MPI's processes: all of them, or those that were split off. Collectives
// are done one after the other by a thread of the group's own: what it does with them is in
// mpi_moves.cpp. Channels (mpi_channel.cpp) use the thread of their caller.
class MpiMember : public Transport, public std::enable_shared_from_this<MpiMember> {
 public:
  // The group of all ranks.
  explicit MpiMember(std::shared_ptr<MpiProcess> process);
  // Group number `id` that was split from the one of all ranks, which it keeps: that one's thread
  // listens while the others have nothing to do.
  MpiMember(std::shared_ptr<MpiMember> root, int id, const Ranks& ranks, const Members& members,
            std::string name, Lane lane);
  ~MpiMember() override;

  int64_t room_for(int64_t whole_bytes) const override { return whole_bytes; }
  uint64_t begin(Queue& q, const Collective& c) override;
  void finish(Queue&, uint64_t sequence) override;
  void check() override { process_->check(); }
  std::vector<int> silent_since(std::chrono::steady_clock::time_point then) override;
  // A group's thread tells the others.
  void abort(std::string_view why) noexcept override { process_->abort(why); }
  std::unique_ptr<HostChannel> open_channel(std::string name) override;
  std::shared_ptr<Transport> split(const Ranks& ranks, const Members& members, std::string name,
                                   Lane lane) override;

 private:
  friend class MpiChannel;
  using Clock = MpiProcess::Clock;

  // Tags: one for what the ranks are about to do, one for their data, and two for each channel. MPI
  // has at least 32,768. Groups of one split share theirs: they have no rank in common.
  static constexpr int kMostGroups = 500, kTags = 32, kTagsOfAll = 16'000, kFirstChannel = 2;
  int tags() const { return root_ ? kTags : kTagsOfAll; }
  int first_tag() const { return mpi::kFirstGroup + (root_ ? kTagsOfAll + id_ * kTags : 0); }
  int hello_tag() const { return first_tag(); }
  int data_tag() const { return first_tag() + 1; }

  // Its ranks as MPI counts them.
  Members in_world() const;

  void start();
  void run();
  // None: the group ends.
  std::optional<Collective> wait_for_work();
  // What other ranks ask and tell while there is nothing to do.
  void listen();

  // Every rank tells every other what it is about to do.
  void greet(const Collective& c);

  // Both send before they receive: a rank that is later announces its data before it accepts the
  // other's, which would otherwise fill the line, and the announcement's answer wait behind it. So
  // large messages go in both directions at once.
  void move(const Collective& c);
  // all_gather, all_to_all and the second half of all_reduce.
  void exchange(const Collective& c);
  void pass(const Collective& c);

  // The slices of the other ranks come into the room, then all are added in rank order.
  void sum(const Collective& c);

  // To and from a rank of the group.
  void send(const void* from, int64_t bytes, int to, int tag);
  void receive(void* to, int64_t bytes, int from, int tag);

  // Waits for all messages that were begun. MPI moves data only while it is called, and not all
  // that has arrived: so several calls at a time, without sleeping as long as data would take
  // through memory, then with pauses that grow.
  void wait(const Collective& c);

  // Throws if the group has ended, or another rank has failed.
  void look_around();

  // Ranks, as MPI counts them, that have messages which are not through.
  std::vector<int> note_missing();

  // Throws, unless all has arrived by now: this rank itself may have been stopped.
  void give_up(const Collective& c);

  const std::shared_ptr<MpiProcess> process_;
  const std::shared_ptr<MpiMember> root_;  // null: this is the group of all ranks
  const int id_ = 0;

  // Of the rank's thread.
  uint64_t begun_ = 0;
  int opened_ = 0;  // channels
  int splits_ = 0;

  // With the process's mutex locked.
  std::condition_variable changed_;
  std::deque<Collective> waiting_;  // the first is being done
  uint64_t complete_ = 0;           // written by the group's thread
  bool leaving_ = false;
  std::vector<int> missing_;  // by note_missing(), while the group's thread waits

  // Of the group's thread.
  uint64_t hello_ = 0;
  std::vector<uint64_t> hellos_;  // by rank
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;  // of the requests, as MPI counts them
  int64_t moving_ = 0;      // bytes that they receive
  std::vector<Tensor> terms_;
  std::thread thread_;
};

}  // namespace capstan
