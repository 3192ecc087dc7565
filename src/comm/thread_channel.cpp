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
    message = {Message::State::offered, bytes};
    c.changed_.notify_all();
    try {
      c.wait(lock, message, Message::State::taken, rank(), to);
    } catch (const Error&) {
      // The sender's memory is its own again.
      c.changed_.wait(lock, [&] { return c.copying_ == 0; });
      message = {};
      throw;
    }
    message = {};
  }

  void receive(std::span<std::byte> bytes, int from) override {
    ThreadChannel& c = *channel_;
    std::unique_lock lock(c.mutex_);
    Message& message = c.between(from, rank());
    c.wait(lock, message, Message::State::offered, rank(), from);
    const auto sent = message.bytes;
    require(sent.size() == bytes.size(), Fault::bug,
            "channel {}: rank {} sent {} bytes, rank {} expected {}", c.name_, from, sent.size(),
            rank(), bytes.size());
    ++c.copying_;
    lock.unlock();
    std::memcpy(bytes.data(), sent.data(), sent.size());
    lock.lock();
    --c.copying_;
    message.state = Message::State::taken;
    c.changed_.notify_all();
  }

  void abort(std::string_view why) noexcept override {
    channel_->end(fmt::format("rank {}: {}", rank(), why));
  }

 private:
  std::shared_ptr<ThreadChannel> channel_;
};

ThreadChannel::ThreadChannel(int size, std::string name, Duration timeout)
    : size_(size),
      name_(std::move(name)),
      timeout_(timeout),
      messages_(static_cast<size_t>(size) * static_cast<size_t>(size)) {}

std::unique_ptr<HostChannel> ThreadChannel::end_of(std::shared_ptr<ThreadChannel> channel,
                                                   int rank) {
  return std::make_unique<End>(std::move(channel), rank);
}

void ThreadChannel::end(std::string_view why) {
  const std::lock_guard lock(mutex_);
  if (ended_.empty()) ended_ = why;
  changed_.notify_all();
}

void ThreadChannel::wait(std::unique_lock<std::mutex>& lock, const Message& message,
                         Message::State state, int rank, int other) {
  const bool answered =
      changed_.wait_for(lock, timeout_, [&] { return !ended_.empty() || message.state == state; });
  if (message.state == state) return;
  if (!answered)
    ended_ = fmt::format("channel {}: rank {} waited {:g} s for rank {}", name_, rank,
                         std::chrono::duration<double>(timeout_).count(), other);
  changed_.notify_all();
  fail(Fault::peer, "{}", ended_);
}

}  // namespace capstan
