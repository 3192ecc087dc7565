#include "comm/launch_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/units.h"

namespace capstan {
namespace {

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

std::string waited_for(LaunchWatch::Doing doing, const Ranks& own, std::string_view host,
                       std::optional<int> here,
                       const std::optional<std::vector<Presence::Found>>& others) {
  const bool starts = doing == LaunchWatch::Doing::start;
  if (!others) return "which rank it waits for is not known";
  std::vector<int> there = {own.rank};
  std::vector<std::string> causes;
  for (const Presence::Found& other : *others) {
    there.push_back(other.rank);
    if (!other.answers)
      causes.push_back(other.process > 0
                           ? fmt::format("rank {} on {} (process {}) does not answer", other.rank,
                                         host, other.process)
                           : fmt::format("rank {} on {} does not answer", other.rank, host));
  }
  std::sort(there.begin(), there.end());
  const int all_here = here.value_or(0), missing = all_here - static_cast<int>(there.size());
  // Who is not there at the end may have ended in order.
  if (starts && all_here == own.size && missing > 0) {
    std::vector<int> not_there;
    for (int r = 0; r < own.size; ++r)
      if (!std::binary_search(there.begin(), there.end(), r)) not_there.push_back(r);
    causes.push_back(fmt::format("{} on {} {} not reached that point", ranks_text(not_there), host,
                                 missing == 1 ? "has" : "have"));
  } else if (starts && missing > 0) {
    causes.push_back(fmt::format("{} of the {} on {} {} not reached that point; {} {} there",
                                 missing, count(all_here, "rank"), host,
                                 missing == 1 ? "has" : "have", ranks_text(there),
                                 there.size() == 1 ? "is" : "are"));
  }
  if (!causes.empty()) return fmt::format("{}", fmt::join(causes, "; "));
  if (all_here == own.size) return "all ranks answer, so the cause is MPI or mpirun";
  if (all_here > 0 && starts)
    return fmt::format("the {} on {} {}, so the cause is on another machine",
                       count(all_here, "rank"), host, all_here == 1 ? "waits" : "wait");
  return fmt::format("{} on {} {}; of other ranks nothing is known", ranks_text(there), host,
                     there.size() == 1 ? "waits" : "wait");
}

LaunchWatch::LaunchWatch(const Ranks& own, std::string host, GiveUp give_up)
    : own_(own),
      host_(std::move(host)),
      give_up_(std::move(give_up)),
      changed_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (const auto job = launched_job()) presence_.emplace(*job, own_);
  thread_ = std::thread([this] { watch(); });
}

LaunchWatch::~LaunchWatch() {
  set(std::nullopt, true);
  thread_.join();
  ::close(changed_);
}

void LaunchWatch::limit(Doing doing, Duration longest) {
  set(Limit{doing, longest, Clock::now()}, false);
}

void LaunchWatch::lift() {
  set(std::nullopt, false);
}

void LaunchWatch::set(std::optional<Limit> limit, bool leaving) {
  {
    const std::lock_guard lock(mutex_);
    limit_ = limit;
    leaving_ = leaving;
  }
  ::eventfd_write(changed_, 1);
}

void LaunchWatch::watch() {
  constexpr auto kTick = std::chrono::milliseconds(100), kStopped = std::chrono::milliseconds(500);
  for (auto last = Clock::now();;) {
    const auto now = Clock::now();
    int wait = -1;  // for ever
    std::optional<Limit> over;
    {
      const std::lock_guard lock(mutex_);
      if (leaving_) return;
      if (limit_) {
        // While this process itself was stopped, it waited for nobody.
        const Duration slept = now - std::max(last, limit_->since);
        if (slept > kStopped) limit_->since += slept;
        const auto left = limit_->since + limit_->longest - now;
        if (left <= Duration()) over = limit_;
        wait = static_cast<int>(
            std::chrono::ceil<std::chrono::milliseconds>(std::min<Duration>(left, kTick)).count());
      }
    }
    last = now;
    if (over) {
      give_up(*over);
      continue;
    }
    pollfd events[] = {{changed_, POLLIN, 0}, {presence_ ? presence_->asked() : -1, POLLIN, 0}};
    if (::poll(events, 2, wait) <= 0) continue;
    eventfd_t times = 0;
    if (events[0].revents != 0) ::eventfd_read(changed_, &times);
    if (events[1].revents != 0) presence_->answer();
  }
}

void LaunchWatch::give_up(const Limit& limit) {
  std::optional<std::vector<Presence::Found>> others;
  if (presence_ && presence_->asked() >= 0) others = presence_->others();
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(limit_, std::nullopt)) return;  // in the meantime it was lifted
  }
  give_up_(
      fmt::format("MPI did not {} within {:g} s: {}", limit.doing == Doing::start ? "start" : "end",
                  std::chrono::duration<double>(limit.longest).count(),
                  waited_for(limit.doing, own_, host_, launched_here(), others)),
      !presence_ || presence_->speaks_first());
}

}  // namespace capstan
