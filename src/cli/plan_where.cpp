#include "cli/plan_where.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "base/visible.h"
#include "base/wrapped.h"
#include "cli/command_line.h"
#include "cli/deadline.h"
#include "cost/curve_text.h"
#include "cost/reasons.h"
#include "cost/where.h"
#include "plan/gpu_catalogue.h"

namespace capstan::cli {
namespace {

using Json = nlohmann::ordered_json;

struct WhereOptions {
  std::string gpu;
  int64_t gpus = 8, months = 0, weeks = 0, growth = 0,
          server_gpus = 0;  // months, weeks 0: not given
  std::optional<std::string> need, term, cluster_term, private_term;
  std::optional<std::string> cluster_lead, private_lead, server_lead;
  double utilisation = 1, data_tb = 0, egress = 0, staff = 0;
  double cluster_price = 0, private_price = 0, server_price = 0, server_kw = 0;  // 0: not given
  bool sovereign = false, spiky = false, own_room = false, json = false;
};

// Returns false if help was printed.
bool parse_options(WhereOptions& o, const Arguments& arguments) {
  CommandLine line(
      "Says where GPUs should come from: instances by the hour, a cluster reserved by the week, a "
      "private cloud, own servers in a data centre or in your room, or owned and rented ones "
      "together. Prices are those of a dated file; one in $CAPSTAN_PRICES adds and replaces rows.",
      "capstan plan where");
  line.option("--gpu", o.gpu, "kind of GPU: h100-sxm, b200, a100-80-sxm …");
  line.option("--gpus", o.gpus, "GPUs that are needed at the beginning", {1, 16384});
  line.option("--months", o.months, "how long they are needed (default: 12)", {1, 120, false});
  line.option("--weeks", o.weeks, "the same in weeks", {1, 520, false});
  line.option(
      "--need", o.need,
      "when they must be there: now, a time from now (3 weeks) or a day (2027-01-15); rules "
      "out what comes later");
  line.option("--term", o.term,
              "the longest time that you commit to for rented GPUs: 4 weeks, 6mo, 1y; rules out "
              "what commits you for longer");
  line.option("--utilisation", o.utilisation, "part of the time in which they work", {0.01, 1});
  line.option("--growth_per_quarter", o.growth, "GPUs more after every three months", {0, 1024});
  line.option("--data_tb", o.data_tb, "TB of data that are stored where the GPUs are", {0, 1e6});
  line.option("--egress_tb_per_month", o.egress, "TB of results that leave a cloud each month",
              {0, 1e6});
  line.flag("--sovereign", o.sovereign, "the data may not lie on machines that others use too");
  line.flag("--spiky", o.spiky, "the load comes in bursts, as of inference in production");
  line.flag("--own_room", o.own_room, "there is a room with power and cooling for servers");
  line.option("--cluster_price", o.cluster_price,
              "dollars per GPU-hour that a cluster reserved by the week was offered for",
              {0.001, 1e6, false});
  line.option("--private_price", o.private_price,
              "dollars per GPU-hour that a private cloud was offered for", {0.001, 1e6, false});
  line.option("--cluster_term", o.cluster_term, "what that offer commits you to (default: 1 week)");
  line.option("--private_term", o.private_term, "likewise of the private cloud (default: 1y)");
  line.option(
      "--cluster_lead", o.cluster_lead,
      "when the cluster would be there, from now: 3 weeks (default: of the prices, if it is "
      "known)");
  line.option("--private_lead", o.private_lead, "likewise of the private cloud");
  line.option("--server_lead", o.server_lead, "likewise of servers that are bought");
  line.option("--server_price", o.server_price,
              "dollars for one server or workstation (default: of the prices)", {1, 1e9, false});
  line.option("--server_gpus", o.server_gpus, "its GPUs (default: of the prices, or 8)",
              {1, 1024, false});
  line.option("--server_kw", o.server_kw,
              "kilowatts that it needs at most (default: of the prices, in proportion to its GPUs)",
              {0.001, 1e6, false});
  line.option("--staff_per_month", o.staff, "dollars a month for those who look after own servers",
              {0, 1e9});
  line.flag("--json", o.json, "print JSON, with the cost after each month");
  return line.parse(arguments);
}

// A GPU that has prices or is in the catalogue; else an error with the nearest name.
void require_gpu(const WhereOptions& o, const Prices& prices) {
  require(!o.gpu.empty(), Fault::usage,
          "plan where: expected --gpu with a kind of GPU, such as --gpu h100-sxm; found none");
  if (!prices.knows(o.gpu)) gpu_catalogue().named(o.gpu);
}

// The server of the command line replaces that of the prices.
void take_server(Prices& prices, const WhereOptions& o) {
  if (o.server_price == 0 && o.server_gpus == 0 && o.server_kw == 0) return;
  const Server* const known = prices.server(o.gpu);
  Server server;
  if (known != nullptr) server = *known;
  server.gpu = o.gpu;
  server.origin = "the command line";
  server.date.clear();
  if (o.server_price > 0) server.dollars = Dollars{o.server_price, o.server_price, o.server_price};
  if (o.server_gpus > 0) {
    // Its power is in proportion, as in plan site.
    server.kilowatts *= static_cast<double>(o.server_gpus) / server.gpus;
    server.gpus = static_cast<int>(o.server_gpus);
  }
  if (o.server_kw > 0) server.kilowatts = o.server_kw;
  require(server.kilowatts > 0, Fault::usage,
          "plan where: the prices have no server with {}; also give --server_kw, the kilowatts "
          "that yours needs",
          o.gpu);
  require(o.server_gpus == 0 || o.server_price > 0, Fault::usage,
          "plan where: --server_gpus {} changes the price of a server; also give --server_price",
          o.server_gpus);
  std::erase_if(prices.servers, [&](const Server& s) { return s.gpu == o.gpu; });
  prices.servers.push_back(server);
}

double weeks_until(const std::string& need) {
  constexpr double kSecondsOfWeek = 3600 * kHoursOfWeek;
  if (need == "now") return 0;
  return seconds_until(need, std::chrono::system_clock::now()) / kSecondsOfWeek;
}

// Terms, and when the GPUs are needed and can come.
void take_times(Need& need, const WhereOptions& o) {
  require(o.months == 0 || o.weeks == 0, Fault::usage,
          "plan where: --months and --weeks both say how long; give one of them");
  if (o.weeks > 0) need.set_weeks(static_cast<int>(o.weeks));
  if (o.need) need.needed_in = weeks_until(*o.need);
  if (o.term) need.longest_term = hours_of_term(*o.term, "--term");
  if (o.cluster_term) need.cluster_term = hours_of_term(*o.cluster_term, "--cluster_term");
  if (o.private_term) need.private_term = hours_of_term(*o.private_term, "--private_term");
  const auto lead = [](std::optional<double>& weeks, const std::optional<std::string>& text,
                       const char* name) {
    if (text) weeks = hours_of_term(*text, name) / kHoursOfWeek;
  };
  lead(need.cluster_lead, o.cluster_lead, "--cluster_lead");
  lead(need.private_lead, o.private_lead, "--private_lead");
  lead(need.server_lead, o.server_lead, "--server_lead");
  for (const auto& [hours, name] :
       {std::pair(need.cluster_term, "--cluster_term"), {need.private_term, "--private_term"}})
    require(hours > 0, Fault::usage, "{}: expected a time above 0, such as 1 week", name);
}

Need need_of(const WhereOptions& o) {
  const auto given = [](double price) { return price > 0 ? std::optional(price) : std::nullopt; };
  Need need{.gpu = o.gpu,
            .gpus = static_cast<int>(o.gpus),
            .months = o.months > 0 ? static_cast<int>(o.months) : 12,
            .utilisation = o.utilisation,
            .data_tb = o.data_tb,
            .egress_tb_per_month = o.egress,
            .growth_per_quarter = static_cast<int>(o.growth),
            .sovereign = o.sovereign,
            .spiky = o.spiky,
            .own_room = o.own_room,
            .cluster_price = given(o.cluster_price),
            .private_price = given(o.private_price),
            .staff_per_month = o.staff};
  take_times(need, o);
  return need;
}

// Below the row: why it does not suit, and which price is missing.
std::string remark(const Choice& c) {
  std::string text = c.why;
  if (c.ask.empty() || c.standing == Standing::ruled_out) return text;
  if (!text.empty()) text += "; ";
  if (c.ask == "server")
    text += "ask for the price of a server (--server_price)";
  else if (c.place == Place::cluster)
    text += "price: ask (--cluster_price)";
  else if (c.place == Place::private_cloud)
    text += "price: ask (--private_price)";
  else
    text += fmt::format("ask for the price of a {} ($CAPSTAN_PRICES)", c.ask);
  if (c.below)
    text += fmt::format("; below {}/{} it is the cheapest", format_dollars(*c.below),
                        c.ask == "GPU-hour" ? "GPU-h" : c.ask);
  return text;
}

void print_table(const Where& where, const Need& need) {
  fmt::print("\n{:<28}{:>9} {:>9} {:>10}  {}\n", "", "at once", "a month", length_of(need),
             "low to high");
  for (size_t i = 0; i < where.choices.size(); ++i) {
    const Choice& c = where.choices[i];
    const bool out = c.standing == Standing::ruled_out;
    const std::string name = fmt::format("{} {}", i + 1, title_of(c.place));
    if (c.total && !out) {
      const std::string low = format_dollars(c.total->low), high = format_dollars(c.total->high);
      fmt::print("{:<28}{:>9} {:>9} {:>10}{}\n", name,
                 c.at_once.expected > 0 ? format_dollars(c.at_once.expected) : "-",
                 format_dollars(c.monthly.expected), format_dollars(c.total->expected),
                 low == high ? "" : fmt::format("  {} to {}", low, high));
    } else {
      fmt::print("{:<28}{:>9}\n", name, out ? "ruled out" : "ask");
    }
    if (const std::string text = remark(c); !text.empty()) fmt::print("{}", wrapped(text, "    "));
  }
}

// Of those that own, against renting by the hour; nothing where a price is missing.
std::string break_even_text(const Where& where) {
  std::string text;
  for (const Choice& c : where.choices) {
    if (!c.break_even || c.standing == Standing::ruled_out) continue;
    text += fmt::format("{}: {}, against on-demand\n", title_of(c.place),
                        std::isfinite(*c.break_even)
                            ? fmt::format("pay back after {:.1f} months", *c.break_even)
                            : "never pay back");
  }
  return text.empty() ? "" : "\n" + text;
}

void print_curve(const Where& where) {
  std::vector<CostCurve> curves;
  for (size_t i = 0; i < where.choices.size(); ++i) {
    const Choice& c = where.choices[i];
    if (c.total && c.standing != Standing::ruled_out)
      curves.push_back({static_cast<char>('1' + i), c.curve});
  }
  const std::string text = curve_text(curves, 80, 16);
  if (!text.empty()) fmt::print("\npaid until each month; digits are those of the table\n{}", text);
}

// The rows that were used, each with its origin and date.
std::vector<std::string> sources_of(const Prices& prices, const std::string& gpu) {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& what, const std::string& origin,
                       const std::string& date) {
    std::string line = fmt::format("{}: {}", what, origin);
    if (!date.empty()) line += fmt::format(" ({})", date);
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  };
  for (const Offer& offer : prices.offers)
    if (offer.gpu == gpu) add("by the hour", offer.origin, offer.date);
  if (const Server* const s = prices.server(gpu))
    add(fmt::format("server: {}, {} kW, {}", count(s->gpus, "GPU"), s->kilowatts,
                    s->dollars ? format_dollars(*s->dollars) : "price not known"),
        s->origin, s->date);
  const auto rate = [&](const char* what, const Rate& r, const char* unit) {
    add(fmt::format("{}: {:g} to {:g} {}", what, r.dollars.low, r.dollars.high, unit), r.origin,
        r.date);
  };
  rate("colocation", prices.colocation, "$/kW-month");
  rate("electricity", prices.electricity, "$/kWh");
  rate("cooling", prices.cooling, "kW per kW of machines");
  rate("data that leave a cloud", prices.egress, "$/TB");
  rate("data in a cloud", prices.storage, "$/TB-month");
  rate("disks", prices.disks, "$/TB");
  for (const auto& [what, lead] : {std::pair("a cluster", &prices.cluster_lead),
                                   {"a private cloud", &prices.private_lead},
                                   {"a server", &prices.server_lead}})
    if (*lead)
      add(fmt::format("weeks until {} comes: {:g} to {:g}", what, (*lead)->low, (*lead)->high),
          (*lead)->origin, (*lead)->date);
  return lines;
}

void print_text(const Need& need, const Where& where, const Prices& prices) {
  fmt::print("{} × {} for {}, working {:g}% of the time\n", need.gpus, visible(need.gpu),
             length_of(need), 100 * need.utilisation);
  const Choice& first = where.choices.front();
  if (first.standing == Standing::ruled_out)
    fmt::print("\nrecommended: nothing: every place is ruled out\n");
  else
    fmt::print("\nrecommended: {}{}\n", title_of(first.place),
               first.total ? ", " + format_dollars(*first.total) : ", at a price to ask for");
  for (const std::string& reason : where.reasons) fmt::print("{}", wrapped(reason, "  - "));
  fmt::print("{}", wrapped(where.growth, "  - "));
  print_table(where, need);
  fmt::print("{}", break_even_text(where));
  print_curve(where);
  fmt::print("\nprices, in US dollars without taxes; expected is the middle of low and high\n");
  for (const std::string& line : sources_of(prices, need.gpu))
    fmt::print("{}", wrapped(visible(line), "  "));
  if (need.staff_per_month == 0)
    fmt::print("{}", wrapped("Nobody is paid for looking after own servers; --staff_per_month "
                             "says otherwise. They are worth nothing at the end.",
                             "  "));
}

Json dollars_json(const Dollars& d) {
  return {{"low", d.low}, {"expected", d.expected}, {"high", d.high}};
}

// Null for what is not known, and for a time that never comes.
Json number_json(const std::optional<double>& number) {
  return number && std::isfinite(*number) ? Json(*number) : Json();
}

Json choice_json(const Choice& c) {
  Json out = {{"place", name_of(c.place)},
              {"title", title_of(c.place)},
              {"standing", name_of(c.standing)},
              {"why", c.why},
              {"total", c.total ? dollars_json(*c.total) : Json()},
              {"at_once", c.total ? dollars_json(c.at_once) : Json()},
              {"monthly", c.total ? dollars_json(c.monthly) : Json()},
              {"ask", c.ask.empty() ? Json() : Json(c.ask)},
              {"cheapest_below", number_json(c.below)},
              {"at_most", number_json(c.ceiling)},
              {"break_even_months", number_json(c.break_even)},
              {"lead_weeks", c.lead ? Json{{"low", c.lead->low}, {"high", c.lead->high}} : Json()}};
  if (c.place == Place::hybrid && c.total) out["owned_gpus"] = c.owned_gpus;
  out["curve"] = c.curve;
  return out;
}

void print_as_json(const Need& need, const Where& where, const Prices& prices) {
  auto choices = Json::array();
  for (const Choice& c : where.choices) choices.push_back(choice_json(c));
  const Choice& first = where.choices.front();
  const Choice* const least = where.cheapest();
  print_json(
      {{"gpu", need.gpu},
       {"gpus", need.gpus},
       {"months", need.weeks ? Json(need.hours() / kHoursOfMonth) : Json(need.months)},
       {"utilisation", need.utilisation},
       {"needed_in_weeks", number_json(need.needed_in)},
       {"recommended", first.standing == Standing::ruled_out ? Json() : Json(name_of(first.place))},
       {"cheapest", least != nullptr ? Json(name_of(least->place)) : Json()},
       {"reasons", where.reasons},
       {"growth", where.growth},
       {"choices", choices},
       {"sources", sources_of(prices, need.gpu)}});
}

}  // namespace

int plan_where(const Arguments& arguments) {
  WhereOptions o;
  if (!parse_options(o, arguments)) return 0;
  Prices all = prices();
  require_gpu(o, all);
  take_server(all, o);
  const Need need = need_of(o);
  const Where where = recommend(need, all);
  if (o.json)
    print_as_json(need, where, all);
  else
    print_text(need, where, all);
  return 0;
}

}  // namespace capstan::cli
