#include "comm/thread_channel.h"

#include <cstring>
#include <utility>

#include "base/error.h"

namespace capstan {

class ThreadChannel::End : public HostChannel {
 public:
  End(std::shared_ptr<ThreadChannel> channel, int rank)
      : HostChannel(rank, channel->size_), channel_(std::move(channel)) {}

  void send(std::span<const std::byte> bytes, int to) override {
    ThreadChannel& c = *channel_;
    std::unique_lock lock(c.mutex_);
    Message& message = c.between(rank(), to);
    message.bytes = bytes;
    message.state = Message::State::offered;
    message.changed.notify_all();
    try {
      c.wait(lock, message, Message::State::taken);
    } catch (const Error&) {
      // The sender's memory is its own again.
      message.changed.wait(lock, [&] { return message.state != Message::State::read; });
      message.state = Message::State::none;
      throw;
    }
    message.state = Message::State::none;
  }

  void receive(std::span<std::byte> bytes, int from) override {
    ThreadChannel& c = *channel_;
    std::unique_lock lock(c.mutex_);
    Message& message = c.between(from, rank());
    c.wait(lock, message, Message::State::offered);
    const auto sent = message.bytes;
    require(sent.size() == bytes.size(), Fault::bug,
            "channel {}: rank {} sent {} bytes, rank {} expected {}", c.name_, from, sent.size(),
            rank(), bytes.size());
    message.state = Message::State::read;
    lock.unlock();
    std::memcpy(bytes.data(), sent.data(), sent.size());
    lock.lock();
    message.state = Message::State::taken;
    message.changed.notify_all();
  }

  void abort(std::string_view why) noexcept override {
    channel_->end(fmt::format("rank {}: {}", rank(), why));
  }

 private:
  std::shared_ptr<ThreadChannel> channel_;
};

ThreadChannel::ThreadChannel(int size, std::string name)
    : size_(size),
      name_(std::move(name)),
      messages_(static_cast<size_t>(size) * static_cast<size_t>(size)) {}

std::unique_ptr<HostChannel> ThreadChannel::end_of(std::shared_ptr<ThreadChannel> channel,
                                                   int rank) {
  return std::make_unique<End>(std::move(channel), rank);
}

void ThreadChannel::end(std::string_view why) {
  const std::lock_guard lock(mutex_);
  if (ended_.empty()) ended_ = why;
  for (Message& message : messages_) message.changed.notify_all();
}

void ThreadChannel::wait(std::unique_lock<std::mutex>& lock, Message& message,
                         Message::State state) {
  message.changed.wait(lock, [&] { return !ended_.empty() || message.state == state; });
  if (message.state != state) fail(Fault::peer, "{}", ended_);
}

}  // namespace capstan
