#include "report/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"

namespace capstan {
namespace {

std::string cell(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}

// A line of a metrics.csv, cell by cell.
class CsvLine {
 public:
  explicit CsvLine(std::string_view line) : line_(line) {}

  int64_t whole() {
    int64_t value = 0;
    if (!parse(next(false), value)) refuse("a whole number");
    return value;
  }

  std::optional<double> real(bool last = false) {
    double value = 0;
    if (next(last).empty()) return {};
    if (!parse(cell_, value)) refuse("a number or nothing");
    return value;
  }

 private:
  size_t column() const { return static_cast<size_t>(cell_.data() - line_.data()) + 1; }
  [[noreturn]] void refuse(const char* expected) const {
    fail(Fault::file, "{}: expected {}, found {}", column(), expected, in_quotes(cell_));
  }

  // The cell up to the comma, or for the last cell to the end.
  std::string_view next(bool last) {
    const size_t end = line_.find(',', at_);
    cell_ = line_.substr(at_, end - at_);
    require((end == std::string_view::npos) == last, Fault::file,
            "{}: expected a row of the columns {}", column(), kMetricsColumns);
    at_ = end + 1;
    return cell_;
  }

  template <class T>
  static bool parse(std::string_view text, T& value) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    return error == std::errc() && stop == end;
  }

  std::string_view line_, cell_;
  size_t at_ = 0;
};

MetricsRow row_of(std::string_view line) {
  CsvLine in(line);
  MetricsRow r;
  r.epoch = in.whole();
  r.iter = in.whole();
  r.iter_time = in.real();
  r.learning_rate = in.real();
  r.loss = in.real();
  r.step = in.whole();
  r.tokens = in.whole();
  r.total_tokens = in.whole();
  r.val_loss = in.real();
  in.real(true);  // derived from val_loss
  return r;
}

}  // namespace

std::optional<double> MetricsRow::val_ppl() const {
  return val_loss ? std::optional(std::exp(*val_loss)) : std::nullopt;
}

std::vector<std::pair<std::string_view, double>> named_values(const MetricsRow& row) {
  std::vector<std::pair<std::string_view, double>> values{
      {"epoch", static_cast<double>(row.epoch)},
      {"iter", static_cast<double>(row.iter)},
      {"total_tokens", static_cast<double>(row.total_tokens)}};
  if (row.tokens > 0) values.emplace_back("tokens", static_cast<double>(row.tokens));
  const auto add = [&](std::string_view name, const std::optional<double>& value) {
    if (value) values.emplace_back(name, *value);
  };
  add("iter_time", row.iter_time);
  add("learning_rate", row.learning_rate);
  add("loss", row.loss);
  add("val_loss", row.val_loss);
  add("val_ppl", row.val_ppl());
  add("grad_norm", row.grad_norm);
  return values;
}

std::string csv_line(const MetricsRow& r) {
  return fmt::format("{},{},{},{},{},{},{},{},{},{}\n", r.epoch, r.iter, cell(r.iter_time),
                     cell(r.learning_rate), cell(r.loss), r.step, r.tokens, r.total_tokens,
                     cell(r.val_loss), cell(r.val_ppl()));
}

std::string jsonl_line(const MetricsRow& r) {
  nlohmann::ordered_json object{{"epoch", r.epoch}, {"iter", r.iter}, {"step", r.step}};
  const auto add = [&](const char* key, const std::optional<double>& value) {
    if (!value) return;
    // JSON has no such numbers; these words are Python's, and pandas reads them.
    if (std::isnan(*value))
      object[key] = "NaN";
    else if (std::isinf(*value))
      object[key] = *value > 0 ? "Infinity" : "-Infinity";
    else
      object[key] = *value;
  };
  add("iter_time", r.iter_time);
  add("learning_rate", r.learning_rate);
  add("loss", r.loss);
  object["tokens"] = r.tokens;
  object["total_tokens"] = r.total_tokens;
  add("val_loss", r.val_loss);
  add("val_ppl", r.val_ppl());
  add("grad_norm", r.grad_norm);
  return object.dump() + "\n";
}

std::vector<MetricsRow> read_metrics(const std::filesystem::path& csv, std::vector<BadLine>* bad) {
  const std::string all = read_text(csv, std::numeric_limits<int64_t>::max());
  const std::string header = std::string(kMetricsColumns) + "\n";
  require(all.starts_with(header), Fault::file,
          "{}:1:1: expected the line {}; Capstan did not write this file", csv.string(),
          in_quotes(kMetricsColumns));
  std::vector<MetricsRow> rows;
  int64_t number = 2;
  for (size_t at = header.size(), end = 0; at < all.size(); at = end + 1, ++number) {
    end = std::min(all.find('\n', at), all.size());
    const std::string_view line = std::string_view(all).substr(at, end - at);
    try {
      require(end < all.size(), Fault::file, "1: the line is cut short");
      rows.push_back(row_of(line));
    } catch (const Error& e) {
      if (bad != nullptr)
        bad->push_back(
            {std::string(line), fmt::format("{}:{}:{}", csv.string(), number, e.what())});
    }
  }
  return rows;
}

}  // namespace capstan
