#include "base/json_text.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"

namespace capstan {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Feeds the text to the library byte by byte to track the position, which the library does not pass
// to its handlers.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  explicit Cursor(const char** at) : at_(at), end_(nullptr) {}
  static Cursor at_end(const char* end) { return Cursor(end); }

  const char& operator*() const { return **at_; }
  Cursor& operator++() {
    ++*at_;
    return *this;
  }
  Cursor operator++(int) {
    ++*at_;
    return *this;
  }
  bool operator==(const Cursor& end) const { return *at_ == end.end_; }
  bool operator!=(const Cursor& end) const { return *at_ != end.end_; }

 private:
  explicit Cursor(const char* end) : at_(nullptr), end_(end) {}
  const char** at_;
  const char* end_;
};

// The library's message, without its prefix and without a long echo of the input.
std::string plain_reason(const std::exception& e) {
  std::string_view what = e.what();
  if (what.starts_with('[')) what.remove_prefix(std::min(what.size(), what.find("] ") + 2));
  if (what.starts_with("parse error at")) {
    const size_t colon = what.find(": ");
    if (colon != std::string_view::npos) what.remove_prefix(colon + 2);
  }
  constexpr size_t kLongest = 200;
  std::string reason(what.substr(0, kLongest));
  for (char& c : reason) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7e) c = '?';
  }
  return what.size() > kLongest ? reason + "…" : reason;
}

// The common part of the handlers: they accept every scalar and track the position.
class Handler {
 public:
  Handler(std::string_view text, std::string_view where, TextStart start = {})
      : text_(text), where_(where), start_(start) {}

  const char** cursor() { return &at_; }
  std::string location(size_t offset) const { return text_location(text_, where_, offset, start_); }
  // Start of the token that ends at the current position; strings and brackets only.
  size_t offset() const { return static_cast<size_t>(at_ - text_.data()); }
  // The opening quote of the string that ends here: quotes inside are preceded by a backslash.
  size_t string_start() const {
    size_t i = offset() - 2;
    while (i > 0 && (text_[i] != '"' || text_[i - 1] == '\\')) --i;
    return i;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) {
    fail(Fault::file, "{}: not valid JSON: {}", location(position > 0 ? position - 1 : 0),
         plain_reason(e));
  }

 protected:
  std::string_view text_;
  std::string_view where_;
  TextStart start_;
  const char* at_ = text_.data();
};

// Nothing if the object has the key.
json* add_key(json& object, const std::string& name) {
  const auto [entry, is_new] = object.get_ref<json::object_t&>().emplace(name, nullptr);
  return is_new ? &entry->second : nullptr;
}
// Its own emplace would look through all keys. parse_ordered_json has refused duplicates before.
ordered_json* add_key(ordered_json& object, const std::string& name) {
  ordered_json::object_t::Container& entries = object.get_ref<ordered_json::object_t&>();
  return &entries.emplace_back(name, nullptr).second;
}

template <class Json>
class Builder : public Handler {
 public:
  Builder(std::string_view text, std::string_view where, int max_depth, TextStart start)
      : Handler(text, where, start), max_depth_(std::min(max_depth, kDeepestJson)) {}

  bool null() { return put(nullptr); }
  bool boolean(bool v) { return put(v); }
  bool number_integer(int64_t v) { return put(v); }
  bool number_unsigned(uint64_t v) { return put(v); }
  bool number_float(double v, const std::string&) { return put(v); }
  bool string(std::string& v) { return put(std::move(v)); }
  bool binary(json::binary_t&) { return false; }  // not in JSON text
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    slot_ = add_key(*stack_.back(), name);
    if (slot_ == nullptr) {
      fail(Fault::file, "{}: the key {} appears twice; keep one of them", location(string_start()),
           in_quotes(name));
    }
    return true;
  }

  Json take() { return std::move(root_); }

 private:
  Json* place(Json value) {
    Json* to = &root_;
    if (!stack_.empty() && stack_.back()->is_array()) {
      stack_.back()->push_back(nullptr);
      to = &stack_.back()->back();
    } else if (!stack_.empty()) {
      to = slot_;
    }
    *to = std::move(value);
    return to;
  }
  bool put(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json container) {
    if (static_cast<int>(stack_.size()) >= max_depth_) {
      fail(Fault::file, "{}: nested more than {} deep", location(offset() - 1), max_depth_);
    }
    stack_.push_back(place(std::move(container)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  int max_depth_;
  Json root_;
  std::vector<Json*> stack_;  // the containers that are open
  Json* slot_ = nullptr;      // of the key read last
};

// Follows a path of keys and remembers the position of the last one found.
class Finder : public Handler {
 public:
  Finder(std::string_view text, std::string_view where,
         std::initializer_list<std::string_view> path)
      : Handler(text, where), path_(path) {}

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(int64_t) { return true; }
  bool number_unsigned(uint64_t) { return true; }
  bool number_float(double, const std::string&) { return true; }
  bool string(std::string&) { return true; }
  bool binary(json::binary_t&) { return false; }
  bool start_object(size_t) { return ++depth_, true; }
  bool start_array(size_t) { return ++depth_, true; }
  bool end_object() { return --depth_, true; }
  bool end_array() { return --depth_, true; }

  bool key(const std::string& name) {
    if (depth_ != found_ + 1 || path_[found_] != name) return true;
    where_found_ = string_start();
    return ++found_ < path_.size();
  }

  size_t result() const { return where_found_; }

 private:
  std::vector<std::string_view> path_;
  size_t depth_ = 0;
  size_t found_ = 0;  // number of keys of the path found
  size_t where_found_ = 0;
};

template <class H>
void run(H& handler, std::string_view text) {
  json::sax_parse(Cursor(handler.cursor()), Cursor::at_end(text.data() + text.size()), &handler);
}

}  // namespace

json parse_json(std::string_view text, std::string_view where, int max_depth, TextStart start) {
  Builder<json> builder(text, where, max_depth, start);
  run(builder, text);
  return builder.take();
}

ordered_json parse_ordered_json(std::string_view text, std::string_view where) {
  parse_json(text, where);
  Builder<ordered_json> builder(text, where, kDeepestJson, {});
  run(builder, text);
  return builder.take();
}

json json_or_null(std::string_view text) {
  try {
    return parse_json(text, "");
  } catch (const Error&) {
    return nullptr;
  }
}

std::string json_location(std::string_view text, std::string_view where,
                          std::initializer_list<std::string_view> path) {
  Finder finder(text, where, path);
  if (path.size() > 0) run(finder, text);
  return finder.location(finder.result());
}

std::string text_location(std::string_view text, std::string_view where, size_t offset,
                          TextStart start) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const std::string_view row = before.substr(newline == std::string_view::npos ? 0 : newline + 1);
  const auto column =
      (lines == 0 ? start.column : 1) + std::count_if(row.begin(), row.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xc0) != 0x80;  // never inside a character
      });
  return fmt::format("{}:{}:{}", where, start.line + lines, column);
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kLongest = 120;
  const json cut = std::string(text.substr(0, kLongest));
  std::string s = cut.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > kLongest ? s + "…" : s;
}

std::string shown(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  return value.dump();
}

}  // namespace capstan
