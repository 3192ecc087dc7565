#include "comm/simulated.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "comm/transport.h"
#include "ops/sum_slices.h"

namespace capstan {
namespace {

using Kind = Collective::Kind;

class Simulated : public Transport {
 public:
  Simulated(const Ranks& ranks, std::string name, const Network& network, Lane lane = Lane::comm,
            const Members& members = {.count = 0})
      : Transport(ranks.rank, ranks.size, std::move(name), lane, members), network_(network) {}

  std::shared_ptr<Transport> split(const Ranks& ranks, const Members& members, std::string name,
                                   Lane lane) override {
    return std::make_shared<Simulated>(ranks, std::move(name), network_, lane, members);
  }

  int64_t room_for(int64_t whole_bytes) const override { return network_.room ? whole_bytes : 0; }

  uint64_t begin(Queue& q, const Collective& c) override {
    free_at_ = std::max(free_at_, q.now()) + seconds(c);
    running_.push_back({c, free_at_});
    if (q.target() == Device::cuda && sums(c)) {
      // A GPU sums beside its computation.
      const Queue::OnLane on_lane(q, lane());
      q.wait_until(free_at_);
      sum(q, c);
      running_.back().complete_at = q.now();
    }
    return begun_++;
  }

  void finish(Queue& q, uint64_t sequence) override {
    for (; !running_.empty() && begun_ - running_.size() <= sequence; running_.pop_front()) {
      const Running& first = running_.front();
      q.wait_until(first.complete_at);
      // A CPU has no other time for the sum.
      if (q.target() == Device::cpu && sums(first.call)) sum(q, first.call);
    }
  }

  void check() override {}
  void abort(std::string_view) noexcept override {}

  std::unique_ptr<HostChannel> open_channel(std::string channel) override {
    fail(Fault::bug, "channel {}: a simulated rank has no other ranks to talk to", channel);
  }

 private:
  struct Running {
    Collective call;
    double complete_at;
  };

  void sum(Queue& q, const Collective& c) {
    terms_.assign(static_cast<size_t>(c.size()), c.mine);
    sum_slices(q, c.mine, terms_, c.mode, c.machines);
  }

  // Each rank sends its slice, or a slice to each other rank; all_reduce does both.
  double seconds(const Collective& c) const {
    if (c.kind == Kind::pass)
      return network_.seconds_per_message +
             static_cast<double>(c.whole.nbytes()) / network_.bytes_per_second;
    const double rounds = c.kind == Kind::all_reduce ? 2 : 1, others = c.size() - 1;
    const double slice = static_cast<double>(c.whole.nbytes()) / c.size();
    return rounds * others * (network_.seconds_per_message + slice / network_.bytes_per_second);
  }

  Network network_;
  uint64_t begun_ = 0;
  double free_at_ = 0;
  std::deque<Running> running_;
  std::vector<Tensor> terms_;
};

}  // namespace

Communicator simulated(const Ranks& ranks, std::string name, const Network& network) {
  if (ranks.size == 1) return {};
  return Communicator(std::make_shared<Simulated>(ranks, std::move(name), network));
}

}  // namespace capstan
