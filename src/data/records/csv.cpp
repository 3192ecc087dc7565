#include "data/records/csv.h"

#include <algorithm>

#include "base/error.h"
#include "base/json_text.h"

namespace capstan {
namespace {

// Whether a line ends here; so does the text.
bool at_line_end(std::string_view text, size_t at) {
  return at == text.size() || text[at] == '\n' ||
         (text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n');
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view where, char delimiter)
      : text_(text), where_(where), delimiter_(delimiter) {}

  // Returns the position after the cell that begins at `at`. Stores its text in `cell` unless null.
  size_t cell(size_t at, std::string* cell) const {
    if (at < text_.size() && text_[at] == '"') return quoted(at, cell);
    const size_t begin = at;
    for (; !ends(at); ++at)
      if (text_[at] == '"')
        refuse(at,
               "expected a delimiter, found a quote within a cell. Put the whole cell in quotes, "
               "and double the quotes in it");
    if (cell != nullptr) *cell = text_.substr(begin, at - begin);
    return at;
  }

  bool at_delimiter(size_t at) const { return at < text_.size() && text_[at] == delimiter_; }

 private:
  bool ends(size_t at) const { return at_line_end(text_, at) || at_delimiter(at); }

  size_t quoted(size_t open, std::string* cell) const {
    size_t at = open + 1;
    for (;; at += 2) {
      const size_t quote = text_.find('"', at);
      if (quote == std::string_view::npos)
        refuse(open, "the quote that opens here is not closed. Double the quotes within a cell");
      const bool doubled = quote + 1 < text_.size() && text_[quote + 1] == '"';
      if (cell != nullptr) cell->append(text_.substr(at, quote - at)).append(doubled ? "\"" : "");
      at = quote;
      if (!doubled) break;
    }
    if (!ends(at + 1))
      refuse(at + 1,
             "expected a delimiter or the end of the line after the quote that closes a cell. "
             "Double the quotes within a cell");
    return at + 1;
  }

  [[noreturn]] void refuse(size_t at, std::string_view why) const {
    fail(Fault::file, "{}: {}", text_location(text_, where_, at), why);
  }

  std::string_view text_, where_;
  char delimiter_;
};

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

std::vector<RecordPlace> find_rows(std::string_view text, std::string_view where, char delimiter) {
  const Reader reader(text, where, delimiter);
  std::vector<RecordPlace> rows;
  int64_t line = 1;
  for (size_t begin = 0; begin < text.size();) {
    size_t at = reader.cell(begin, nullptr);
    while (reader.at_delimiter(at)) at = reader.cell(at + 1, nullptr);
    if (at > begin) rows.push_back({begin, at, line, 1});
    const size_t next = at < text.size() ? text.find('\n', at) + 1 : at;
    const std::string_view row = text.substr(begin, next - begin);
    line += std::count(row.begin(), row.end(), '\n');
    begin = next;
  }
  return rows;
}

std::vector<std::string> cells_of(std::string_view row, char delimiter) {
  const Reader reader(row, "", delimiter);
  std::vector<std::string> cells(1);
  size_t at = reader.cell(0, &cells.back());
  while (reader.at_delimiter(at)) {
    cells.emplace_back();
    at = reader.cell(at + 1, &cells.back());
  }
  return cells;
}

std::vector<std::string> columns_of(std::string_view row, std::string_view where, int64_t line,
                                    char delimiter) {
  std::vector<std::string> names = cells_of(row, delimiter);
  for (std::string& name : names) name = trimmed(name);
  for (size_t i = 0; i < names.size(); ++i)
    require(std::count(names.begin(), names.end(), names[i]) == 1, Fault::file,
            "{}:{}: the column {} appears twice; rename one of them", where, line,
            in_quotes(names[i]));
  if (names.size() == 1)
    require(
        names[0].find_first_of(",;\t|") == std::string::npos, Fault::file,
        "{}:{}: expected column names separated by a {}, found one, {}. Save the table with {}s",
        where, line, delimiter == ',' ? "comma" : "tab", in_quotes(names[0]),
        delimiter == ',' ? "comma" : "tab");
  return names;
}

}  // namespace capstan
