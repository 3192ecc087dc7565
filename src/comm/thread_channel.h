#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/host_channel.h"

namespace capstan {

// What the ends of a channel between threads share. A receiver copies from the sender's memory.
class ThreadChannel {
 public:
  using Duration = std::chrono::steady_clock::duration;

  ThreadChannel(int size, std::string name, Duration timeout);

  static std::unique_ptr<HostChannel> end_of(std::shared_ptr<ThreadChannel> channel, int rank);
  // All calls throw this from now on, unless the channel has ended before.
  void end(std::string_view why);

 private:
  class End;
  struct Message {
    enum class State : uint8_t { none, offered, taken } state = State::none;
    std::span<const std::byte> bytes;
  };
  Message& between(int from, int to) { return messages_[static_cast<size_t>(from * size_ + to)]; }
  // Waits until the message is in this state.
  void wait(std::unique_lock<std::mutex>& lock, const Message& message, Message::State state,
            int rank, int other);

  const int size_;
  const std::string name_;
  const Duration timeout_;
  std::mutex mutex_;  // for all that follows
  std::condition_variable changed_;
  std::vector<Message> messages_;  // by sender and receiver
  int copying_ = 0;                // receivers that read a sender's memory
  std::string ended_;              // why; empty: it has not
};

}  // namespace capstan
