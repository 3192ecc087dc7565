#include "cost/catalogue_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace capstan {

CatalogueRow::CatalogueRow(const YAML::Node& node, std::string_view where, std::string what)
    : node_(node), where_(where), what_(std::move(what)) {
  require(node.IsMap(), Fault::file, "{}: {}: expected a mapping", place(node), what_);
}

void CatalogueRow::expect_only(std::initializer_list<std::string_view> known) const {
  for (const auto& [key, value] : entries())
    require(std::find(known.begin(), known.end(), key) != known.end(), Fault::file,
            "{}: {}: {}: no such key", place_of(key), what_, key);
}

bool CatalogueRow::has(const char* key) const {
  return static_cast<bool>(node_[key]);
}

std::string CatalogueRow::text(const char* key, const std::string& otherwise) const {
  const YAML::Node value = node_[key];
  if (!value) return otherwise;
  require(value.IsScalar(), Fault::file, "{}: {}: {}: expected a text", place(value), what_, key);
  return value.Scalar();
}

double CatalogueRow::number(const char* key, double least, double most) const {
  return checked(key, node_[key], least, most);
}

double CatalogueRow::figure(const char* key, double least, std::vector<std::string>& unsourced,
                            double most) const {
  constexpr std::string_view kDagger = "†";
  const YAML::Node value = node_[key];
  if (!value || !value.IsScalar() || !value.Scalar().ends_with(kDagger))
    return number(key, least, most);
  const std::string& text = value.Scalar();
  unsourced.emplace_back(key);
  return checked(key, YAML::Node(text.substr(0, text.size() - kDagger.size())), least, most);
}

double CatalogueRow::figure_or(double otherwise, const char* key, double least,
                               std::vector<std::string>& unsourced, double most) const {
  return has(key) ? figure(key, least, unsourced, most) : otherwise;
}

// `value` is that of the key, perhaps without its †.
double CatalogueRow::checked(const char* key, const YAML::Node& value, double least,
                             double most) const {
  require(value.IsDefined(), Fault::file, "{}: {}: {}: expected a number, found none", place(),
          what_, key);
  double number = 0;
  const bool good = value.IsScalar() && YAML::convert<double>::decode(value, number) &&
                    number >= least && number <= most;
  require(good, Fault::file, "{}: {}: {}: expected a number from {} to {:.0f}, found '{}'",
          place(node_[key]), what_, key, least, most, value.IsScalar() ? value.Scalar() : "a list");
  return number;
}

int CatalogueRow::whole(const char* key, int least, int most) const {
  const double value = number(key, least, most);
  require(value == std::floor(value), Fault::file, "{}: {}: {}: expected a whole number, found {}",
          place(node_[key]), what_, key, value);
  return static_cast<int>(value);
}

double CatalogueRow::number_or(double otherwise, const char* key, double least, double most) const {
  return has(key) ? number(key, least, most) : otherwise;
}

std::vector<std::pair<std::string, YAML::Node>> CatalogueRow::entries() const {
  std::vector<std::pair<std::string, YAML::Node>> all;
  for (const auto& entry : node_) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
    const bool again =
        std::any_of(all.begin(), all.end(), [&](const auto& e) { return e.first == key; });
    require(!key.empty() && !again, Fault::file, "{}: {}: expected a name, {}", place(entry.first),
            what_, again ? fmt::format("found '{}' again", key) : "found none");
    all.emplace_back(key, entry.second);
  }
  return all;
}

CatalogueRow CatalogueRow::row(const std::pair<std::string, YAML::Node>& entry) const {
  return {entry.second, where_, entry.first};
}

std::optional<CatalogueRow> CatalogueRow::section(const char* key) const {
  const YAML::Node value = node_[key];
  if (!value) return std::nullopt;
  return CatalogueRow(value, where_, key);
}

std::string CatalogueRow::place_of(std::string_view key) const {
  for (const auto& entry : node_)
    if (entry.first.IsScalar() && entry.first.Scalar() == key) return place(entry.first);
  return place();
}

std::string CatalogueRow::place(const YAML::Node& node) const {
  return fmt::format("{}:{}:{}", where_, node.Mark().line + 1, node.Mark().column + 1);
}

CatalogueRow parse_catalogue(std::string_view yaml, std::string_view where, std::string what) {
  YAML::Node root;
  try {
    root = YAML::Load(std::string(yaml));
  } catch (const YAML::Exception& e) {
    fail(Fault::file, "{}:{}:{}: {}", where, e.mark.line + 1, e.mark.column + 1, e.msg);
  }
  require(!root.IsNull(), Fault::file, "{}: expected {}, found nothing", where, what);
  return {root, where, std::move(what)};
}

}  // namespace capstan
