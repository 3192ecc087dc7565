#include "cost/prices.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "cost/prices_yaml.h"

namespace capstan {
namespace {

constexpr double kMost = 1e9;

// One mapping of the file; every problem has its place.
class Row {
 public:
  Row(const YAML::Node& node, std::string_view where, std::string what)
      : node_(node), where_(where), what_(std::move(what)) {
    require(node.IsMap(), Fault::file, "{}: {}: expected a mapping", place(node), what_);
  }

  std::string text(const char* key, const std::string& otherwise) const {
    const YAML::Node value = node_[key];
    if (!value) return otherwise;
    require(value.IsScalar(), Fault::file, "{}: {}: {}: expected a text", place(value), what_, key);
    return value.Scalar();
  }
  bool has(const char* key) const { return static_cast<bool>(node_[key]); }
  double number(const char* key, double least) const {
    const YAML::Node value = node_[key];
    require(static_cast<bool>(value), Fault::file, "{}: {}: {}: expected a number, found none",
            place(node_), what_, key);
    return number(value, key, least);
  }
  double number(const YAML::Node& value, std::string_view key, double least) const {
    double number = 0;
    const bool good = value.IsScalar() && YAML::convert<double>::decode(value, number) &&
                      number >= least && number <= kMost;
    require(good, Fault::file, "{}: {}: {}: expected a number from {} to {:.0f}, found '{}'",
            place(value), what_, key, least, kMost, value.IsScalar() ? value.Scalar() : "a list");
    return number;
  }
  int gpus() const {
    const YAML::Node value = node_["gpus"];
    require(static_cast<bool>(value), Fault::file, "{}: {}: gpus: expected a number, found none",
            place(node_), what_);
    int number = 0;
    const bool good = value.IsScalar() && YAML::convert<int>::decode(value, number) &&
                      number >= 1 && number <= 1024;
    require(good, Fault::file, "{}: {}: gpus: expected a number from 1 to 1024, found '{}'",
            place(value), what_, value.IsScalar() ? value.Scalar() : "a list");
    return number;
  }
  // Both bounds of an amount; the expected one is their mean.
  Dollars bounds() const {
    const double low = number("low", 0), high = number("high", 0);
    require(low <= high, Fault::file, "{}: {}: high: expected at least low, {}, found {}",
            place(node_["high"]), what_, low, high);
    return {low, (low + high) / 2, high};
  }
  void expect_only(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : entries())
      require(std::find(known.begin(), known.end(), key) != known.end(), Fault::file,
              "{}: {}: {}: no such key", place_of(key), what_, key);
  }
  // Keys with their values; a key that appears twice is an error.
  std::vector<std::pair<std::string, YAML::Node>> entries() const {
    std::vector<std::pair<std::string, YAML::Node>> all;
    for (const auto& entry : node_) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      const bool again =
          std::any_of(all.begin(), all.end(), [&](const auto& e) { return e.first == key; });
      require(!key.empty() && !again, Fault::file, "{}: {}: expected a name, {}",
              place(entry.first), what_,
              again ? fmt::format("found '{}' again", key) : "found none");
      all.emplace_back(key, entry.second);
    }
    return all;
  }
  std::string place_of(std::string_view key) const {
    for (const auto& entry : node_)
      if (entry.first.IsScalar() && entry.first.Scalar() == key) return place(entry.first);
    return place(node_);
  }
  std::optional<Row> section(const char* key) const {
    const YAML::Node value = node_[key];
    if (!value) return std::nullopt;
    return Row(value, where_, key);
  }
  std::string place(const YAML::Node& node) const {
    return fmt::format("{}:{}:{}", where_, node.Mark().line + 1, node.Mark().column + 1);
  }

 private:
  YAML::Node node_;
  std::string_view where_;
  std::string what_;
};

// What all rows of a file have unless they say otherwise.
struct Source {
  std::string_view where;
  std::string origin, date;
};

void read_instances(Prices& into, const Row& section, const Source& source) {
  for (const auto& [gpu, node] : section.entries()) {
    const Row row(node, source.where, gpu);
    std::erase_if(into.offers, [&, &name = gpu](const Offer& o) { return o.gpu == name; });
    const std::string origin = row.text("origin", source.origin);
    for (const auto& [key, value] : row.entries()) {
      if (key == "origin") continue;
      int gpus = 0;
      require(YAML::convert<int>::decode(YAML::Node(key), gpus) && gpus >= 1 && gpus <= 1024,
              Fault::file,
              "{}: {}: expected a number of GPUs from 1 to 1024, or origin, found '{}'",
              row.place_of(key), gpu, key);
      into.offers.push_back({.gpu = gpu,
                             .gpus = gpus,
                             .dollars_per_hour = row.number(value, key, 0.001),
                             .origin = origin,
                             .date = source.date});
    }
  }
}

void read_servers(Prices& into, const Row& section, const Source& source) {
  for (const auto& [gpu, node] : section.entries()) {
    const Row row(node, source.where, gpu);
    row.expect_only({"gpus", "low", "high", "kilowatts", "origin"});
    Server server{.gpu = gpu,
                  .gpus = row.gpus(),
                  .dollars = std::nullopt,
                  .kilowatts = row.number("kilowatts", 0.001),
                  .origin = row.text("origin", source.origin),
                  .date = source.date};
    if (row.has("low") || row.has("high")) server.dollars = row.bounds();
    std::erase_if(into.servers, [&, &name = gpu](const Server& s) { return s.gpu == name; });
    into.servers.push_back(std::move(server));
  }
}

constexpr std::pair<std::string_view, Rate Prices::*> kRates[] = {
    {"colocation", &Prices::colocation}, {"electricity", &Prices::electricity},
    {"cooling", &Prices::cooling},       {"egress", &Prices::egress},
    {"storage", &Prices::storage},       {"disks", &Prices::disks}};

void read_rates(Prices& into, const Row& section, const Source& source) {
  for (const auto& [name, node] : section.entries()) {
    const auto* const rate =
        std::find_if(std::begin(kRates), std::end(kRates),
                     [&, &key = name](const auto& r) { return r.first == key; });
    require(rate != std::end(kRates), Fault::file, "{}: rates: {}: no such key",
            section.place_of(name), name);
    const Row row(node, source.where, name);
    row.expect_only({"low", "high", "origin"});
    into.*(rate->second) = {row.bounds(), row.text("origin", source.origin), source.date};
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
  YAML::Node root;
  try {
    root = YAML::Load(std::string(yaml));
  } catch (const YAML::Exception& e) {
    fail(Fault::file, "{}:{}:{}: {}", where, e.mark.line + 1, e.mark.column + 1, e.msg);
  }
  require(!root.IsNull(), Fault::file, "{}: expected prices, found nothing", where);
  const Row file(root, where, "the prices");
  file.expect_only({"date", "origin", "instances", "servers", "rates"});
  const Source source{where, file.text("origin", std::string(where)),
                      file.text("date", "an unknown date")};
  if (const auto section = file.section("instances")) read_instances(base, *section, source);
  if (const auto section = file.section("servers")) read_servers(base, *section, source);
  if (const auto section = file.section("rates")) read_rates(base, *section, source);
  return base;
}

Prices prices() {
  Prices all = parse_prices(kPricesYaml, "catalogue/prices.yaml");
  const std::string file = environment_value("CAPSTAN_PRICES");
  return file.empty() ? all : parse_prices(read_text(file), file, std::move(all));
}

}  // namespace capstan
