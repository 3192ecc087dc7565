#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace capstan {

// Bytes between the ranks of a group, in host memory and beside the group's collectives: what ranks
// compare and agree on, and the slices of checkpoints. One thread of each rank uses it at a time.
//
// The calls of two ranks must match: a send to a rank is a receive there, of as many bytes. All of
// them throw Fault::peer when another rank has failed or its process does not answer within the
// group's timeout. A rank that is alive may take its time: it may be reading a large file.
class HostChannel {
 public:
  HostChannel(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~HostChannel() = default;
  HostChannel(const HostChannel&) = delete;
  HostChannel& operator=(const HostChannel&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Returns when the other rank has the bytes.
  virtual void send(std::span<const std::byte> bytes, int to) = 0;
  virtual void receive(std::span<std::byte> bytes, int from) = 0;

  // Ends the channel: calls of other ranks, now and later, throw this error. The group goes on.
  virtual void abort(std::string_view why) noexcept = 0;

  // Every rank's bytes, in rank order; as many from each. All ranks call it.
  void gather(std::span<std::byte> all, std::span<const std::byte> mine);
  // Every rank's text, in rank order. All ranks call it.
  std::vector<std::string> exchange(std::string_view mine);
  // The text of rank 0, on every rank. All ranks call it.
  std::string share(std::string_view first_ranks);

 private:
  int rank_, size_;
};

// The channel of a rank that is alone.
std::unique_ptr<HostChannel> channel_of_one();

}  // namespace capstan
