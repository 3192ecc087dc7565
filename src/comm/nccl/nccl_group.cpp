#include "comm/nccl/nccl_group.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "ops/elementwise.h"
#include "ops/sum_slices.h"
#include "tensor/cuda/context.h"

namespace capstan {
namespace {

using Kind = Collective::Kind;

double seconds(NcclGroup::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::string version_of_nccl() {
  int version = 0;
  ncclGetVersion(&version);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void require_same_versions(HostChannel& talk) {
  const auto versions = talk.exchange(version_of_nccl());
  for (size_t r = 0; r < versions.size(); ++r)
    require(versions[r] == versions[0], Fault::usage,
            "ranks differ in NCCL: rank 0 has {}, rank {} has {}; install the same version "
            "everywhere",
            versions[0], r, versions[r]);
}

ncclConfig_t config_of_comms() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // so that a rank that is lost does not hold the others
  return config;
}

std::string memory_taken(int64_t free_before) {
  return format_bytes(
      static_cast<double>(std::max<int64_t>(0, free_before - free_device_memory())));
}

ncclUniqueId shared_id(HostChannel& talk) {
  ncclUniqueId id{};
  if (talk.rank() == 0)
    require(ncclGetUniqueId(&id) == ncclSuccess, Fault::device, "NCCL: cannot start: {}",
            ncclGetLastError(nullptr));
  const std::string bytes = talk.share({id.internal, sizeof id.internal});
  std::memcpy(id.internal, bytes.data(), sizeof id.internal);
  return id;
}

}  // namespace

NcclGroup::NcclGroup(const Communicator& processes, Clock::duration timeout)
    : Transport(processes.rank(), processes.size(), std::string(processes.name())),
      family_(std::make_shared<Family>()),
      was_split_(false),
      processes_(processes),
      gpu_(gpu_index()),
      timeout_(timeout) {
  const auto talk = processes_.open_channel("nccl");
  require_same_versions(*talk);
  const ncclUniqueId id = shared_id(*talk);
  const int64_t before = free_device_memory();
  start(id);
  log::info("NCCL {}: {}, {} of GPU memory besides the plan", version_of_nccl(),
            count(size(), "rank"), memory_taken(before));
  join_family();
  watch_ = std::thread([this] { watch(); });
}

NcclGroup::NcclGroup(const NcclGroup& first, ncclComm_t comm, const Ranks& ranks,
                     const Members& members, std::string name, Lane lane)
    : Transport(ranks.rank, ranks.size, std::move(name), lane, members),
      family_(first.family_),
      was_split_(true),
      processes_(first.processes_),
      gpu_(first.gpu_),
      timeout_(first.timeout_),
      comm_(comm) {
  join_family();
}

void NcclGroup::start(const ncclUniqueId& id) {
  ncclConfig_t config = config_of_comms();
  const ncclResult_t result = ncclCommInitRankConfig(&comm_, size(), id, rank(), &config);
  require_success(result, "start");
  settle("start");
}

NcclGroup::~NcclGroup() {
  {
    const std::lock_guard lock(family_->mutex);
    leaving_ = true;
  }
  changed_.notify_all();
  if (watch_.joinable()) watch_.join();
  try {
    {
      const std::lock_guard lock(family_->calls);
      check();
      require_success(ncclCommFinalize(comm_), "end");
    }
    settle("end");
  } catch (...) {  // the processes end, and their memory with them
    end(std::current_exception());
  }
  if (const ncclComm_t comm = leave_family(); comm != nullptr) ncclCommDestroy(comm);
}

void NcclGroup::join_family() {
  const std::lock_guard lock(family_->mutex);
  family_->groups.push_back(this);
}

ncclComm_t NcclGroup::leave_family() {
  const std::scoped_lock lock(family_->calls, family_->mutex);
  std::erase(family_->groups, this);
  return std::exchange(comm_, nullptr);
}

std::shared_ptr<Transport> NcclGroup::split(const Ranks& ranks, const Members& members,
                                            std::string name, Lane lane) {
  require(!was_split_, Fault::bug, "group {}: group {} was itself split from another one", name,
          this->name());
  wait_for_at_most(0);               // or NCCL might wait for itself
  std::shared_ptr<NcclGroup> group;  // after an error, destroyed when all have ended
  try {
    const int64_t before = free_device_memory();
    const bool alone = members.count == 1;
    const ncclComm_t comm = split_comm(alone ? NCCL_SPLIT_NOCOLOR : members.first, ranks.rank);
    if (alone) return nullptr;
    require(comm != nullptr, Fault::device, "NCCL: group {}: cannot split {}", this->name(), name);
    group = std::make_shared<NcclGroup>(*this, comm, ranks, members, std::move(name), lane);
    group->settle("start");
    group->watch_ = std::thread([g = group.get()] { g->watch(); });
    log::info("NCCL: group {}: {}, {} of GPU memory besides the plan", group->name(),
              count(group->size(), "rank"), memory_taken(before));
    return group;
  } catch (...) {
    end(std::current_exception());
    throw;
  }
}

// A thread of NCCL's may split. The comm is there when this group's own is ready again; if it does
// not get ready, the thread ends when this group's comm is aborted.
ncclComm_t NcclGroup::split_comm(int color, int key) {
  ncclConfig_t config = config_of_comms();
  {
    const std::lock_guard lock(family_->calls);
    check();
    require_success(ncclCommSplit(comm_, color, key, &split_, &config), "split");
  }
  settle("split");
  return std::exchange(split_, nullptr);
}

void NcclGroup::require_success(ncclResult_t result, const char* doing) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  // What ended the group, or another rank told, explains more than what NCCL noticed of it.
  check();
  processes_.check();
  fail(result == ncclRemoteError || result == ncclSystemError ? Fault::peer : Fault::device,
       "NCCL: group {}, rank {}: cannot {}: {}. {}", name(), among_all(rank()), doing,
       ncclGetErrorString(result), ncclGetLastError(comm_));
}

void NcclGroup::settle(const char* doing) {
  const auto start = Clock::now(), deadline = start + timeout_;
  auto pause = std::chrono::microseconds(0);
  auto next_ping = start + timeout_ / 8;
  for (;;) {
    ncclResult_t result = ncclSuccess;
    {
      const std::lock_guard lock(family_->calls);
      check();
      require_success(ncclCommGetAsyncError(comm_, &result), doing);
    }
    require_success(result, doing);
    if (result == ncclSuccess) return;
    processes_.check();
    const auto now = Clock::now();
    if (now > next_ping) {
      next_ping = now + timeout_ / 8;
      const std::vector<int> silent = silent_ranks(start);
      require(now < deadline, Fault::peer,
              "group {}: rank {} waited {:g} s for NCCL to {} with the other ranks; {}", name(),
              among_all(rank()), seconds(timeout_), doing,
              silent.empty() ? "their processes answer"
                             : fmt::format("rank {} does not answer", fmt::join(silent, ", ")));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause + std::chrono::microseconds(2), std::chrono::microseconds(200));
  }
}

void NcclGroup::wait_for_at_most(uint64_t running) {
  std::unique_lock lock(family_->mutex);
  changed_.wait(lock, [&] { return family_->error || begun_ - complete_ <= running; });
  if (family_->error) std::rethrow_exception(family_->error);
}

uint64_t NcclGroup::begin(Queue& q, const Collective& c) {
  require(q.device() == Device::cuda, Fault::bug, "NCCL with a queue on {}", name_of(q.device()));
  wait_for_at_most(kMost - 1);
  Running& slot = at(begun_);
  slot.call = c;
  slot.since.reset();
  q.record(slot.ready);
  {
    const Queue::OnLane on_lane(q, lane());
    q.wait(slot.ready);
    q.record(slot.started);
    move(q, c);
    q.record(slot.done);
  }
  const std::lock_guard lock(family_->mutex);
  published_ = begun_ + 1;
  return begun_++;
}

void NcclGroup::finish(Queue& q, uint64_t sequence) {
  check();
  q.wait(at(sequence).done);
}

void NcclGroup::begin_messages() {
  family_->calls.lock();
  ncclGroupStart();
}

void NcclGroup::end_messages() {
  const ncclResult_t result = ncclGroupEnd();
  family_->calls.unlock();
  require_success(result, "send and receive");
  if (result == ncclInProgress) settle("send and receive");
}

void NcclGroup::send(Queue& q, const Tensor& from, int to) {
  ncclSend(from.raw(), static_cast<size_t>(from.nbytes()), ncclUint8, to, comm_,
           cuda::stream_of(q));
}

void NcclGroup::receive(Queue& q, const Tensor& to, int from) {
  ncclRecv(to.raw(), static_cast<size_t>(to.nbytes()), ncclUint8, from, comm_, cuda::stream_of(q));
}

void NcclGroup::move(Queue& q, const Collective& c) {
  if (c.kind == Kind::pass) return pass(q, c);
  if (sums(c)) sum(q, c);
  if (c.kind != Kind::reduce_scatter) exchange(q, c);
}

void NcclGroup::pass(Queue& q, const Collective& c) {
  begin_messages();
  if (c.index == 0)
    send(q, c.whole, c.members.at(1));
  else
    receive(q, c.whole, c.members.at(0));
  end_messages();
}

void NcclGroup::exchange(Queue& q, const Collective& c) {
  begin_messages();
  for (int i = 0; i < c.size(); ++i) {
    if (i == c.index) continue;
    receive(q, c.slice(i), c.members.at(i));
    send(q, c.given_to(i), c.members.at(i));
  }
  end_messages();
  const Tensor own = c.slice(c.index), given = c.given_to(c.index);
  if (own.raw() != given.raw()) copy(q, own, given);
}

// The slices of the other ranks come into the room, then all are added in rank order.
void NcclGroup::sum(Queue& q, const Collective& c) {
  const int64_t each = c.mine.nbytes();
  require(room_ && each * c.size() <= room_.nbytes(), Fault::bug,
          "group {}: {} needs more room than the {} bytes there are", name(), c.describe(),
          room_ ? room_.nbytes() : 0);
  terms_.assign(static_cast<size_t>(c.size()), c.slice(c.index));
  begin_messages();
  for (int i = 0; i < c.size(); ++i) {
    if (i == c.index) continue;
    Tensor& term = terms_[static_cast<size_t>(i)];
    term = room_.rows(i * each, each).viewed_as(c.whole.dtype());
    receive(q, term, c.members.at(i));
    send(q, c.slice(i), c.members.at(i));
  }
  end_messages();
  sum_slices(q, c.mine, terms_, c.mode, c.machines);
}

void NcclGroup::check() {
  const std::lock_guard lock(family_->mutex);
  if (family_->error) std::rethrow_exception(family_->error);
}

void NcclGroup::abort(std::string_view why) noexcept {
  end(std::make_exception_ptr(Error(Fault::peer, std::string(why))));
  processes_.abort(why);
}

std::unique_ptr<HostChannel> NcclGroup::open_channel(std::string channel) {
  require(!was_split_, Fault::bug, "channel {}: group {} was split from another one, and has none",
          channel, name());
  return processes_.open_channel(channel);
}

void NcclGroup::end(std::exception_ptr why) noexcept {
  {
    const std::lock_guard lock(family_->mutex);
    if (!family_->error) family_->error = why;
    for (NcclGroup* group : family_->groups) group->changed_.notify_all();
  }
  abort_all();
}

// All at once: to end one, NCCL may wait for all that the GPU does, also for the others.
void NcclGroup::abort_all() {
  const std::lock_guard calls(family_->calls);
  std::vector<ncclComm_t> comms;
  {
    const std::lock_guard lock(family_->mutex);
    for (NcclGroup* group : family_->groups)
      if (group->comm_ != nullptr) comms.push_back(std::exchange(group->comm_, nullptr));
  }
  if (comms.empty()) return;
  ncclGroupStart();
  for (const ncclComm_t comm : comms) ncclCommAbort(comm);
  ncclGroupEnd();
}

void NcclGroup::watch() {
  try {
    use_gpu(gpu_);
    for (std::unique_lock lock(family_->mutex); !leaving_ && !family_->error;) {
      changed_.wait_for(lock, std::chrono::milliseconds(10));
      lock.unlock();
      look();
      lock.lock();
    }
  } catch (...) {
    end(std::current_exception());
  }
}

void NcclGroup::look() {
  processes_.check();
  {
    const std::lock_guard lock(family_->calls);
    ncclResult_t result = ncclSuccess;
    if (comm_ == nullptr) return;
    require_success(ncclCommGetAsyncError(comm_, &result), "go on");
    require_success(result, "go on");
  }
  std::unique_lock lock(family_->mutex);
  while (complete_ < published_) {
    Running& oldest = at(complete_);
    lock.unlock();
    if (!oldest.done.reached()) return require_progress(oldest);
    lock.lock();
    ++complete_;
    changed_.notify_all();
  }
}

std::vector<int> NcclGroup::silent_ranks(Clock::time_point since) {
  const std::vector<int> of_all =
      processes_.silent_since(std::max(since, Clock::now() - timeout_ / 2));
  std::vector<int> silent;
  for (int r = 0; r < size(); ++r)
    if (std::find(of_all.begin(), of_all.end(), among_all(r)) != of_all.end())
      silent.push_back(among_all(r));
  return silent.empty() ? of_all : silent;
}

void NcclGroup::require_progress(Running& oldest) {
  if (!oldest.started.reached()) return;
  if (!oldest.since) oldest.since = Clock::now();
  const auto waited = Clock::now() - *oldest.since;
  if (waited < timeout_ / 8) return;
  const std::vector<int> silent = silent_ranks(*oldest.since);
  if (waited < timeout_) return;
  fail(Fault::peer, "group {}, collective {}: rank {} waited {:g} s for {} in {}", name(),
       complete_, among_all(rank()), seconds(timeout_),
       silent.empty() ? "others, whose processes answer,"
                      : fmt::format("rank {}", fmt::join(silent, ", ")),
       oldest.call.describe());
}

}  // namespace capstan

// What the program looks up when it loads this library.
extern "C" capstan::Transport* capstan_start_nccl(const capstan::Communicator& processes,
                                                  double timeout) {
  using Duration = capstan::NcclGroup::Clock::duration;
  return new capstan::NcclGroup(
      processes, std::chrono::duration_cast<Duration>(std::chrono::duration<double>(timeout)));
}
