#include "report/metrics.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
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

// A metrics.csv while it is read: the text, and where its next cell begins.
class CsvReader {
 public:
  CsvReader(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {
    const size_t end = text_.rfind('\n');
    text_ = text_.substr(0, end == std::string_view::npos ? 0 : end + 1);  // less a torn line
  }

  bool done() const { return at_ >= text_.size(); }

  void header() {
    require(text_.starts_with(kMetricsColumns) && text_.substr(kMetricsColumns.size(), 1) == "\n",
            Fault::file, "{}:1:1: expected the line {}; this file is not of Capstan's making",
            where_, in_quotes(kMetricsColumns));
    at_ = kMetricsColumns.size() + 1;
  }

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
  std::string place() const {
    return text_location(text_, where_, static_cast<size_t>(cell_.data() - text_.data()));
  }
  [[noreturn]] void refuse(const char* expected) const {
    fail(Fault::file, "{}: expected {}, found {}", place(), expected, in_quotes(cell_));
  }

  // The cell up to the comma or, for the last of a row, the newline.
  std::string_view next(bool last) {
    const size_t end = text_.find_first_of(",\n", at_);
    cell_ = text_.substr(at_, end - at_);
    if (end == std::string_view::npos || (text_[end] == '\n') != last)
      fail(Fault::file,
           "{}: expected rows of the columns {}; remove the row, or the file, to go on", place(),
           kMetricsColumns);
    at_ = end + 1;
    return cell_;
  }

  template <class T>
  static bool parse(std::string_view text, T& value) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    return error == std::errc() && stop == end;
  }

  std::string_view text_, cell_;
  std::string where_;
  size_t at_ = 0;
};

}  // namespace

std::optional<double> MetricsRow::val_ppl() const {
  return val_loss ? std::optional(std::exp(*val_loss)) : std::nullopt;
}

std::string csv_line(const MetricsRow& r) {
  return fmt::format("{},{},{},{},{},{},{},{},{},{}\n", r.epoch, r.iter, cell(r.iter_time),
                     cell(r.learning_rate), cell(r.loss), r.step, r.tokens, r.total_tokens,
                     cell(r.val_loss), cell(r.val_ppl()));
}

std::string jsonl_line(const MetricsRow& r) {
  nlohmann::ordered_json object{{"epoch", r.epoch}, {"iter", r.iter}, {"step", r.step}};
  const auto add = [&](const char* key, const std::optional<double>& value) {
    if (value) object[key] = *value;
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

std::vector<MetricsRow> read_metrics(const std::filesystem::path& csv) {
  const std::string text = read_text(csv, std::numeric_limits<int64_t>::max());
  CsvReader in(text, csv.string());
  in.header();
  std::vector<MetricsRow> rows;
  while (!in.done()) {
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
    in.real(true);  // val_ppl follows from val_loss
    rows.push_back(r);
  }
  return rows;
}

Logger parse_logger(std::string_view name) {
  if (name == "csv") return Logger::csv;
  if (name == "tensorboard") return Logger::tensorboard;
  if (name == "jsonl") return Logger::jsonl;
  const bool service = name == "wandb" || name == "mlflow";
  fail(Fault::usage, "logger_name: expected csv, tensorboard or jsonl, found {}{}", in_quotes(name),
       service ? ", a service that Capstan does not talk to" : "");
}

}  // namespace capstan
