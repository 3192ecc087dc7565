#include "cost/reasons.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"

namespace capstan {
namespace {

std::string usual(const Choice& c, const Need& need) {
  switch (c.place) {
    case Place::on_demand:
      return fmt::format("You pay for hours of work alone: {:.0f} of the {:.0f} hours of a month.",
                         need.utilisation * kHoursOfMonth, kHoursOfMonth);
    case Place::cluster:
      return "GPUs that work together on a fast network are reserved by the week, usually 16 to "
             "512 of them.";
    case Place::private_cloud:
      return "Machines that a provider keeps for you alone are rented for 1 to 3 years, usually "
             "512 to 2048 GPUs.";
    case Place::colocation:
      return "A data centre gives your servers power, cooling and a network; you own the servers.";
    case Place::own_room: return "Your room has power and cooling; only electricity is to be paid.";
    case Place::hybrid:
      return fmt::format(
          "Own {}{} for the load that is always there, and rent the rest by the hour.",
          c.owned_gpus > need.gpus ? "up to " : "", count(c.owned_gpus, "GPU"));
  }
  return "";
}

// What the next that suits costs more, if both are known.
std::string advantage(const Where& ranked, const Need& need) {
  const Choice& first = ranked.choices.front();
  if (!first.total) return "";
  for (size_t i = 1; i < ranked.choices.size(); ++i) {
    const Choice& next = ranked.choices[i];
    if (next.standing != Standing::suits || !next.total) continue;
    const double more = next.total->expected - first.total->expected;
    if (more <= 0) return "";
    return fmt::format("In {} it costs {} less than the next, {}.", count(need.months, "month"),
                       format_dollars(more), title_of(next.place));
  }
  return "";
}

std::string break_even(const Where& ranked, const Need& need) {
  const Choice& own = ranked.at(need.own_room ? Place::own_room : Place::colocation);
  if (!own.break_even) return "";
  if (!std::isfinite(*own.break_even))
    return "Owning never pays back: power and staff cost more than the hours that you would rent.";
  const char* const compared = need.sovereign ? "public instances" : "instances by the hour";
  return fmt::format("Owning servers pays back after {:.1f} months against {}; you plan {}.",
                     *own.break_even, compared, need.months);
}

// What makes the first choice uncertain.
std::string open_question(const Choice& first) {
  if (first.ask.empty()) return "";
  std::string text = "Its price is not known here: ask.";
  if (first.below)
    text += fmt::format(" Below {} per {} it is the cheapest.", format_dollars(*first.below),
                        first.ask);
  if (first.ceiling)
    text += fmt::format(" At the price of instances by the hour it would cost {}.",
                        format_dollars(*first.ceiling));
  return text;
}

const char* stage_of(int gpus) {
  return gpus <= 4 ? "a workstation" : (gpus <= 8 ? "a shared server" : "a cluster");
}

}  // namespace

std::vector<std::string> reasons_for(const Where& ranked, const Need& need) {
  const Choice& first = ranked.choices.front();
  const bool rents = first.place == Place::on_demand || first.place == Place::hybrid;
  std::vector<std::string> reasons = {usual(first, need)};
  if (first.place == Place::on_demand && need.gpus <= 8)
    reasons.push_back("1 to 8 GPUs are usually rented by the hour.");
  if (need.sovereign)
    reasons.push_back("Sovereign data rule out public clouds, and hybrids with them.");
  if (need.spiky)
    reasons.push_back(rents ? "More instances serve a burst, for as long as it lasts."
                            : "Its GPUs must suffice for a burst: plan for the highest load.");
  reasons.push_back(advantage(ranked, need));
  reasons.push_back(break_even(ranked, need));
  reasons.push_back(open_question(first));
  std::erase(reasons, "");
  return reasons;
}

std::string growth_of(const Need& need) {
  const int last = need.gpus_in(need.months - 1);
  std::string text = fmt::format("{} {} {}", count(need.gpus, "GPU"), need.gpus == 1 ? "is" : "are",
                                 stage_of(need.gpus));
  const char* stage = stage_of(need.gpus);
  for (int m = 3; m < need.months; m += 3) {
    if (stage == std::string_view(stage_of(need.gpus_in(m)))) continue;
    stage = stage_of(need.gpus_in(m));
    text += fmt::format(", from month {} on {}", m + 1, stage);
  }
  text += last > need.gpus ? fmt::format(" ({} at the end).", count(last, "GPU")) : ".";
  if (need.gpus <= 8 && last > 1)
    text += " People share a machine by CUDA_VISIBLE_DEVICES, later by a scheduler (Slurm).";
  return text;
}

}  // namespace capstan
