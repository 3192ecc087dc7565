#include "comm/transport.h"

#include <chrono>

#include <utility>

#include "ops/sum_slices.h"

namespace capstan {

static_assert(kMostMembers == static_cast<int>(kMostSlices));

Transport::Transport(int rank, int size, std::string name, Lane lane, const Members& members,
                     int most)
    : rank_(rank), size_(size), name_(std::move(name)), lane_(lane), members_(members) {
  require(size > 0 && size <= most, Fault::usage, "a group has 1 to {} ranks, not {}", most, size);
}

void Transport::join(Queue& q, uint64_t sequence) {
  using Clock = std::chrono::steady_clock;
  if (q.device() == Device::cuda) {
    on_gpu_.begin(q);
    const Queue::Span span = q.traced("wait");
    finish(q, sequence);
    on_gpu_.end(q);
    return;
  }
  const Queue::Span span = q.traced("wait");
  const auto start = Clock::now();
  finish(q, sequence);
  waited_ += std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace capstan
