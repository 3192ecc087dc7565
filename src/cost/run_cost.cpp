#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "cost/prices.h"

namespace capstan {
namespace {

// The cheapest instance with at least so many GPUs; null: none has.
const Offer* cheapest_with(const Prices& prices, std::string_view gpu, int gpus) {
  const Offer* best = nullptr;
  for (const Offer& offer : prices.offers)
    if (offer.gpu == gpu && offer.gpus >= gpus &&
        (best == nullptr || offer.dollars_per_hour < best->dollars_per_hour))
      best = &offer;
  return best;
}

int largest_of(const Prices& prices, std::string_view gpu) {
  int largest = 0;
  for (const Offer& offer : prices.offers)
    if (offer.gpu == gpu) largest = std::max(largest, offer.gpus);
  return largest;
}

// A second that has begun is paid; rounding in the hours themselves begins none.
double paid_hours(double hours) {
  return std::ceil(3600 * hours - 1e-6) / 3600;
}

}  // namespace

std::string Instances::text() const {
  std::string text;
  for (const Some& some : parts)
    text += fmt::format("{}{} × {}", text.empty() ? "" : " + ", some.count,
                        capstan::count(some.offer.gpus, "GPU"));
  return text;
}

std::optional<Instances> cheapest_instances(const Prices& prices, std::string_view gpu, int gpus) {
  require(gpus >= 1, Fault::bug, "cheapest_instances: {} GPUs; expected at least 1", gpus);
  const int largest = largest_of(prices, gpu);
  if (largest == 0) return std::nullopt;
  Instances found;
  const auto add = [&](const Offer& offer, int count) {
    if (!found.parts.empty() && found.parts.back().offer == offer)
      found.parts.back().count += count;
    else
      found.parts.push_back({offer, count});
    found.gpus += count * offer.gpus;
    found.dollars_per_hour += count * offer.dollars_per_hour;
  };
  const int full = gpus / largest, rest = gpus % largest;
  if (full > 0) add(*cheapest_with(prices, gpu, largest), full);
  if (rest > 0) add(*cheapest_with(prices, gpu, rest), 1);
  return found;
}

std::optional<RunCost> run_cost(const Prices& prices, std::string_view gpu, int gpus_per_machine,
                                int machines, const Hours& hours) {
  const auto of_machine = cheapest_instances(prices, gpu, gpus_per_machine);
  if (!of_machine) return std::nullopt;
  const double an_hour = machines * of_machine->dollars_per_hour;
  const auto dollars = [&](double h) { return an_hour * paid_hours(h); };
  return RunCost{
      {dollars(hours.low), dollars(hours.expected), dollars(hours.high)}, *of_machine, machines};
}

}  // namespace capstan
