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
    return fmt::format("In {} it costs {} less than the next that suits, {}.", length_of(need),
                       format_dollars(more), title_of(next.place));
  }
  return "";
}

// What costs least, if that is another, and why it is not first.
std::string cheaper(const Where& ranked) {
  const Choice& first = ranked.choices.front();
  const Choice* const least = ranked.cheapest();
  // What suits and costs more than the first would at the price of instances is no argument.
  if (least == nullptr || least == &first || least->why.empty()) return "";
  const std::string less =
      first.total
          ? format_dollars(first.total->expected - least->total->expected) + " less than this"
          : "while the price of this is to be asked for";
  return fmt::format("The cheapest is {}, {}, {}; it is not first, because {}.",
                     title_of(least->place), format_dollars(*least->total), less, least->why);
}

// When the GPUs are there, if that was asked for.
std::string lead(const Choice& first, const Need& need) {
  if (!need.needed_in || first.standing != Standing::suits) return "";
  if (first.place == Place::on_demand)
    return "Instances start within minutes, if as many are free.";
  return fmt::format("It comes after {:.3g} weeks at most, in time.", first.lead->high);
}

std::string break_even(const Where& ranked, const Need& need) {
  const Choice& own = ranked.at(need.own_room ? Place::own_room : Place::colocation);
  if (!own.break_even) return "";
  if (!std::isfinite(*own.break_even))
    return "Owning never pays back: power and staff cost more than the hours that you would rent.";
  const char* const compared = need.sovereign ? "public instances" : "instances by the hour";
  return fmt::format("Owning servers pays back after {:.1f} months against {}; you plan {}.",
                     *own.break_even, compared,
                     need.weeks ? length_of(need) : std::to_string(need.months));
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

std::string length_of(const Need& need) {
  return need.weeks ? count(*need.weeks, "week") : count(need.months, "month");
}

std::vector<std::string> reasons_for(const Where& ranked, const Need& need) {
  const Choice& first = ranked.choices.front();
  if (first.standing == Standing::ruled_out)
    return {
        "The table says why each is; a later --need, a longer --term or --own_room may change "
        "that."};
  const bool rents = first.place == Place::on_demand || first.place == Place::hybrid;
  std::vector<std::string> reasons = {usual(first, need)};
  if (first.place == Place::on_demand && need.gpus <= 8)
    reasons.push_back("1 to 8 GPUs are usually rented by the hour.");
  if (need.sovereign)
    reasons.push_back("Sovereign data rule out public clouds, and hybrids with them.");
  if (need.spiky)
    reasons.push_back(rents ? "More instances serve a burst, for as long as it lasts."
                            : "Its GPUs must suffice for a burst: plan for the highest load.");
  if (first.standing == Standing::unsuited)
    reasons.push_back(
        "No place suits such a need without reserve; of those that are left this one "
        "is the cheapest.");
  reasons.push_back(advantage(ranked, need));
  reasons.push_back(cheaper(ranked));
  reasons.push_back(lead(first, need));
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
