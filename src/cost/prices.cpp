#include "cost/prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "cost/catalogue_row.h"
#include "cost/prices_yaml.h"

namespace capstan {
namespace {

constexpr int kMostGpus = 1024;

// Both bounds of an amount; the expected one is their mean.
Dollars bounds_of(const CatalogueRow& row) {
  const double low = row.number("low", 0), high = row.number("high", low);
  return {low, (low + high) / 2, high};
}

// What all rows of a file have unless they say otherwise.
struct Source {
  std::string origin, date;
};

void read_instances(Prices& into, const CatalogueRow& section, const Source& source) {
  for (const auto& entry : section.entries()) {
    const std::string& gpu = entry.first;
    const CatalogueRow row = section.row(entry);
    std::erase_if(into.offers, [&](const Offer& o) { return o.gpu == gpu; });
    const std::string origin = row.text("origin", source.origin);
    const auto before = into.offers.size();
    for (const auto& [key, value] : row.entries()) {
      if (key == "origin") continue;
      int gpus = 0;
      require(YAML::convert<int>::decode(YAML::Node(key), gpus) && gpus >= 1 && gpus <= kMostGpus,
              Fault::file, "{}: {}: expected a number of GPUs from 1 to {}, or origin, found '{}'",
              row.place_of(key), gpu, kMostGpus, key);
      into.offers.push_back({.gpu = gpu,
                             .gpus = gpus,
                             .dollars_per_hour = row.number(key.c_str(), 0.001),
                             .origin = origin,
                             .date = source.date});
    }
    require(into.offers.size() > before, Fault::file,
            "{}: {}: expected the dollars per hour of an instance, such as 8: 30.5, found none",
            row.place(), gpu);
  }
}

void read_servers(Prices& into, const CatalogueRow& section, const Source& source) {
  for (const auto& entry : section.entries()) {
    const std::string& gpu = entry.first;
    const CatalogueRow row = section.row(entry);
    row.expect_only({"gpus", "low", "high", "kilowatts", "origin"});
    Server server{.gpu = gpu,
                  .gpus = row.whole("gpus", 1, kMostGpus),
                  .dollars = std::nullopt,
                  .kilowatts = row.number("kilowatts", 0.001),
                  .origin = row.text("origin", source.origin),
                  .date = source.date};
    if (row.has("low") || row.has("high")) server.dollars = bounds_of(row);
    std::erase_if(into.servers, [&](const Server& s) { return s.gpu == gpu; });
    into.servers.push_back(std::move(server));
  }
}

constexpr std::pair<std::string_view, Rate Prices::*> kRates[] = {
    {"colocation", &Prices::colocation}, {"electricity", &Prices::electricity},
    {"cooling", &Prices::cooling},       {"egress", &Prices::egress},
    {"storage", &Prices::storage},       {"disks", &Prices::disks}};

void read_rates(Prices& into, const CatalogueRow& section, const Source& source) {
  for (const auto& entry : section.entries()) {
    const std::string& name = entry.first;
    const auto* const rate = std::find_if(std::begin(kRates), std::end(kRates),
                                          [&](const auto& r) { return r.first == name; });
    require(rate != std::end(kRates), Fault::file, "{}: rates: {}: no such key",
            section.place_of(name), name);
    const CatalogueRow row = section.row(entry);
    row.expect_only({"low", "high", "origin"});
    into.*(rate->second) = {bounds_of(row), row.text("origin", source.origin), source.date};
  }
}

constexpr std::pair<std::string_view, std::optional<LeadTime> Prices::*> kLeadTimes[] = {
    {"cluster", &Prices::cluster_lead},
    {"private", &Prices::private_lead},
    {"server", &Prices::server_lead}};

void read_lead_times(Prices& into, const CatalogueRow& section, const Source& source) {
  for (const auto& entry : section.entries()) {
    const std::string& name = entry.first;
    const auto* const lead = std::find_if(std::begin(kLeadTimes), std::end(kLeadTimes),
                                          [&](const auto& l) { return l.first == name; });
    require(lead != std::end(kLeadTimes), Fault::file,
            "{}: lead_times: {}: expected cluster, private or server", section.place_of(name),
            name);
    const CatalogueRow row = section.row(entry);
    row.expect_only({"low", "high", "origin"});
    const double low = row.number("low", 0), high = row.number("high", low);
    into.*(lead->second) = LeadTime{low, high, row.text("origin", source.origin), source.date};
  }
}

}  // namespace

const Server* Prices::server(std::string_view gpu) const {
  const auto found =
      std::find_if(servers.begin(), servers.end(), [&](const Server& s) { return s.gpu == gpu; });
  return found == servers.end() ? nullptr : &*found;
}

bool Prices::knows(std::string_view gpu) const {
  return server(gpu) != nullptr ||
         std::any_of(offers.begin(), offers.end(), [&](const Offer& o) { return o.gpu == gpu; });
}

Prices parse_prices(std::string_view yaml, std::string_view where, Prices base) {
  const CatalogueRow file = parse_catalogue(yaml, where, "the prices");
  file.expect_only(
      {"date", "origin", "instances", "between_instances", "servers", "rates", "lead_times"});
  const Source source{file.text("origin", std::string(where)),
                      file.text("date", "an unknown date")};
  if (const auto section = file.section("instances")) read_instances(base, *section, source);
  if (const auto row = file.section("between_instances")) {
    row->expect_only({"gigabits", "origin"});
    base.between = {row->number("gigabits", 0.001), row->text("origin", source.origin),
                    source.date};
  }
  if (const auto section = file.section("servers")) read_servers(base, *section, source);
  if (const auto section = file.section("rates")) read_rates(base, *section, source);
  if (const auto section = file.section("lead_times")) read_lead_times(base, *section, source);
  return base;
}

Prices prices() {
  Prices all = parse_prices(kPricesYaml, "catalogue/prices.yaml");
  const std::string file = environment_value("CAPSTAN_PRICES");
  return file.empty() ? all : parse_prices(read_text(file), file, std::move(all));
}

}  // namespace capstan
