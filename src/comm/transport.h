#pragma once

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/collective.h"
#include "comm/host_channel.h"

namespace capstan {

inline constexpr int kMostMembers = 64;  // of a group that computes
inline constexpr int kAnyNumber = std::numeric_limits<int>::max();

// How the ranks of a group reach each other. One object for each rank; calls come from its thread.
class Transport {
 public:
  // A group that was split from another one has its `members` there. Throws Fault::usage for more
  // ranks than `most`, by default as many as can sum at once.
  Transport(int rank, int size, std::string name, Lane lane = Lane::comm,
            const Members& members = {.count = 0}, int most = kMostMembers);
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  Lane lane() const { return lane_; }
  // The number of one of its ranks among all: for messages.
  int among_all(int rank) const { return members_.count > 0 ? members_.at(rank) : rank; }

  // Memory that this transport needs to sum `whole_bytes` from every rank, and the memory itself,
  // which it uses for one collective after the other. Without: it cannot sum.
  virtual int64_t room_for(int64_t whole_bytes) const {
    (void)whole_bytes;
    return 0;
  }
  void use_room(const Tensor& room) { room_ = room; }

  // Whether a collective that waits for another rank occupies the device: it should not begin
  // before that rank can be expected to.
  virtual bool waits_on_device() const { return false; }

  // Begins a checked collective and returns its number, counted from 0.
  virtual uint64_t begin(Queue& q, const Collective& c) = 0;
  // Completes all collectives up to this one. Throws Fault::peer if another rank failed, or called
  // something else, or did not answer in time.
  virtual void finish(Queue& q, uint64_t sequence) = 0;
  // Throws Fault::peer if the group has ended.
  virtual void check() = 0;
  virtual void abort(std::string_view why) noexcept = 0;
  // Ranks whose process has not answered since then; asks all of them again. None if it cannot
  // tell.
  virtual std::vector<int> silent_since(std::chrono::steady_clock::time_point then) {
    (void)then;
    return {};
  }
  virtual std::unique_ptr<HostChannel> open_channel(std::string name) = 0;
  // Another group, of these members of this one; `ranks` is this rank there. May be null for one
  // member.
  virtual std::shared_ptr<Transport> split(const Ranks& ranks, const Members& members,
                                           std::string name, Lane lane) = 0;

  // Adds a collective to the digest.
  void note(const Collective& c) { digest_ = (digest_ ^ fingerprint(c)) * 0x100000001b3u + 1; }
  uint64_t digest() const { return digest_; }

  // Finishes, and counts the time: on a GPU, that of its compute lane.
  void join(Queue& q, uint64_t sequence);
  double waited() { return waited_ + on_gpu_.seconds(); }

 protected:
  Tensor room_;  // u8

 private:
  int rank_, size_;
  std::string name_;
  Lane lane_;
  Members members_;
  double waited_ = 0;
  LaneTimer on_gpu_;
  uint64_t digest_ = 0;
};

}  // namespace capstan
