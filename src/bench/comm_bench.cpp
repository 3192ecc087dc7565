#include "bench/comm_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <span>

#include "base/units.h"
#include "bench/step_times.h"
#include "machine/name.h"
#include "report/bar.h"

namespace capstan {
namespace {

using Clock = std::chrono::steady_clock;

struct Kind {
  const char* name;
  double share;  // of the whole that a rank sends to each other one, in slices
  bool computes;
};
// "send" is each of two ranks to the other.
constexpr Kind kKinds[] = {{"send", 1, false},
                           {"all_gather", 1, false},
                           {"reduce_scatter", 1, true},
                           {"all_reduce", 2, true}};

class CommBench {
 public:
  CommBench(Queue& q, const Communicator& group, const CommSizes& sizes, const CommProgress& begin)
      : q_(q), group_(group), sizes_(sizes), begin_(begin), talk_(group.open_channel("bench")) {
    const int64_t largest = *std::max_element(sizes.bytes.begin(), sizes.bytes.end());
    whole_ = make(largest);
    mine_ = make(largest);
    room_ = group.make_room(q.arena(), largest);
  }

  CommResult run() {
    std::vector<int> groups;
    for (int n = 2; n <= group_.size(); ++n)
      if (group_.size() % n == 0) groups.push_back(n);
    const int64_t pairs = group_.size() % 2 == 0 ? 1 : 0;
    const auto hosts = talk_->exchange(host_name());
    result_.ranks_on_machine = static_cast<int>(std::count(hosts.begin(), hosts.end(), hosts[0]));
    const auto one_machine = [&](int n) {
      return std::count(hosts.begin(), hosts.begin() + n, hosts[0]) == n;
    };
    // A calibration has the steps beside what connects the ranks that take them.
    const bool steps = q_.device() == Device::cpu && result_.ranks_on_machine > 1 &&
                       group_.size() % result_.ranks_on_machine == 0 &&
                       one_machine(result_.ranks_on_machine);
    const int64_t all = std::ssize(sizes_.bytes) * (pairs + 3 * std::ssize(groups)) +
                        (steps ? std::ssize(kCpuPrecisions) * std::ssize(sizes_.steps) : 0);
    int64_t number = 0;
    for (const Kind& kind : kKinds)
      for (const int n : groups) {
        if (&kind == kKinds && n != 2) continue;
        for (const int64_t bytes : sizes_.bytes) {
          begin_(fmt::format("{} of {} among {}", kind.name, format_bytes(bytes), count(n, "rank")),
                 number++, all);
          measure(kind, n, bytes);
        }
      }
    for (const int n : groups)
      (one_machine(n) ? result_.networks : result_.networks_across)[n] = network_of(n);
    if (steps) {
      const Room room = room_of_rank();
      for (const Precision precision : kCpuPrecisions)
        compute_together(precision, room, number, all);
    }
    for (const CommRow& row : result_.rows)
      result_.link_bytes_per_second = std::max(result_.link_bytes_per_second, row.rate());
    return std::move(result_);
  }

 private:
  Buffer make(int64_t bytes) const {
    return q_.arena().make(Category::communication, DType::f32, {bytes / 4}, "values");
  }

  void measure(const Kind& kind, int n, int64_t bytes) {
    const int first = group_.rank() / n * n;
    const Communicator part = group_.part({.first = first, .stride = 1, .count = n});
    const int64_t slice = bytes / 4 / n / 64 * 64, values = slice * n;
    const Tensor whole = whole_->rows(0, values), mine = mine_->rows(0, slice);
    const auto call = [&] {
      Work work = kind.computes ? (kind.share > 1 ? part.all_reduce(q_, whole)
                                                  : part.reduce_scatter(q_, mine, whole))
                                : part.all_gather(q_, whole, mine);
      work.join(q_);
      q_.synchronize();
    };
    call();  // connects
    const double seconds = agreed_median(call);
    result_.rows.push_back({.op = kind.name,
                            .ranks = n,
                            .bytes = 4 * values,
                            .seconds = seconds,
                            .sent_bytes = kind.share * (n - 1) * 4.0 * static_cast<double>(slice)});
  }

  // The same on all ranks, before any of them uses it.
  Room room_of_rank() const {
    const int64_t mine = room_for(Device::cpu).device;
    std::vector<int64_t> all(static_cast<size_t>(group_.size()));
    talk_->gather(std::as_writable_bytes(std::span(all)), std::as_bytes(std::span(&mine, 1)));
    return {.device = *std::min_element(all.begin(), all.end()) / result_.ranks_on_machine};
  }

  // Every rank takes the steps by itself, while all others do.
  void compute_together(Precision precision, const Room& room, int64_t& number, int64_t all) {
    const StepSetup setup{Device::cpu, precision};
    const std::string name(name_of(precision));
    std::vector<StepTimes> steps;
    for (const BenchStep& step : sizes_.steps) {
      begin_(fmt::format("{}, {}, on all ranks at once", name_of(step), name), number++, all);
      // Ranks with more threads need more.
      const auto fit = talk_->exchange(step_fits(setup, step, room) ? "fits" : "");
      if (std::find(fit.begin(), fit.end(), "") == fit.end())
        steps.push_back(time_step(setup, step, sizes_.step_seconds));
    }
    if (steps.empty() || steps.size() < sizes_.steps.size()) return;
    const StepCosts mine = *step_costs(steps);
    std::vector<StepCosts> costs(static_cast<size_t>(group_.size()));
    talk_->gather(std::as_writable_bytes(std::span(costs)), std::as_bytes(std::span(&mine, 1)));
    const auto slowest = std::max_element(
        costs.begin(), costs.end(),
        [](const StepCosts& a, const StepCosts& b) { return a.seconds < b.seconds; });
    result_.together.emplace(name, *slowest);
  }

  // Of as many calls on every rank; rank 0 says how many, and how long they took.
  template <class Call>
  double agreed_median(const Call& call) {
    const auto timed = [&] {
      const auto start = Clock::now();
      call();
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    const auto calls =
        static_cast<int>(of_leader(std::clamp(sizes_.seconds / of_leader(timed()), 5.0, 500.0)));
    std::vector<double> times;
    for (int i = 0; i < calls; ++i) times.push_back(timed());
    std::nth_element(times.begin(), times.begin() + calls / 2, times.end());
    return of_leader(times[static_cast<size_t>(calls / 2)]);
  }

  double of_leader(double mine) {
    std::vector<double> all(static_cast<size_t>(group_.size()));
    talk_->gather(std::as_writable_bytes(std::span(all)), std::as_bytes(std::span(&mine, 1)));
    return all[0];
  }

  // Least squares of the relative errors of messages * a + bytes * b.
  Network network_of(int n) const {
    double mm = 0, mb = 0, bb = 0, mt = 0, bt = 0;
    for (const CommRow& row : result_.rows) {
      if (row.ranks != n || (row.op != "all_gather" && row.op != "send")) continue;
      const double m = (n - 1) / row.seconds, b = row.sent_bytes / row.seconds;
      mm += m * m;
      mb += m * b;
      bb += b * b;
      mt += m;
      bt += b;
    }
    const double determinant = mm * bb - mb * mb;
    double a = determinant > 0 ? (mt * bb - bt * mb) / determinant : 0;
    if (a <= 0) return {.seconds_per_message = 0, .bytes_per_second = bb / bt};
    const double b = (bt * mm - mt * mb) / determinant;
    return {.seconds_per_message = a,
            .bytes_per_second = b > 0 ? 1 / b : std::numeric_limits<double>::infinity()};
  }

  Queue& q_;
  const Communicator& group_;
  const CommSizes& sizes_;
  const CommProgress& begin_;
  std::unique_ptr<HostChannel> talk_;
  Buffer whole_, mine_, room_;
  CommResult result_;
};

std::string time_text(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.0f} µs", 1e6 * seconds)
                        : fmt::format("{:.2f} ms", 1e3 * seconds);
}

}  // namespace

CommSizes comm_sizes(bool quick) {
  const BenchSizes of_cpu = bench_sizes(Device::cpu, quick);
  return {.bytes = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20},
          .seconds = quick ? 0.05 : 0.2,
          .steps = of_cpu.steps,
          .step_seconds = of_cpu.seconds};
}

CommResult bench_comm(Queue& q, const Communicator& group, const CommSizes& sizes,
                      const CommProgress& begin) {
  require(group.size() > 1, Fault::usage,
          "bench comm: one rank has nobody to talk to; use --devices 2, or mpirun");
  return CommBench(q, group, sizes, begin).run();
}

void add_to(Calibration& c, const CommResult& result) {
  for (const auto& [ranks, network] : result.networks) c.networks[ranks] = network;
  for (const auto& [ranks, network] : result.networks_across) c.networks_across[ranks] = network;
  if (!result.together.empty()) c.together[result.ranks_on_machine] = result.together;
}

double ring_limit(const CommRow& row, const CommResult& result) {
  return row.sent_bytes / result.link_bytes_per_second;
}

std::string comm_table(const CommResult& result, const PrecisionCosts& alone) {
  std::string text = fmt::format("  {:<16}{:>7}{:>11}{:>12}{:>12}{:>12}\n", "op", "ranks", "size",
                                 "time", "sent", "ring limit");
  for (const CommRow& row : result.rows) {
    const double share = ring_limit(row, result) / row.seconds;
    text +=
        fmt::format("  {:<16}{:>7}{:>11}{:>12}{:>7.2f} GB/s{:>12}  {} {:>3.0f}%\n", row.op,
                    row.ranks, format_bytes(row.bytes), time_text(row.seconds), row.rate() / 1e9,
                    time_text(ring_limit(row, result)), block_bar(share, 20), 100 * share);
  }
  const auto tell = [&](const std::map<int, Network>& networks, const char* where) {
    for (const auto& [ranks, n] : networks)
      text += fmt::format("\n  among {}{}: {} for each message, {:.2f} GB/s from each rank",
                          count(ranks, "rank"), where, time_text(n.seconds_per_message),
                          n.bytes_per_second / 1e9);
  };
  tell(result.networks, "");
  tell(result.networks_across, " on several machines");
  for (const auto& [precision, costs] : result.together)
    if (const auto one = alone.find(precision); one != alone.end())
      text += fmt::format("\n  with all ranks at work, a step in {} takes {:.2f} times as long",
                          precision, costs.seconds / one->second.seconds);
  return text + "\n";
}

}  // namespace capstan
