#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/choices.h"

namespace capstan {

// Where a run's measurements go, besides metrics.csv: one or more, each once.
struct Loggers {
  std::vector<Logger> kinds = {Logger::csv};

  Loggers() = default;
  Loggers(Logger one) : kinds{one} {}  // NOLINT: as if it were the one

  static constexpr std::string_view kOtherwise = "several as [csv, mlflow]";
  static std::optional<Loggers> parse(std::string_view text);
  static std::vector<std::string> choices();
  std::string text() const;

  bool has(Logger kind) const;
  bool operator==(const Loggers&) const = default;
};

}  // namespace capstan
