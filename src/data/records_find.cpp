#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "data/records.h"

namespace capstan {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(kSpace) == std::string_view::npos;
}

// Just past the value that begins at `at`, which may be wrong JSON: its end is the comma or bracket
// that follows it outside of all strings and brackets.
size_t end_of_element(std::string_view text, size_t at) {
  int64_t depth = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\';
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth-- == 0) return at;
    } else if (c == ',' && depth == 0) {
      return at;
    }
  }
  return text.size();
}

// Lines and columns of ever later places in a text.
class Locator {
 public:
  explicit Locator(std::string_view text) : text_(text) {}
  std::pair<int64_t, int64_t> at(size_t offset) {
    for (; offset_ < offset && offset_ < text_.size(); ++offset_) {
      const char c = text_[offset_];
      if (c == '\n') ++line_, column_ = 1;
      // A column is a character, not a byte.
      else if ((static_cast<unsigned char>(c) & 0xc0) != 0x80)
        ++column_;
    }
    return {line_, column_};
  }

 private:
  std::string_view text_;
  size_t offset_ = 0;
  int64_t line_ = 1, column_ = 1;
};

std::vector<RecordPlace> find_in_list(std::string_view text, std::string_view where,
                                      const RecordFields& fields) {
  std::vector<RecordPlace> places;
  Locator locator(text);
  size_t at = text.find('[') + 1;
  for (bool closed = false; !closed; ++at) {
    at = std::min(text.find_first_not_of(kSpace, at), text.size());
    const size_t end = end_of_element(text, at);
    closed = end < text.size() && text[end] == ']';
    if (closed && places.empty() && at == end) continue;  // []
    const auto [line, column] = locator.at(at);
    require(at != end, Fault::file, "{}:{}:{}: expected a record, found {}{}", where, line, column,
            at == text.size() ? "the end of the file" : in_quotes(text.substr(at, 1)),
            closed ? "; remove the comma before it" : "");
    places.push_back({at, end, line, column});
    if (!closed && (end == text.size() || text[end] != ',')) {
      // A mistake within the record tells more than the end that is missing.
      parse_record(text.substr(at, end - at), where, line, column, fields);
      fail(Fault::file, "{}: expected a comma and another record, or the ] that ends the list",
           text_location(text, where, end));
    }
    at = end;
  }
  const size_t rest = text.find_first_not_of(kSpace, at);
  if (rest != std::string_view::npos)
    fail(Fault::file, "{}: expected nothing after the list of records, found {}",
         text_location(text, where, rest), in_quotes(text.substr(rest, 1)));
  return places;
}

std::vector<RecordPlace> find_lines(std::string_view text) {
  std::vector<RecordPlace> places;
  int64_t line = 1;
  for (size_t begin = 0; begin < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (!is_blank(text.substr(begin, end - begin))) places.push_back({begin, end, line, 1});
    begin = end + 1;
  }
  return places;
}

// What a file of another kind is, and what to do about it; empty where nothing is known.
std::string_view other_kind(std::string_view text) {
  using namespace std::string_view_literals;
  constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"\x1f\x8b"sv, "a file that gzip has packed; unpack it"},
      {"PK\x03\x04"sv, "a ZIP file; unpack it"},
      {"PAR1"sv, "a Parquet file; write its rows as JSON"},
      {"\xff\xfe"sv, "UTF-16; convert the file (iconv -f UTF-16 -t UTF-8)"},
      {"\xfe\xff"sv, "UTF-16; convert the file (iconv -f UTF-16 -t UTF-8)"}};
  for (const auto& [begin, kind] : kKinds)
    if (text.starts_with(begin)) return kind;
  return "";
}

// Whether the first line leaves an object open, as pretty-printing does.
bool goes_over_lines(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  const size_t last = line.find_last_not_of(kSpace);
  return line.size() < text.size() &&
         std::string_view("{[,").find(line[last]) != std::string_view::npos &&
         end_of_element(line, 0) == line.size();
}

}  // namespace

std::vector<RecordPlace> find_records(std::string_view text, std::string_view where,
                                      const RecordFields& fields) {
  const size_t first = text.find_first_not_of(kSpace);
  require(first != std::string_view::npos, Fault::file, "{}: holds no record: the file is empty",
          where);
  const auto expect = [&](bool so, std::string_view found) {
    require(so, Fault::file,
            "{}: expected a JSON list of records or one record on each line, found {}",
            text_location(text, where, first), found);
  };
  const std::string_view kind = other_kind(text);
  expect(kind.empty(), kind);
  expect(text[first] == '[' || text[first] == '{', in_quotes(text.substr(first, 1)));
  expect(text[first] == '[' || !goes_over_lines(text.substr(first)),
         "an object over several lines; if it holds the list of records, write that alone");
  auto places = text[first] == '[' ? find_in_list(text, where, fields) : find_lines(text);
  require(!places.empty(), Fault::file, "{}: holds no record: the list is empty", where);
  return places;
}

}  // namespace capstan
