#include "comm/simulated.h"

#include <algorithm>
#include <deque>
#include <span>
#include <vector>

#include "comm/transport.h"
#include "ops/sum_slices.h"
#include "tensor/trace.h"

namespace capstan {
namespace {

using Kind = Collective::Kind;

// How the members of a group are divided among machines.
struct Machines {
  int count, largest;  // machines, and the members on the one that has most
};
Machines machines_of(const Members& members, int ranks_per_machine) {
  if (ranks_per_machine == 0) return {1, members.count};
  Machines all{0, 0};
  for (int i = 0, last = -1, here = 0; i < members.count; ++i) {
    const int machine = members.at(i) / ranks_per_machine;
    if (machine != last) ++all.count;
    here = machine == last ? here + 1 : 1;
    last = machine;
    all.largest = std::max(all.largest, here);
  }
  return all;
}

// What a rank sends to others.
double sent_bytes(const Collective& c) {
  const auto bytes = static_cast<double>(c.whole.nbytes());
  if (c.kind == Kind::pass) return bytes;
  return (c.kind == Kind::all_reduce ? 2 : 1) * bytes / c.size() * (c.size() - 1);
}

class Simulated : public Transport {
 public:
  // `place`: its ranks among all.
  Simulated(const Ranks& ranks, std::string name, const Network& network, const Members& place,
            Lane lane = Lane::comm, const Members& members = {.count = 0})
      : Transport(ranks.rank, ranks.size, std::move(name), lane, members, kAnyNumber),
        network_(network),
        place_(place) {}

  std::shared_ptr<Transport> split(const Ranks& ranks, const Members& members, std::string name,
                                   Lane lane) override {
    return std::make_shared<Simulated>(ranks, std::move(name), network_, among_all_ranks(members),
                                       lane, members);
  }

  int64_t room_for(int64_t whole_bytes) const override { return network_.room ? whole_bytes : 0; }

  uint64_t begin(Queue& q, const Collective& c) override {
    const double begins = std::max(free_at_, q.now());
    free_at_ = begins + seconds(c);
    running_.push_back({c, free_at_});
    if (q.trace() != nullptr)
      q.trace()->add({.name = std::string(name_of(c.kind)),
                      .row = Trace::row(lane()),
                      .begin = begins,
                      .end = free_at_,
                      .bytes = sent_bytes(c),
                      .note = c.describe()});
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
    const auto count = static_cast<size_t>(c.size());
    terms_.assign(count, c.mine);
    if (count <= kMostSlices) return sum_slices(q, c.mine, terms_, c.mode, c.machines);
    // More than one kernel takes: one after the other.
    Write mode = c.mode;
    for (size_t i = 0; i < count; i += kMostSlices, mode = Write::add)
      sum_slices(q, c.mine, std::span(terms_).subspan(i, std::min(kMostSlices, count - i)), mode);
  }

  Members among_all_ranks(const Members& members) const {
    return {place_.at(members.first), members.stride * place_.stride, members.count};
  }

  // Each rank sends its slice, or a slice to each other rank; all_reduce does both.
  double seconds(const Collective& c) const {
    const Members members = among_all_ranks(c.members);
    const auto bytes = static_cast<double>(c.whole.nbytes());
    switch (c.kind) {
      case Kind::pass: return network_.pass_seconds(members.at(0), members.at(1), bytes);
      case Kind::all_to_all: return network_.personal_seconds(members, bytes / c.size());
      case Kind::all_reduce: return network_.exchange_seconds(members, bytes / c.size(), 2);
      case Kind::all_gather:
      case Kind::reduce_scatter: return network_.exchange_seconds(members, bytes / c.size(), 1);
    }
    return 0;
  }

  Network network_;
  Members place_;
  uint64_t begun_ = 0;
  double free_at_ = 0;
  std::deque<Running> running_;
  std::vector<Tensor> terms_;
};

}  // namespace

double Network::exchange_seconds(const Members& members, double slice_bytes, int rounds) const {
  const auto [machines, on_each] = machines_of(members, ranks_per_machine);
  if (machines == 1)
    return rounds * (members.count - 1) * (seconds_per_message + slice_bytes / bytes_per_second);
  const double within =
      (on_each - 1) * (seconds_per_message + machines * slice_bytes / bytes_per_second);
  const double between =
      (machines - 1) * (across.seconds_per_message + slice_bytes / across.bytes_per_second);
  return rounds * std::max(within, between);
}

double Network::personal_seconds(const Members& members, double slice_bytes) const {
  const auto [machines, on_each] = machines_of(members, ranks_per_machine);
  const double within = (on_each - 1) * (seconds_per_message + slice_bytes / bytes_per_second);
  if (machines == 1) return within;
  const double between = (members.count - on_each) *
                         (across.seconds_per_message + slice_bytes / across.bytes_per_second);
  return std::max(within, between);
}

double Network::pass_seconds(int from, int to, double bytes) const {
  const bool within = ranks_per_machine == 0 || from / ranks_per_machine == to / ranks_per_machine;
  return within ? seconds_per_message + bytes / bytes_per_second
                : across.seconds_per_message + bytes / across.bytes_per_second;
}

Communicator simulated(const Ranks& ranks, std::string name, const Network& network) {
  if (ranks.size == 1) return {};
  return Communicator(
      std::make_shared<Simulated>(ranks, std::move(name), network, Members{.count = ranks.size}));
}

}  // namespace capstan
