#include "cost/payments.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace capstan {
namespace {

struct CloudData {
  double a_month = 0, at_end = 0;
};

CloudData data_in_cloud(const Need& need, const Prices& prices, Level level) {
  const double egress = dollars_of(prices.egress.dollars, level);
  return {
      need.data_tb * dollars_of(prices.storage.dollars, level) + need.egress_tb_per_month * egress,
      need.data_tb * egress};
}

double power_a_month(const Owned& server, const Prices& prices, Level level) {
  if (!server.own_room) return server.kilowatts * dollars_of(prices.colocation.dollars, level);
  return server.kilowatts * dollars_of(prices.cooling.dollars, level) * kHoursOfMonth *
         dollars_of(prices.electricity.dollars, level);
}

}  // namespace

double dollars_of(const Dollars& dollars, Level level) {
  switch (level) {
    case Level::low: return dollars.low;
    case Level::expected: return dollars.expected;
    case Level::high: return dollars.high;
  }
  return dollars.expected;
}

double Payments::total() const {
  return std::accumulate(of_month.begin(), of_month.end(), at_once) + at_end;
}

std::vector<double> Payments::curve() const {
  std::vector<double> sums = {at_once};
  for (const double month : of_month) sums.push_back(sums.back() + month);
  sums.back() += at_end;
  return sums;
}

Payments by_the_hour(const Need& need, const Prices& prices, Level level, const Hourly& hourly) {
  const CloudData data = data_in_cloud(need, prices, level);
  Payments p{.at_once = 0, .of_month = {}, .at_end = data.at_end};
  for (int m = 0; m < need.months; ++m)
    p.of_month.push_back(
        need.part_of(m) *
        (kHoursOfMonth * need.utilisation * hourly(need.gpus_in(m)) + data.a_month));
  return p;
}

Payments reserved(const Need& need, const Prices& prices, Level level, double price, double term) {
  const CloudData data = data_in_cloud(need, prices, level);
  const double hours = need.hours();
  const double left = term * std::ceil(hours / term) - hours;
  Payments p{.at_once = 0,
             .of_month = {},
             .at_end = data.at_end + left * price * need.gpus_in(need.months - 1)};
  for (int m = 0; m < need.months; ++m)
    p.of_month.push_back(need.part_of(m) *
                         (kHoursOfMonth * price * need.gpus_in(m) + data.a_month));
  return p;
}

Payments owned(const Need& need, const Prices& prices, Level level, const Owned& server, int most,
               const Hourly& hourly, bool* rents) {
  const double power = power_a_month(server, prices, level);
  const double egress = need.egress_tb_per_month * dollars_of(prices.egress.dollars, level);
  const auto servers = [&](int m) { return std::min(most, server.servers_for(need.gpus_in(m))); };
  Payments p{
      .at_once = servers(0) * server.price + need.data_tb * dollars_of(prices.disks.dollars, level),
      .of_month = {},
      .at_end = 0};
  if (rents != nullptr) *rents = false;
  for (int m = 0; m < need.months; ++m) {
    const int all = need.gpus_in(m), rented = std::max(0, all - servers(m) * server.gpus);
    const double part = need.part_of(m);
    double dollars = part * (servers(m) * power + need.staff_per_month);
    if (m > 0) dollars += (servers(m) - servers(m - 1)) * server.price;
    if (rented > 0) {
      const double above = static_cast<double>(rented) / all;
      const double busy = busy_above(1 - above, need.utilisation, need.spiky);
      // Results leave the cloud as far as they are computed there.
      dollars +=
          part * (kHoursOfMonth * busy * hourly(rented) + egress * above * busy / need.utilisation);
      if (rents != nullptr) *rents = true;
    }
    p.of_month.push_back(dollars);
  }
  return p;
}

double break_even_months(double capex, double cloud_per_hour, double utilisation,
                         double opex_per_month) {
  const double saved = cloud_per_hour * kHoursOfMonth * utilisation - opex_per_month;
  return saved > 0 ? capex / saved : std::numeric_limits<double>::infinity();
}

double busy_above(double base, double utilisation, bool spiky) {
  if (!spiky || utilisation >= 1 || base >= 1) return utilisation;
  // The mean over q of what q^(1/u - 1) is above the base, as a part of 1 - base.
  const double u = utilisation;
  const double mean = u - base + (1 - u) * std::pow(base, 1 / (1 - u));
  return std::clamp(mean / (1 - base), 0.0, u);
}

}  // namespace capstan
