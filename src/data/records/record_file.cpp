#include "data/records/record_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/units.h"
#include "data/records/csv.h"
#include "data/records/file_kind.h"
#include "data/records/record_source.h"

namespace capstan {
namespace {

std::string_view without_bom(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text;
}

// A table begins with its column names; a file that begins like JSON is not a table, whatever its
// name.
bool begins_as_json(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (text[first] == '[' || text[first] == '{');
}

// The path, once the beginning of the file shows that it may be text: one of another kind may be
// huge.
const std::filesystem::path& checked(const std::filesystem::path& path) {
  const std::string kind = foreign_kind(without_bom(beginning_of(FileReader(path))), path);
  require(kind.empty(), Fault::file, "{}:1:1: expected records as JSON, JSONL or CSV, found {}",
          path.string(), kind);
  return path;
}

}  // namespace

RecordFile::RecordFile(const std::filesystem::path& path, RecordFields fields)
    : name_(path.string()), fields_(std::move(fields)), file_(checked(path)) {
  const auto bytes = file_.bytes();
  text_ = without_bom({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  delimiter_ = table_delimiter(path);
  if (!delimiter_ || begins_as_json(text_)) {
    delimiter_.reset();
    places_ = find_records(text_, name_, fields_);
    return;
  }
  places_ = find_rows(text_, name_, *delimiter_);
  require(places_.size() > 1, Fault::file, "{}: contains no record: {}", name_,
          places_.empty() ? "the file is empty" : "there is no row after the column names");
  const RecordPlace& first = places_.front();
  columns_ = columns_of(text_.substr(first.begin, first.end - first.begin), name_, first.line,
                        *delimiter_);
  places_.erase(places_.begin());
}

RecordSource RecordFile::source(int64_t index) const {
  const RecordPlace& p = places_.at(static_cast<size_t>(index));
  return {text_.substr(p.begin, p.end - p.begin), name_, p.line, p.column};
}

nlohmann::json RecordFile::value(int64_t index, const RecordSource& source) const {
  if (!delimiter_) return source.parse();
  source.check_utf8();
  const RecordPlace& p = places_[static_cast<size_t>(index)];
  std::vector<std::string> cells = cells_of(text_.substr(p.begin, p.end - p.begin), *delimiter_);
  if (cells.size() != columns_.size())
    source.fail_here("expected {} cells, as many as there are columns, found {}", columns_.size(),
                     cells.size());
  auto object = nlohmann::json::object();
  for (size_t i = 0; i < cells.size(); ++i)
    if (!columns_[i].empty()) object[columns_[i]] = std::move(cells[i]);
  return object;
}

Record RecordFile::record(int64_t index) const {
  const RecordSource from = source(index);
  nlohmann::json object = value(index, from);
  return take_record(object, fields_, from);
}

std::string RecordFile::document(int64_t index) const {
  const RecordSource from = source(index);
  nlohmann::json object = value(index, from);
  const std::string field = fields_.text.empty() ? "text" : fields_.text;
  if (!object.is_object())
    from.fail_here("expected a document, {{{}: …}}, found {}", in_quotes(field), shown(object));
  if (!object.contains(field))
    from.fail_here(
        "expected a document with the field {}, found {}. If another column has the text: "
        "--data.columns.text COLUMN; for instructions and chats: --data JSON --data.json_path FILE",
        in_quotes(field), fields_in(object));
  return take_text(object, field, false, from);
}

namespace {

// A message "file:12: problem" in its parts; `place` is "12", or "12:5" with a column.
struct Told {
  std::string_view place, problem;
};
Told parts_of(std::string_view message) {
  const size_t end = message.find(": ");
  if (end == std::string_view::npos) return {"", message};
  const size_t file = message.substr(0, end).find_last_not_of("0123456789:");
  const size_t place = message.find(':', file == std::string_view::npos ? 0 : file);
  return {message.substr(std::min(place + 1, end), end - std::min(place + 1, end)),
          message.substr(end)};
}

}  // namespace

void RecordErrors::add(std::string message) {
  constexpr int64_t kMostPlaces = 6;  // of each problem
  ++count_;
  const Told told = parts_of(message);
  const auto known = std::find_if(problems_.begin(), problems_.end(), [&](const Problem& p) {
    return parts_of(p.first).problem == told.problem;
  });
  if (known != problems_.end()) {
    if (++known->records <= kMostPlaces)
      known->places += fmt::format("{}{}", known->places.empty() ? "" : ", ", told.place);
  } else if (problems_.size() < kMostShown) {
    problems_.push_back({std::move(message)});
  }
}

void RecordErrors::throw_if_any() const {
  if (empty()) return;
  std::string all;
  int64_t told = 0;
  for (const Problem& p : problems_) {
    all += (all.empty() ? "" : "\n") + p.first;
    const int64_t others = p.records - 1,
                  shown = std::count(p.places.begin(), p.places.end(), ',') + 1;
    if (others > 0)
      all += fmt::format(" (the same at {}{})", p.places,
                         others > shown ? fmt::format(" and {} more", others - shown) : "");
    told += p.records;
  }
  if (count_ > told) all += "\nand " + count(count_ - told, "more bad record");
  throw Error(Fault::file, all);
}

}  // namespace capstan
