#include "comm/host_channel.h"

#include <algorithm>
#include <cstring>

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

// To rank 0, and from there to all.
void HostChannel::gather(std::span<std::byte> all, std::span<const std::byte> mine) {
  const auto of = [&](int rank) {
    return all.subspan(static_cast<size_t>(rank) * mine.size(), mine.size());
  };
  std::memcpy(of(rank_).data(), mine.data(), mine.size());
  if (rank_ != 0) {
    send(mine, 0);
    return receive(all, 0);
  }
  for (int r = 1; r < size_; ++r) receive(of(r), r);
  for (int r = 1; r < size_; ++r) send(all, r);
}

std::vector<std::string> HostChannel::exchange(std::string_view mine) {
  const uint64_t bytes = mine.size();
  std::vector<uint64_t> sizes(static_cast<size_t>(size_));
  gather(std::as_writable_bytes(std::span(sizes)), std::as_bytes(std::span(&bytes, 1)));
  std::string padded(mine);
  padded.resize(*std::max_element(sizes.begin(), sizes.end()));
  std::string together(padded.size() * sizes.size(), '\0');
  if (!padded.empty())
    gather(std::as_writable_bytes(std::span(together)), std::as_bytes(std::span(padded)));
  std::vector<std::string> all;
  for (size_t r = 0; r < sizes.size(); ++r)
    all.push_back(together.substr(r * padded.size(), sizes[r]));
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
