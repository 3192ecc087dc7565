#include "data/records/find_records.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "data/records/record_source.h"

namespace capstan {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(kSpace) == std::string_view::npos;
}

// Returns the end of the value that begins at `at`, which may be invalid JSON: it ends at the next
// comma or bracket outside of all strings and brackets.
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

// The bracket that closes the one at `at`, or the end of the text.
size_t closing_of(std::string_view text, size_t at) {
  do at = end_of_element(text, at + 1);
  while (at < text.size() && text[at] == ',');
  return at;
}

// Lines and columns of ascending positions in a text.
class Locator {
 public:
  explicit Locator(std::string_view text) : text_(text) {}
  std::pair<int64_t, int64_t> at(size_t offset) {
    for (; offset_ < offset && offset_ < text_.size(); ++offset_) {
      const char c = text_[offset_];
      if (c == '\n') ++line_, column_ = 1;
      // Columns count characters, not bytes.
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

struct FoundList {
  std::vector<RecordPlace> places;
  size_t end;  // just past it
};

// The elements of the list that opens at `open`.
FoundList find_in_list(std::string_view text, std::string_view where, const RecordFields& fields,
                       size_t open) {
  std::vector<RecordPlace> places;
  Locator locator(text);
  size_t at = open + 1;
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
      // An error within the record is more helpful than the missing end.
      parse_record(text.substr(at, end - at), where, line, column, fields);
      fail(Fault::file, "{}: expected a comma and another record, or the ] that ends the list",
           text_location(text, where, end));
    }
    at = end;
  }
  return {std::move(places), at};
}

std::vector<RecordPlace> find_bare(std::string_view text, std::string_view where,
                                   const RecordFields& fields, size_t open) {
  FoundList list = find_in_list(text, where, fields, open);
  const size_t rest = text.find_first_not_of(kSpace, list.end);
  if (rest != std::string_view::npos)
    fail(Fault::file, "{}: expected nothing after the list of records, found {}",
         text_location(text, where, rest), in_quotes(text.substr(rest, 1)));
  return std::move(list.places);
}

// Where the list opens in {"data": [{…}, …], …}; nothing for other objects.
std::optional<size_t> wrapped_list(std::string_view text, size_t object) {
  constexpr std::string_view kKey = "\"data\"";
  const auto next = [&](size_t at) {
    return std::min(text.find_first_not_of(kSpace, at), text.size());
  };
  const auto is = [&](size_t at, char c) { return at < text.size() && text[at] == c; };
  for (size_t at = object; at == object || is(at, ','); at = end_of_element(text, at)) {
    at = next(at + 1);
    if (!text.substr(at).starts_with(kKey)) continue;
    const size_t colon = next(at + kKey.size());
    const size_t list = next(colon + 1), first = next(list + 1);
    if (is(colon, ':') && is(list, '[') && (is(first, '{') || is(first, ']'))) return list;
  }
  return std::nullopt;
}

// The records of an object that has them under "data". The rest of the object must be valid JSON,
// too.
std::vector<RecordPlace> find_wrapped(std::string_view text, std::string_view where,
                                      const RecordFields& fields, size_t open) {
  FoundList list = find_in_list(text, where, fields, open);
  parse_json(std::string(text.substr(0, open)) + "[]}", where);
  constexpr std::string_view kBefore = "{\"\":[]";
  const auto [line, column] = Locator(text).at(list.end);
  parse_json(std::string(kBefore).append(text.substr(list.end)), where, 64,
             {line, column - std::ssize(kBefore)});
  return std::move(list.places);
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

// Whether the first line leaves an object open, as in pretty-printed JSON.
bool spans_lines(std::string_view text) {
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
  require(first != std::string_view::npos, Fault::file, "{}: contains no record: the file is empty",
          where);
  const auto expect = [&](bool so, std::string_view found) {
    require(so, Fault::file,
            "{}: expected a JSON list of records or one record on each line, found {}",
            text_location(text, where, first), found);
  };
  expect(text[first] == '[' || text[first] == '{', in_quotes(text.substr(first, 1)));
  std::vector<RecordPlace> places;
  if (text[first] == '[') {
    places = find_bare(text, where, fields, first);
  } else {
    const size_t end = closing_of(text, first);
    const bool alone = end == text.size() || is_blank(text.substr(end + 1));
    const auto list = alone ? wrapped_list(text, first) : std::nullopt;
    expect(list || !spans_lines(text.substr(first)),
           "an object over several lines; write each record on one line (jq -c . FILE), or, if it "
           "contains the list of records, name that \"data\"");
    places = list ? find_wrapped(text, where, fields, *list) : find_lines(text);
  }
  require(!places.empty(), Fault::file, "{}: contains no record: the list is empty", where);
  return places;
}

}  // namespace capstan
