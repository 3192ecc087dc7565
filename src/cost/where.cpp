#include "cost/where.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/units.h"
#include "cost/payments.h"
#include "cost/reasons.h"

namespace capstan {
namespace {

// "now", "in 3 weeks".
std::string when(double weeks) {
  return weeks < 1.0 / 7 ? "now" : fmt::format("in {:.3g} weeks", weeks);
}

std::string term_text(double hours) {
  const double weeks = hours / kHoursOfWeek, years = hours / (12 * kHoursOfMonth);
  if (years >= 0.99) return count(std::lround(years), "year");
  return weeks < 9 ? count(std::lround(weeks), "week")
                   : count(std::lround(hours / kHoursOfMonth), "month");
}

void check(const Need& need) {
  const auto within = [](const char* name, double value, double least, double most) {
    require(value >= least && value <= most, Fault::usage,
            "{}: expected a number from {} to {}, found {}", name, least, most, value);
  };
  within("gpus", need.gpus, 1, 16384);
  within("months", need.months, 1, 120);
  within("weeks", need.weeks.value_or(1), 1, 520);
  within("utilisation", need.utilisation, 0.01, 1);
  within("data_tb", need.data_tb, 0, 1e6);
  within("egress_tb_per_month", need.egress_tb_per_month, 0, 1e6);
  within("growth_per_quarter", need.growth_per_quarter, 0, 1024);
  within("staff_per_month", need.staff_per_month, 0, 1e9);
  within("cluster_price", need.cluster_price.value_or(1), 0.001, 1e6);
  within("private_price", need.private_price.value_or(1), 0.001, 1e6);
}

// The choices of one need; all share what an hour on demand and a server cost.
class Choices {
 public:
  Choices(const Need& need, const Prices& prices)
      : need_(need), prices_(prices), server_(prices.server(need.gpu)) {
    has_hourly_ = cheapest_instances(prices, need.gpu, 1).has_value();
  }

  Choice make(Place place) const {
    Choice c;
    c.place = place;
    c.lead = lead_of(place);
    judge(c);
    switch (place) {
      case Place::on_demand: by_hour(c); break;
      case Place::cluster: by_term(c, need_.cluster_price, need_.cluster_term); break;
      case Place::private_cloud: by_term(c, need_.private_price, need_.private_term); break;
      case Place::colocation:
      case Place::own_room: own(c, place == Place::own_room); break;
      case Place::hybrid: mixed(c); break;
    }
    return c;
  }

  // Below which price the choice, whose price is not known, costs less than `dollars`. The total is
  // linear in a price, so two of them show it.
  std::optional<double> price_below(const Choice& c, double dollars) const {
    const auto total = [&](double price) -> std::optional<double> {
      switch (c.place) {
        case Place::on_demand:
          return by_the_hour(need_, prices_, Level::expected, [price](int n) { return price * n; })
              .total();
        case Place::cluster:
          return reserved(need_, prices_, Level::expected, price, need_.cluster_term).total();
        case Place::private_cloud:
          return reserved(need_, prices_, Level::expected, price, need_.private_term).total();
        case Place::colocation:
        case Place::own_room:
          if (server_ == nullptr) return std::nullopt;
          return bought(Level::expected, price, c.place == Place::own_room).total();
        case Place::hybrid: return std::nullopt;
      }
      return std::nullopt;
    };
    const auto none = total(0), one = total(1);
    if (!none || !one || *none >= dollars) return std::nullopt;
    return (dollars - *none) / (*one - *none);
  }

 private:
  // What was quoted is exact. Instances start within minutes; those of a hybrid bridge the time
  // until its own servers come.
  std::optional<LeadTime> lead_of(Place place) const {
    const auto lead = [](std::optional<double> quoted, const std::optional<LeadTime>& known) {
      return quoted ? LeadTime{*quoted, *quoted, "the command line", ""} : known;
    };
    switch (place) {
      case Place::on_demand: return LeadTime{};
      case Place::cluster: return lead(need_.cluster_lead, prices_.cluster_lead);
      case Place::private_cloud: return lead(need_.private_lead, prices_.private_lead);
      case Place::colocation:
      case Place::own_room:
      case Place::hybrid: return lead(need_.server_lead, prices_.server_lead);
    }
    return std::nullopt;
  }
  double term_of(Place place) const {
    if (place == Place::cluster) return need_.cluster_term;
    return place == Place::private_cloud ? need_.private_term : 0;
  }

  // Whether it comes in time; sets the standing if not.
  bool judge_lead(Choice& c) const {
    if (!need_.needed_in) return true;
    const double needed = *need_.needed_in;
    if (!c.lead) {
      c.standing = Standing::unsuited;
      const char* option = c.place == Place::cluster         ? "--cluster_lead"
                           : c.place == Place::private_cloud ? "--private_lead"
                                                             : "--server_lead";
      c.why = fmt::format("you need GPUs {}, and how long it takes to come is not known: ask ({})",
                          when(needed), option);
      return false;
    }
    if (c.lead->high <= needed) return true;
    const bool late = c.lead->low > needed;
    c.standing = late ? Standing::ruled_out : Standing::unsuited;
    const bool several = c.place == Place::hybrid;
    c.why = fmt::format("you need GPUs {}, and {} {} after {}", when(needed),
                        several ? "own servers" : "it",
                        !late ? "may come" : (several ? "come" : "comes"), weeks_text(*c.lead));
    return false;
  }
  static std::string weeks_text(const LeadTime& lead) {
    return lead.low == lead.high ? fmt::format("{:.3g} weeks", lead.low)
                                 : fmt::format("{:.3g} to {:.3g} weeks", lead.low, lead.high);
  }

  void judge(Choice& c) const {
    const auto is = [&](Standing standing, std::string why) {
      c.standing = standing;
      c.why = std::move(why);
    };
    const bool shared =
        c.place == Place::on_demand || c.place == Place::cluster || c.place == Place::hybrid;
    if (need_.sovereign && shared)
      return is(Standing::ruled_out, "sovereign data may not lie on machines of a public cloud");
    if (c.place == Place::own_room && !need_.own_room)
      return is(Standing::ruled_out, "there is no own room (--own_room)");
    if (const double term = term_of(c.place); need_.longest_term && term > *need_.longest_term)
      return is(Standing::ruled_out,
                fmt::format("it commits you to {}, and you commit to at most {} (--term)",
                            term_text(term), term_text(*need_.longest_term)));
    if (!judge_lead(c)) return;
    if (c.place == Place::on_demand && need_.gpus >= 16 && !need_.spiky)
      return is(Standing::unsuited,
                "16 GPUs or more are seldom free at once, and no fast network joins instances");
    if (c.place == Place::cluster && !need_.cluster_price && (need_.gpus < 16 || need_.gpus > 512))
      return is(Standing::unsuited, "clusters usually have 16 to 512 GPUs");
    if (c.place == Place::private_cloud && !need_.private_price &&
        (need_.gpus < 512 || need_.gpus > 2048))
      return is(Standing::unsuited, "private clouds usually have 512 to 2048 GPUs");
  }

  double hourly(int gpus) const {
    if (gpus == 0) return 0;
    const auto [at, is_new] = hourly_.try_emplace(gpus, 0);
    if (is_new) at->second = cheapest_instances(prices_, need_.gpu, gpus)->dollars_per_hour;
    return at->second;
  }

  // The three levels of an amount, from the payments at each.
  template <class Pay>
  void fill(Choice& c, const Pay& pay) const {
    const Payments low = pay(Level::low), expected = pay(Level::expected), high = pay(Level::high);
    c.total = Dollars{low.total(), expected.total(), high.total()};
    c.at_once = {low.at_once, expected.at_once, high.at_once};
    c.monthly = {low.of_month[0], expected.of_month[0], high.of_month[0]};
    c.curve = expected.curve();
  }

  void by_hour(Choice& c) const {
    if (!has_hourly_) {
      c.ask = "GPU-hour";
      return;
    }
    fill(c, [&](Level level) {
      return by_the_hour(need_, prices_, level, [this](int n) { return hourly(n); });
    });
  }

  void by_term(Choice& c, std::optional<double> price, double term) const {
    if (price) {
      fill(c, [&](Level level) { return reserved(need_, prices_, level, *price, term); });
      return;
    }
    c.ask = "GPU-hour";
    if (has_hourly_)
      c.ceiling =
          reserved(need_, prices_, Level::expected, hourly(need_.gpus) / need_.gpus, term).total();
  }

  Owned server(double price, bool own_room) const {
    return {server_->gpus, price, server_->kilowatts, own_room};
  }
  Payments bought(Level level, double price, bool own_room) const {
    return owned(need_, prices_, level, server(price, own_room), std::numeric_limits<int>::max(),
                 [](int) { return 0.0; });
  }

  void own(Choice& c, bool own_room) const {
    if (server_ == nullptr || !server_->dollars) {
      c.ask = "server";
      return;
    }
    fill(c, [&](Level level) {
      return bought(level, dollars_of(*server_->dollars, level), own_room);
    });
    if (!has_hourly_) return;
    // What is the same whether the GPUs work or not, seen from owning: power and staff, less what
    // the cloud takes for data.
    const double data =
        by_the_hour(need_, prices_, Level::expected, [](int) { return 0.0; }).of_month[0];
    c.break_even = break_even_months(c.at_once.expected, hourly(need_.gpus), need_.utilisation,
                                     c.monthly.expected - data);
  }

  void mixed(Choice& c) const {
    const bool has_server = server_ != nullptr && server_->dollars;
    if (!has_hourly_ || !has_server) {
      c.ask = has_hourly_ ? "server" : (has_server ? "GPU-hour" : "GPU-hour and a server");
      return;
    }
    const auto split = [&](Level level, int most, bool* rents = nullptr) {
      return owned(
          need_, prices_, level, server(dollars_of(*server_->dollars, level), need_.own_room), most,
          [this](int n) { return hourly(n); }, rents);
    };
    const int all = server(0, false).servers_for(need_.gpus_in(need_.months - 1));
    int best = all;
    bool best_rents = false;
    double least = std::numeric_limits<double>::infinity();
    for (int most = all; most >= 1; --most) {  // of equal splits the one that owns most
      bool rents = false;
      const double total = split(Level::expected, most, &rents).total();
      if (total >= least) continue;
      best = most, least = total, best_rents = rents;
    }
    fill(c, [&](Level level) { return split(level, best); });
    c.owned_gpus = best * server_->gpus;
    if (!best_rents && c.standing == Standing::suits) {
      c.standing = Standing::unsuited;
      c.why = "owning everything costs no more than any split that also rents";
    }
  }

  const Need& need_;
  const Prices& prices_;
  const Server* server_;
  bool has_hourly_ = false;
  mutable std::map<int, double> hourly_;
};

double rank_of(const Choice& c) {
  if (c.total) return c.total->expected;
  return c.ceiling.value_or(std::numeric_limits<double>::infinity());
}

}  // namespace

Where recommend(const Need& need, const Prices& prices) {
  check(need);
  const Choices all(need, prices);
  Where where;
  for (const auto& [place, name] : NameTable<Place>::rows) where.choices.push_back(all.make(place));
  double cheapest = std::numeric_limits<double>::infinity();
  for (const Choice& c : where.choices)
    if (c.total && c.standing != Standing::ruled_out)
      cheapest = std::min(cheapest, c.total->expected);
  for (Choice& c : where.choices)
    if (!c.ask.empty() && c.standing != Standing::ruled_out && std::isfinite(cheapest))
      c.below = all.price_below(c, cheapest);
  std::stable_sort(where.choices.begin(), where.choices.end(), [](const auto& a, const auto& b) {
    if (a.standing != b.standing) return a.standing < b.standing;
    return rank_of(a) < rank_of(b);
  });
  where.reasons = reasons_for(where, need);
  where.growth = growth_of(need);
  return where;
}

}  // namespace capstan
