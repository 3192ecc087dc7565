#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

// JSON that strangers wrote: every failure is an Error that points into the text.
namespace capstan {

// Where a text begins in the file that messages name, if it is a part of one.
struct TextStart {
  int64_t line = 1, column = 1;
};

// The value of a whole JSON text. Throws Fault::file as "where:line:column: …" for anything that is
// not strict JSON in UTF-8, for a key that an object has twice, for a number that no double holds,
// and for nesting deeper than max_depth. Integers outside int64 and uint64 become doubles.
nlohmann::json parse_json(std::string_view text, std::string_view where, int max_depth = 64,
                          TextStart start = {});

// "where:line:column" of the key that a path of keys leads to, in a text that parse_json accepts.
// Where the path ends early, the last key that is there; without any, the start. Reads the text
// again: for error messages.
std::string json_location(std::string_view text, std::string_view where,
                          std::initializer_list<std::string_view> path);

// "where:line:column" of a byte of the text. Lines and columns count from 1; a column is a
// character, not a byte.
std::string text_location(std::string_view text, std::string_view where, size_t offset,
                          TextStart start = {});

// A string as messages show it: in quotes, escaped to plain ASCII, cut when long.
std::string in_quotes(std::string_view text);
// A value as messages show it: scalars as they are written, "a list", "an object".
std::string shown(const nlohmann::json& value);

}  // namespace capstan
