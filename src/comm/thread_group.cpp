#include "comm/thread_group.h"

#include <fmt/ranges.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/parallel.h"
#include "base/units.h"
#include "comm/thread_channel.h"
#include "comm/transport.h"
#include "comm/wait_cause.h"
#include "ops/elementwise.h"
#include "ops/sum_slices.h"

namespace capstan {
namespace {

using Kind = Collective::Kind;

// Between its stages a collective waits until every rank is through the stage before.
constexpr size_t kMostStages = 2;
int stages_of(Kind kind) {
  return kind == Kind::all_reduce ? 2 : 1;
}

}  // namespace

// What the ranks of a group tell each other.
class ThreadGroup::Shared {
 public:
  struct Slot;
  // A rank of the first group. Each is woken by itself, when it can go on: to wake all of them when
  // one arrives takes longer than small collectives do.
  struct Rank {
    std::vector<Member*> members;     // of the first group, and of all others that it is in
    const Member* waiting = nullptr;  // in this group; null: it does not wait
    const Slot* wanted = nullptr;     // it waits for this one to be free, too
    std::condition_variable woken;
  };
  // Of a group and all that were split from it: they end together.
  struct Family {
    std::mutex mutex;  // for all that follows, and for what the groups share
    std::vector<Shared*> groups;
    std::vector<std::unique_ptr<Rank>> ranks;
    int working = 0;               // ranks that are inside of a stage
    std::condition_variable idle;  // none is
    std::string ended;             // why the groups have ended; empty: they have not

    Rank& at(int rank) { return *ranks[static_cast<size_t>(rank)]; }
  };

  // Collectives that have begun and are not complete.
  static constexpr size_t kMost = 128;

  struct Slot {
    explicit Slot(int size)
        : calls(static_cast<size_t>(size)),
          reached(static_cast<size_t>(size), kFree),
          ready(static_cast<size_t>(size)),
          done(static_cast<size_t>(size)) {}
    std::vector<Collective> calls;  // by rank
    // By rank: how many stages it has completed; negative before it has begun. kFree: the slot has
    // no collective of this rank.
    static constexpr int kFree = -1;
    std::vector<int> reached;
    // By rank, for a GPU: where its operands are ready, and where each stage ends.
    std::vector<Event> ready;
    std::vector<std::array<Event, kMostStages>> done;
  };

  Shared(std::shared_ptr<Family> its_family, int size, std::string group_name, Duration longest)
      : name(std::move(group_name)),
        timeout(longest),
        family(std::move(its_family)),
        slots(kMost, Slot(size)) {
    family->groups.push_back(this);
    // Others are parts of the first group.
    while (family->ranks.size() < static_cast<size_t>(size))
      family->ranks.push_back(std::make_unique<Rank>());
  }
  int size() const { return static_cast<int>(slots[0].calls.size()); }

  Slot& at(uint64_t sequence) { return slots[sequence % kMost]; }
  bool ended() const { return !family->ended.empty(); }
  void check_alive() const {
    if (ended()) fail(Fault::peer, "{}", family->ended);
  }
  void end(std::string_view why) {
    if (!ended()) family->ended = why;
    for (const Shared* group : family->groups)
      for (const auto& channel : group->channels) channel->end(family->ended);
    for (const auto& rank : family->ranks) rank->woken.notify_one();
  }
  // The channel that every rank opens as its number `index`.
  std::shared_ptr<ThreadChannel> channel(size_t index, std::string channel_name) {
    const std::lock_guard lock(family->mutex);
    if (index == channels.size())
      channels.push_back(std::make_shared<ThreadChannel>(size(), std::move(channel_name)));
    if (ended()) channels[index]->end(family->ended);
    return channels[index];
  }
  // The group that its members split off by their call number `index`.
  std::shared_ptr<Shared> child(size_t index, const Members& members, std::string child_name) {
    const std::lock_guard lock(family->mutex);
    std::shared_ptr<Shared>& group = children[{index, members.first}];
    if (!group)
      group = std::make_shared<Shared>(family, members.count, std::move(child_name), timeout);
    return group;
  }

  const std::string name;
  const Duration timeout;
  const std::shared_ptr<Family> family;
  std::vector<Slot> slots;
  std::vector<std::shared_ptr<ThreadChannel>> channels;  // in the order in which they are opened
  std::map<std::pair<size_t, int>, std::shared_ptr<Shared>> children;
};

class ThreadGroup::Member : public Transport {
 public:
  // `root`: the group that it was split from, which it keeps.
  Member(std::shared_ptr<Shared> shared, int rank, Lane lane = Lane::comm,
         const Members& members = {.count = 0}, std::shared_ptr<Shared> root = nullptr)
      : Transport(rank, shared->size(), shared->name, lane, members),
        root_(std::move(root)),
        shared_(std::move(shared)),
        family_(*shared_->family),
        terms_(static_cast<size_t>(size())) {
    const std::lock_guard lock(family_.mutex);
    us().members.push_back(this);
  }
  ~Member() override {
    const std::lock_guard lock(family_.mutex);
    std::erase(us().members, this);
  }

  uint64_t begin(Queue& q, const Collective& c) override {
    if (begun_ - complete_ == Shared::kMost) finish(q, complete_);
    Shared::Slot& slot = shared_->at(begun_);
    // Others may not have left the collective that had this slot before.
    wait(
        q, [&] { return slot.reached[index()] == Shared::Slot::kFree; },
        [&] {
          shared_->end(
              fmt::format("group {}: rank {} waited for others", name(), among_all(rank())));
          shared_->check_alive();
        },
        &slot);
    uint64_t sequence = 0;
    {
      const std::lock_guard lock(family_.mutex);
      shared_->check_alive();
      slot.calls[index()] = c;
      q.record(slot.ready[index()]);
      slot.reached[index()] = 0;
      sequence = begun_++;
      note_able();
    }
    wake();
    advance(q);
    return sequence;
  }

  void finish(Queue& q, uint64_t sequence) override {
    const auto is_ready = [&] { return can_advance(); };
    for (advance(q); complete_ <= sequence; advance(q))
      wait(q, is_ready, [&] { give_up(shared_->at(complete_)); });
    q.wait(completed_[sequence % Shared::kMost]);
  }

  std::unique_ptr<HostChannel> open_channel(std::string channel) override {
    return ThreadChannel::end_of(shared_->channel(opened_++, std::move(channel)), rank());
  }

  std::shared_ptr<Transport> split(const Ranks& ranks, const Members& members, std::string name,
                                   Lane lane) override {
    auto group = shared_->child(splits_++, members, std::move(name));
    return std::make_shared<Member>(std::move(group), ranks.rank, lane, members, shared_);
  }

  void check() override {
    const std::lock_guard lock(family_.mutex);
    shared_->check_alive();
  }

  // Afterwards no rank reads this one's memory.
  void abort(std::string_view why) noexcept override {
    std::unique_lock lock(family_.mutex);
    shared_->end(why);
    family_.idle.wait(lock, [&] { return family_.working == 0; });
    try {
      for (const Shared* group : family_.groups)
        for (const Shared::Slot& slot : group->slots)
          for (const auto& stages : slot.done)
            for (const Event& done : stages) done.wait();
    } catch (...) {  // the device has failed, and reads nothing more
    }
  }

 private:
  size_t index() const { return static_cast<size_t>(rank()); }
  // Does it for every rank that takes part in a collective.
  template <class Body>
  static void for_each(const Collective& c, const Body& body) {
    for (int i = 0; i < c.size(); ++i) body(static_cast<size_t>(c.members.at(i)));
  }

  // With the mutex locked.
  Shared::Rank& us() { return family_.at(among_all(rank())); }

  // Whether the oldest collective need not wait for another rank. With the mutex locked.
  bool can_advance() const {
    if (complete_ == begun_) return false;
    const Shared::Slot& slot = shared_->at(complete_);
    const Collective& mine = slot.calls[index()];
    for (int i = 0; i < mine.size() && !shared_->ended(); ++i)
      if (slot.reached[static_cast<size_t>(mine.members.at(i))] < stage_) return false;
    return true;
  }

  // Ranks of the group that wait and can go on, now that this one has, or now that this slot is
  // free: with the mutex locked. They are woken without, or they would wait for it.
  void note_able(const Shared::Slot* free = nullptr) {
    const auto able = [](const Member* m) { return m->can_advance(); };
    for (int r = 0; r < size(); ++r) {
      Shared::Rank& other = family_.at(among_all(r));
      const std::vector<Member*>& m = other.members;
      if (other.waiting != nullptr &&
          (free != nullptr ? other.wanted == free : std::any_of(m.begin(), m.end(), able)))
        able_.push_back(&other);
    }
  }
  void wake() {
    for (Shared::Rank* rank : able_) rank->woken.notify_one();
    able_.clear();
  }

  // Waits until the test holds, or the groups have ended; after the timeout calls `give_up`.
  // Meanwhile this rank does its part of its other groups' collectives: others may wait for that.
  // Both are called with the mutex locked. `wanted`: a slot for which the test waits to be free.
  template <class Test, class GiveUp>
  void wait(Queue& q, const Test& test, const GiveUp& give_up,
            const Shared::Slot* wanted = nullptr) {
    std::unique_lock lock(family_.mutex);
    const auto able = [](const Member* m) { return m->can_advance(); };
    const auto done = [&] { return shared_->ended() || test(); };
    while (!done()) {
      Member* other = nullptr;
      const auto something = [&] {
        const auto found = std::find_if(us().members.begin(), us().members.end(), able);
        other = found == us().members.end() ? nullptr : *found;
        return done() || other != nullptr;
      };
      us().waiting = this;
      us().wanted = wanted;
      const bool in_time = us().woken.wait_for(lock, shared_->timeout, something);
      us().waiting = nullptr;
      if (!in_time) give_up();
      if (done() || other == nullptr) continue;
      lock.unlock();
      other->advance(q);
      lock.lock();
    }
    shared_->check_alive();
  }

  // Runs the stages of the oldest collectives for which no rank must be waited for.
  void advance(Queue& q) {
    while (advance_once(q)) {
    }
  }
  bool advance_once(Queue& q) {
    Shared::Slot& slot = shared_->at(complete_);
    const Collective& mine = slot.calls[index()];
    {
      const std::lock_guard lock(family_.mutex);
      if (!can_advance()) return false;
      shared_->check_alive();
      if (stage_ == 0) compare(slot);
      family_.working += stage_ < stages_of(mine.kind);
    }
    if (stage_ < stages_of(mine.kind)) {
      try {
        run_stage(q, slot);
      } catch (...) {
        const std::lock_guard lock(family_.mutex);
        stop_working();
        throw;
      }
      const std::lock_guard lock(family_.mutex);
      stop_working();
      slot.reached[index()] = ++stage_;
      note_able();
    } else {
      note_completed(q, slot);
      leave(slot);
    }
    wake();
    return true;
  }

  // abort() waits until no rank is inside of a stage. With the mutex locked.
  void stop_working() {
    if (--family_.working == 0 && shared_->ended()) family_.idle.notify_all();
  }

  // A GPU has completed it when every rank's last stage is done: until then they may read this
  // rank's memory.
  void note_completed(Queue& q, const Shared::Slot& slot) {
    const Queue::OnLane on_lane(q, lane());
    wait_for_stage(q, slot, stage_ - 1);
    q.record(completed_[complete_ % Shared::kMost]);
  }

  // The queue waits until every rank is through this stage, or ready for the first.
  void wait_for_stage(Queue& q, const Shared::Slot& slot, int stage) const {
    for_each(slot.calls[index()], [&](size_t r) {
      q.wait(stage < 0 ? slot.ready[r] : slot.done[r][static_cast<size_t>(stage)]);
    });
  }

  // The last rank to leave a slot frees it for another collective.
  void leave(Shared::Slot& slot) {
    const std::lock_guard lock(family_.mutex);
    slot.reached[index()] = kLeft;
    ++complete_;
    stage_ = 0;
    if (!std::all_of(slot.reached.begin(), slot.reached.end(), [](int r) { return r == kLeft; }))
      return;
    std::fill(slot.reached.begin(), slot.reached.end(), Shared::Slot::kFree);
    note_able(&slot);
  }

  void run_stage(Queue& q, Shared::Slot& slot) {
    const Queue::OnLane on_lane(q, lane());
    wait_for_stage(q, slot, stage_ - 1);
    move(q, slot);
    q.record(slot.done[index()][static_cast<size_t>(stage_)]);
  }

  void move(Queue& q, const Shared::Slot& slot) {
    const Collective& c = slot.calls[index()];
    const auto call_of = [&](int i) -> const Collective& {
      return slot.calls[static_cast<size_t>(c.members.at(i))];
    };
    if (c.kind == Kind::pass) {
      if (c.index == 1) copy(q, c.whole, call_of(0).whole);
      return;
    }
    if (sums(c) && stage_ == 0) {
      terms_.clear();
      for (int i = 0; i < c.size(); ++i) terms_.push_back(call_of(i).slice(c.index));
      return sum_slices(q, c.mine, terms_, c.mode, c.machines);
    }
    for (int i = 0; i < c.size(); ++i) {
      const Tensor to = c.slice(i), from = call_of(i).given_to(c.index);
      if (to.raw() != from.raw()) copy(q, to, from);
    }
  }

  // All ranks must have called the same.
  void compare(const Shared::Slot& slot) {
    const Collective& mine = slot.calls[index()];
    for (int i = 0; i < mine.size(); ++i) {
      const auto r = static_cast<size_t>(mine.members.at(i));
      if (fingerprint(slot.calls[r]) == fingerprint(mine)) continue;
      shared_->end(fmt::format("group {}, collective {}: rank {} called {}, rank {} {}", name(),
                               complete_, among_all(rank()), mine.describe(),
                               among_all(static_cast<int>(r)), slot.calls[r].describe()));
      shared_->check_alive();
    }
  }

  // Those that its oldest collective waits for, among all ranks. With the mutex locked.
  std::vector<int> missing() const {
    std::vector<int> ranks;
    if (complete_ == begun_) return ranks;
    const Shared::Slot& slot = shared_->at(complete_);
    for_each(slot.calls[index()], [&](size_t r) {
      if (slot.reached[r] < stage_) ranks.push_back(among_all(static_cast<int>(r)));
    });
    return ranks;
  }
  RankState state_of(int rank) const {
    const Member* const waits = family_.at(rank).waiting;
    if (waits == nullptr) return {RankState::Kind::busy};
    return {RankState::Kind::waits, waits->missing()};
  }

  [[noreturn]] void give_up(const Shared::Slot& slot) {
    const WaitCause cause =
        cause_of_wait(among_all(rank()), missing(), [&](int r) { return state_of(r); });
    shared_->end(fmt::format(
        "group {}, collective {}: rank {} waited {:g} s for rank {} in {}{}", name(), complete_,
        among_all(rank()), std::chrono::duration<double>(shared_->timeout).count(),
        fmt::join(cause.ranks, ", "), slot.calls[index()].describe(), cause.how));
    shared_->check_alive();
    fail(Fault::bug, "a group that has ended goes on");
  }

  static constexpr int kLeft = 1 << 20;

  std::shared_ptr<Shared> root_, shared_;
  Shared::Family& family_;
  size_t splits_ = 0;
  uint64_t begun_ = 0, complete_ = 0;
  size_t opened_ = 0;  // channels
  int stage_ = 0;      // of the oldest collective that is not complete
  std::vector<Tensor> terms_;
  std::vector<Shared::Rank*> able_;             // to be woken
  std::array<Event, Shared::kMost> completed_;  // on a GPU, by sequence
};

ThreadGroup::ThreadGroup(int size, std::string name, Duration timeout)
    : shared_(std::make_shared<Shared>(std::make_shared<Shared::Family>(), size, std::move(name),
                                       timeout)) {}
ThreadGroup::~ThreadGroup() = default;

Communicator ThreadGroup::of(int rank) {
  if (shared_->size() == 1) return {};
  return Communicator(std::make_shared<Member>(shared_, rank));
}

void run_as_threads(int size, const std::function<void(Communicator)>& body,
                    ThreadGroup::Duration timeout) {
  ThreadGroup group(size, "dp", timeout);
  std::mutex mutex;
  std::exception_ptr cause, consequence;
  const int cores = num_threads();
  const auto run = [&](int rank) {
    omp_set_num_threads(std::max(1, cores / size + (rank < cores % size ? 1 : 0)));
    Communicator mine = group.of(rank);
    const auto note = [&](bool is_cause, std::string_view why) {
      mine.abort(why);
      const std::lock_guard lock(mutex);
      std::exception_ptr& first = is_cause ? cause : consequence;
      if (!first) first = std::current_exception();
    };
    try {
      body(mine);
    } catch (const Error& e) {
      note(e.fault() != Fault::peer, fmt::format("rank {}: {}", rank, e.what()));
    } catch (const std::exception& e) {
      note(true, fmt::format("rank {}: {}", rank, e.what()));
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    try {
      threads.emplace_back(run, rank);
    } catch (const std::system_error& e) {
      Communicator last = group.of(rank);
      const std::string why = fmt::format("cannot start the thread of rank {}: {}", rank, e.what());
      last.abort(why);
      const std::lock_guard lock(mutex);
      cause = std::make_exception_ptr(Error(Fault::device, why));
      break;
    }
  }
  for (std::thread& t : threads) t.join();
  if (cause) std::rethrow_exception(cause);
  if (consequence) std::rethrow_exception(consequence);
}

}  // namespace capstan
