#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/host_channel.h"

namespace capstan {

// What the ends of a channel between threads share. A receiver copies from the sender's memory. A
// thread waits as long as the group lives: others of the same process cannot be lost.
class ThreadChannel {
 public:
  ThreadChannel(int size, std::string name);

  static std::unique_ptr<HostChannel> end_of(std::shared_ptr<ThreadChannel> channel, int rank);
  // All calls throw this from now on, unless the channel has ended before.
  void end(std::string_view why);

 private:
  class End;
  struct Message {
    enum class State : uint8_t { none, offered, read, taken } state = State::none;
    std::span<const std::byte> bytes = {};
    std::condition_variable changed = {};
  };
  Message& between(int from, int to) { return messages_[static_cast<size_t>(from * size_ + to)]; }
  // Waits until the message is in this state.
  void wait(std::unique_lock<std::mutex>& lock, Message& message, Message::State state);

  const int size_;
  const std::string name_;
  std::mutex mutex_;               // for all that follows
  std::vector<Message> messages_;  // by sender and receiver
  std::string ended_;              // why; empty: it has not
};

}  // namespace capstan
