#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace capstan {

// A part of a tokenizer.json that knows its position: its accessors throw Fault::file, naming the
// place, if a value is missing or has the wrong type. Refers to the parsed text, which must outlive
// it.
class Spec {
 public:
  // The whole file. `where` is its name in messages.
  Spec(const nlohmann::json& value, std::string_view text, std::string_view where);

  const nlohmann::json& value() const { return *value_; }
  bool is_object() const { return value_->is_object(); }

  // Whether the key exists and is not null.
  bool has(const char* key) const;
  // The value of a key, which must exist.
  Spec at(const char* key) const;
  // The elements of a list.
  std::vector<Spec> elements() const;
  // The value of "type".
  std::string type() const { return text("type"); }

  std::string text(const char* key) const;
  bool flag(const char* key, bool if_missing) const;
  // An integer from 0 to `largest`.
  int64_t number(const char* key, int64_t largest) const;

  // "file:line:column" of the nearest key.
  std::string location() const;
  // The part under a key, if it exists.
  std::string location(std::string_view key) const;

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(Fault::file, "{}: {}{}", location(), element_,
         fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const nlohmann::json* value_;
  std::string_view text_, where_;
  std::vector<std::string> path_;  // the keys up to the first list
  bool in_list_ = false;
  std::string element_;  // "[3] " within a list, for messages
};

}  // namespace capstan
