#include "cli/plan_tables.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <tuple>
#include <utility>

#include "base/units.h"
#include "base/visible.h"
#include "base/wrapped.h"

namespace capstan::cli {
namespace {

// The cheapest machines, those that nothing else beats, and the first that meets the wish.
std::vector<const RentedRun*> shown_offers(const std::vector<RentedRun>& offers) {
  constexpr std::ptrdiff_t kMostRows = 12;
  const RentedRun* meeting = that_meets(offers);
  const auto needed = [&](const RentedRun& r) { return r.front || &r == meeting; };
  std::ptrdiff_t others = kMostRows - std::count_if(offers.begin(), offers.end(), needed);
  std::vector<const RentedRun*> shown;
  for (const RentedRun& r : offers)
    if (needed(r) || others-- > 0) shown.push_back(&r);
  return shown;
}

std::string offer_row(const RentedRun& r) {
  const int gpus = r.machines.ranks();
  return fmt::format("{:<18} {:>4}  {:<11} {:>6.1f} {:>9} {:>9}  {:<9}{}",
                     fmt::format("{} × {}", r.machines.count, r.gpu.id), gpus,
                     short_mesh(r.run.options), static_cast<double>(r.run.ranks.most) / kGiB,
                     about(r.run.step->seconds), about(r.seconds),
                     fmt::format("{}{}", format_dollars(r.dollars.expected), r.front ? " *" : ""),
                     !r.meets   ? ""
                     : *r.meets ? " yes"
                                : " no");
}

// " (Fri 2026-11-20 17:00)", so that a reader sees which Friday was understood.
std::string until(double seconds) {
  constexpr double kCentury = 3.15e9;
  if (seconds > kCentury) return "";
  constexpr std::time_t kHalfAMinute = 30;  // to the nearest one
  const std::time_t then = std::time(nullptr) + std::lround(seconds) + kHalfAMinute;
  std::tm local{};
  ::localtime_r(&then, &local);
  return fmt::format(" ({:%a %Y-%m-%d %H:%M})", local);
}

std::string wishes_of(const Wish& wish) {
  std::vector<std::string> all;
  if (wish.seconds)
    all.push_back("within " + format_duration(*wish.seconds) + until(*wish.seconds));
  if (wish.dollars) all.push_back("for at most " + format_dollars(*wish.dollars));
  return fmt::format("{}", fmt::join(all, " and "));
}

// Below rented machines, if there are several of a kind: what joins them, which is not what joins
// machines that were built for it.
std::string rented_network(const Answers& a, const std::vector<const RentedRun*>& shown) {
  const auto joined = [&](bool stated) {
    return std::any_of(shown.begin(), shown.end(), [&](const RentedRun* r) {
      const bool said = a.stated.across && a.network_origin == "--network";
      return r->machines.count > 1 && (said && r->gpu.id == a.stated.gpu) == stated;
    });
  };
  std::vector<std::string> all;
  if (joined(false)) {
    const InstanceLink between = prices().between;
    all.push_back(fmt::format("{:.3g} Gb/s of each, which its GPUs share ({})", between.gigabits,
                              visible(between.origin)));
  }
  if (joined(true))
    all.push_back(fmt::format("of {} {:.3g} GB/s for each GPU (--network)", a.stated.gpu,
                              *a.stated.across / 1e9));
  if (all.empty()) return "";
  return wrapped(fmt::format("several machines: joined by {}", fmt::join(all, ", ")), "");
}

// Even if the run takes the longest that is likely. What has no price meets no budget.
bool meets(const Answers& a) {
  const double longest = a.time->range.high * *a.time->run_seconds;
  return (!a.wish.seconds || longest <= *a.wish.seconds) &&
         (!a.wish.dollars || (a.cost && a.cost->dollars.high <= *a.wish.dollars));
}

}  // namespace

std::string about(double seconds) {
  constexpr double kDay = 86'400, kManyDays = 4 * kDay;
  if (seconds >= kManyDays) return fmt::format("{:.3g} days", seconds / kDay);
  if (seconds >= 100) return format_duration(seconds);
  return seconds < 0.1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.3g} s", seconds);
}

std::string three_digits(double n) {
  if (n < 1000) return fmt::format("{:.3g}", n);
  std::string digits = fmt::format("{:.0f}", n);
  const double unit = std::pow(10, static_cast<double>(digits.size()) - 3);
  digits = fmt::format("{:.0f}", std::round(n / unit) * unit);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string short_mesh(const TrainOptions& o) {
  if (o.ranks.size == 1) return "-";
  const auto [tensor, context, stages] = std::tuple(o.mesh.tensor, o.mesh.context, o.mesh.pipeline);
  std::vector<std::string> parts;
  if (o.ranks.size > tensor * context * stages) parts.push_back(strategy_name(o.sharding));
  if (tensor > 1) parts.push_back(fmt::format("tp{}", tensor));
  if (context > 1) parts.push_back(fmt::format("cp{}", context));
  if (stages > 1) parts.push_back(fmt::format("pp{}", stages));
  return fmt::format("{}", fmt::join(parts, " "));
}

std::string between_text(const Machines& machines, const Answers& a) {
  const auto bytes = between_machines(machines);
  if (!bytes) return "";
  std::string origin = a.stated.across ? visible(a.network_origin) : "by data sheet";
  if (!a.stated.across && machines.calibration &&
      network_of(*machines.calibration, machines.ranks(), machines.count))
    origin = "as measured";
  else if (!a.stated.across && a.gpu)
    origin = fmt::format("as machines with {} usually have{}; --network says otherwise", a.gpu->id,
                         a.gpu->joins_machines()
                             ? fmt::format(", which join {} GPUs by NVLink", a.gpu->bridged)
                             : a.gpu->mark({"ports"}));
  return fmt::format(
      "{:.3g} GB/s for each {} between them ({})", *bytes / 1e9,
      machines.calibration && machines.calibration->device == Device::cpu ? "rank" : "GPU", origin);
}

std::string remedy_table(const Answers& a) {
  if (a.remedies.empty() || !a.remedies[0].step) return "";
  std::string s =
      "\nwould fit with                                          GiB       step  tokens/s\n";
  for (const Remedy& r : a.remedies) {
    std::string what = r.what;
    if (columns_of(what) > 52) s += wrapped(std::exchange(what, ""), "");
    s += fmt::format("{:<52}{:>7.1f} {:>10} {:>9}\n", what, static_cast<double>(r.bytes) / kGiB,
                     r.step ? about(r.step->seconds) : "?",
                     r.step ? three_digits(r.step->tokens_per_second()) : "?");
  }
  return s;
}

std::string scaling_table(const Planned& p, const Answers& a) {
  if (a.scaling.empty()) return "";
  std::string s = fmt::format("\n{} GPUs  mesh                  GiB      step  tokens/s  kept{}\n",
                              a.gpu->id, p.steps ? "       run" : "");
  const auto indent = static_cast<int>(a.gpu->id.size());
  for (const ScalePoint& point : a.scaling) {
    const RunThere& r = point.run;
    std::string mesh = short_mesh(r.options);
    s += fmt::format("{:>{}}  {:<18} {:>6.1f}", point.machines.ranks(), indent + 5, mesh,
                     static_cast<double>(r.ranks.most) / kGiB);
    if (!r.fits)
      s += "  does not fit";
    else if (r.step)
      s += fmt::format(" {:>9} {:>9} {:>4.0f}%", about(r.step->seconds),
                       three_digits(r.step->tokens_per_second()), 100 * point.efficiency);
    if (r.fits && r.step && p.steps)
      s += fmt::format(" {:>9}", about(r.step->seconds * static_cast<double>(*p.steps)));
    s += "\n";
  }
  const MeshShape& shape = a.scaling.back().run.options.mesh;
  if (shape.tensor * shape.context * shape.pipeline > 1)
    s += "tp, cp, pp: ranks that divide each layer, each sequence, the blocks\n";
  if (const std::string between = between_text(a.scaling.back().machines, a); !between.empty())
    s += wrapped(fmt::format("several machines: {}", between), "");
  return s + "kept: tokens/s for each GPU, of that of the fewest that fit\n";
}

std::string offer_table(const Answers& a) {
  if (a.offers.empty()) return "";
  const bool wished = a.offers[0].meets.has_value();
  std::string s =
      fmt::format("\nrented machines    GPUs  mesh           GiB      step       run  cost{}\n",
                  wished ? "      meets" : "");
  const auto shown = shown_offers(a.offers);
  for (const RentedRun* r : shown) {
    s += offer_row(*r);
    s.resize(s.find_last_not_of(' ') + 1);
    s += "\n";
  }
  if (const auto more = std::ssize(a.offers) - std::ssize(shown); more > 0)
    s += fmt::format("and {} more, which {} more\n", more, more == 1 ? "costs" : "cost");
  s += "*: no other is both faster and cheaper\n" + rented_network(a, shown);
  if (!wished) return s;
  const auto meeting =
      std::count_if(a.offers.begin(), a.offers.end(), [](const RentedRun& r) { return *r.meets; });
  s += wrapped(fmt::format("done {}, even if the run takes the longest that is likely: {} of {}",
                           wishes_of(a.wish), meeting == 0 ? "none" : std::to_string(meeting),
                           count(std::ssize(a.offers), "machine")),
               "meets: ");
  if (a.command.empty() && a.time && a.time->run_seconds)
    s += fmt::format("this plan, on the machine that was named: {}\n", meets(a) ? "yes" : "no");
  if (meeting == 0 && !a.command.empty())
    s += fmt::format("this plan is for the {} of them\n",
                     in_time(a.wish, *nearest_to(a.wish, a.offers)) ? "cheapest" : "fastest");
  return s;
}

}  // namespace capstan::cli
