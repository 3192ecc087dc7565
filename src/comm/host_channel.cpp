#include "comm/host_channel.h"

#include "base/error.h"

namespace capstan {
namespace {

class ChannelOfOne : public HostChannel {
 public:
  ChannelOfOne() : HostChannel(0, 1) {}
  void send(std::span<const std::byte>, int to) override { refuse(to); }
  void receive(std::span<std::byte>, int from) override { refuse(from); }
  void abort(std::string_view) noexcept override {}

 private:
  [[noreturn]] static void refuse(int other) {
    fail(Fault::bug, "a rank that is alone has no rank {} to talk to", other);
  }
};

void send_text(HostChannel& channel, std::string_view text, int to) {
  const uint64_t bytes = text.size();
  channel.send(std::as_bytes(std::span(&bytes, 1)), to);
  if (bytes > 0) channel.send(std::as_bytes(std::span(text)), to);
}

std::string receive_text(HostChannel& channel, int from) {
  uint64_t bytes = 0;
  channel.receive(std::as_writable_bytes(std::span(&bytes, 1)), from);
  std::string text(bytes, '\0');
  if (bytes > 0) channel.receive(std::as_writable_bytes(std::span(text)), from);
  return text;
}

}  // namespace

std::vector<std::string> HostChannel::exchange(std::string_view mine) {
  std::vector<std::string> all(static_cast<size_t>(size_));
  all[static_cast<size_t>(rank_)] = mine;
  if (rank_ != 0) {
    send_text(*this, mine, 0);
    for (std::string& text : all) text = receive_text(*this, 0);
    return all;
  }
  for (int r = 1; r < size_; ++r) all[static_cast<size_t>(r)] = receive_text(*this, r);
  for (int r = 1; r < size_; ++r)
    for (const std::string& text : all) send_text(*this, text, r);
  return all;
}

std::string HostChannel::share(std::string_view first_ranks) {
  if (rank_ != 0) return receive_text(*this, 0);
  for (int r = 1; r < size_; ++r) send_text(*this, first_ranks, r);
  return std::string(first_ranks);
}

std::unique_ptr<HostChannel> channel_of_one() {
  return std::make_unique<ChannelOfOne>();
}

}  // namespace capstan
