#pragma once

#include <yaml-cpp/yaml.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace capstan {

// One mapping of a catalogue (catalogue/gpus.yaml, prices.yaml, or a file of the user's of the same
// form). Whatever is wrong in it throws Fault::file, "where:line:column: what: …". `where`, the
// name of the file, must outlive the row.
class CatalogueRow {
 public:
  CatalogueRow(const YAML::Node& node, std::string_view where, std::string what);

  void expect_only(std::initializer_list<std::string_view> known) const;
  bool has(const char* key) const;
  std::string text(const char* key, const std::string& otherwise) const;
  double number(const char* key, double least, double most = kMost) const;
  int whole(const char* key, int least, int most) const;
  double number_or(double otherwise, const char* key, double least, double most = kMost) const;
  // A number that may have † behind it, if nobody looked it up in a source: then its key is added
  // to `unsourced`.
  double figure(const char* key, double least, std::vector<std::string>& unsourced,
                double most = kMost) const;
  double figure_or(double otherwise, const char* key, double least,
                   std::vector<std::string>& unsourced, double most = kMost) const;
  // Keys with their values; a key that appears twice is an error.
  std::vector<std::pair<std::string, YAML::Node>> entries() const;
  // The rows of such an entry, and of a key that may be absent.
  CatalogueRow row(const std::pair<std::string, YAML::Node>& entry) const;
  std::optional<CatalogueRow> section(const char* key) const;

  // For errors: "where:line:column".
  std::string place() const { return place(node_); }
  std::string place_of(std::string_view key) const;

  static constexpr double kMost = 1e9;

 private:
  std::string place(const YAML::Node& node) const;
  double checked(const char* key, const YAML::Node& value, double least, double most) const;

  YAML::Node node_;
  std::string_view where_;
  std::string what_;
};

// The whole text of a catalogue of `what`: "the prices".
CatalogueRow parse_catalogue(std::string_view yaml, std::string_view where, std::string what);

}  // namespace capstan
