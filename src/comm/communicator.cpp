#include "comm/communicator.h"

#include <algorithm>
#include <functional>

#include "comm/transport.h"
#include "ops/elementwise.h"
#include "ops/sum_slices.h"

namespace capstan {
namespace {

void check_slices(const char* op, const Tensor& whole, const Tensor& mine, int size) {
  require(whole.contiguous() && mine.contiguous() && whole.dtype() == mine.dtype() &&
              whole.numel() == mine.numel() * size,
          Fault::bug, "{} among {} ranks: {} {} cannot be cut into slices of {} {}", op, size,
          whole.shape(), name_of(whole.dtype()), mine.shape(), name_of(mine.dtype()));
}

// Whether they share a byte; on sim, where they have no addresses, nothing does.
bool overlap(const Tensor& a, const Tensor& b, Device device) {
  const std::less<const std::byte*> before;  // of any two addresses
  const auto begin = [](const Tensor& t) { return static_cast<const std::byte*>(t.raw()); };
  return device != Device::sim && before(begin(a), begin(b) + b.nbytes()) &&
         before(begin(b), begin(a) + a.nbytes());
}

void check_exchange(const Queue& q, const Tensor& to, const Tensor& from, int size) {
  require(to.contiguous() && from.contiguous() && to.dtype() == from.dtype() &&
              to.numel() == from.numel() && to.numel() % size == 0,
          Fault::bug, "all_to_all among {} ranks: {} {} cannot be exchanged for slices of {} {}",
          size, from.shape(), name_of(from.dtype()), to.shape(), name_of(to.dtype()));
  require(!overlap(to, from, q.device()), Fault::bug,
          "all_to_all among {} ranks: what is sent and what is received share memory", size);
}

}  // namespace

int Communicator::rank() const {
  if (!transport_) return 0;
  return part_ ? (transport_->rank() - part_->first) / part_->stride : transport_->rank();
}
int Communicator::size() const {
  if (!transport_) return 1;
  return part_ ? part_->count : transport_->size();
}
Communicator Communicator::part(const Members& members) const {
  if (members.count == 1) return {};
  if (members.count == size()) return *this;
  require(transport_ && !part_ && members.at(members.count - 1) < transport_->size(), Fault::bug,
          "a part of {} ranks from a group of {}", members.count, size());
  Communicator some = *this;
  some.part_ = members;
  some.machines_ = 1;
  return some;
}
Communicator Communicator::split(const Members& members, std::string_view name, Lane lane) const {
  if (!transport_) return {};
  const int index = (rank() - members.first) / members.stride;
  require(!part_ && index >= 0 && index < members.count && members.at(index) == rank() &&
              members.at(members.count - 1) < size(),
          Fault::bug, "group {}: rank {} of {} is not one of {} from {}", name, rank(), size(),
          members.count, members.first);
  auto other = transport_->split({index, members.count}, members, std::string(name), lane);
  return members.count == 1 ? Communicator() : Communicator(std::move(other));
}
std::string_view Communicator::name() const {
  return transport_ ? std::string_view(transport_->name()) : "alone";
}

Tensor Communicator::slice_of(const Tensor& whole) const {
  return slice_of_rank(whole, rank(), size());
}

Work Communicator::begin(Queue& q, Collective c) const {
  // Slices are values in a row, whatever the shape.
  for (Tensor* t : {&c.whole, &c.mine})
    if (*t) *t = t->reshape({t->numel()});
  c.unit = unit_;
  c.members = part_.value_or(Members{.count = size()});
  c.index = rank();
  c.machines = machines_;
  transport_->note(c);
  Work work;
  q.eager([&] { work = {transport_, transport_->begin(q, c)}; });
  return work;
}

Communicator Communicator::for_unit(int unit) const {
  Communicator same = *this;
  same.unit_ = unit;
  return same;
}

Communicator Communicator::by_machine(int machines) const {
  require(machines > 0 && size() % machines == 0, Fault::bug,
          "{} ranks cannot be divided among {} machines", size(), machines);
  Communicator same = *this;
  same.machines_ = machines;
  return same;
}

uint64_t Communicator::digest() const {
  return transport_ ? transport_->digest() : 0;
}

Work Communicator::all_gather(Queue& q, Tensor whole, Tensor mine) const {
  check_slices("all_gather", whole, mine, size());
  if (transport_) return begin(q, {Collective::Kind::all_gather, whole, mine});
  if (whole.raw() != mine.raw()) copy(q, whole, mine);
  return {};
}

Work Communicator::reduce_scatter(Queue& q, Tensor mine, Tensor whole, Write mode) const {
  check_slices("reduce_scatter", whole, mine, size());
  if (transport_) return begin(q, {Collective::Kind::reduce_scatter, whole, mine, mode});
  if (whole.raw() != mine.raw()) sum_slices(q, mine, {&whole, 1}, mode);
  return {};
}

Work Communicator::all_reduce(Queue& q, Tensor x) const {
  check_slices("all_reduce", x, slice_of(x), size());
  if (transport_) return begin(q, {Collective::Kind::all_reduce, x, slice_of(x)});
  return {};
}

Work Communicator::all_to_all(Queue& q, Tensor to, Tensor from) const {
  check_exchange(q, to, from, size());
  if (transport_) return begin(q, {Collective::Kind::all_to_all, to, from});
  copy(q, to.reshape({to.numel()}), from.reshape({from.numel()}));
  return {};
}

Work Communicator::pass(Queue& q, Tensor x) const {
  require(size() == 2 && x.contiguous(), Fault::bug, "group {}: pass of {} among {} ranks", name(),
          x.shape(), size());
  return begin(q, {Collective::Kind::pass, x, x});
}

Buffer Communicator::make_room(Arena& arena, int64_t largest_bytes) const {
  const int64_t bytes = transport_ ? transport_->room_for(largest_bytes) : 0;
  if (bytes == 0) return {};
  Buffer room = arena.make(Category::communication, DType::u8, {bytes}, "room for sums");
  transport_->use_room(room);
  return room;
}

bool Communicator::needs_room() const {
  return transport_ && transport_->room_for(1) > 0;
}

Buffer Communicator::make_scalars(Arena& arena) const {
  if (!transport_) return {};
  return arena.make(Category::data, DType::f64, {size()}, "scalars of all ranks");
}

void Communicator::sum_scalars(Queue& q, Tensor x, Tensor room) const {
  if (!transport_) return;
  Work work = all_gather(q, room, x);
  work.join(q);
  Tensor terms[kMostSlices];
  constexpr int kMost = static_cast<int>(kMostSlices);
  for (int first = 0; first < size(); first += kMost) {
    const int count = std::min(kMost, size() - first);
    for (int i = 0; i < count; ++i) terms[i] = room.rows(first + i, 1);
    sum_slices(q, x, {terms, static_cast<size_t>(count)}, first == 0 ? Write::replace : Write::add);
  }
}

bool Communicator::waits_on_device() const {
  return transport_ && transport_->waits_on_device();
}

std::unique_ptr<HostChannel> Communicator::open_channel(std::string_view name) const {
  return transport_ ? transport_->open_channel(std::string(name)) : channel_of_one();
}

double Communicator::waited() const {
  return transport_ ? transport_->waited() : 0;
}

void Communicator::check() const {
  if (transport_) transport_->check();
}

std::vector<int> Communicator::silent_since(std::chrono::steady_clock::time_point then) const {
  return transport_ ? transport_->silent_since(then) : std::vector<int>();
}

void Communicator::abort(std::string_view why) const noexcept {
  if (transport_) transport_->abort(why);
}

void Communicator::Work::join(Queue& q) {
  if (transport_) q.eager([&] { transport_->join(q, sequence_); });
  transport_.reset();
}

}  // namespace capstan
