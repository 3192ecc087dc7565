#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

// Parses untrusted JSON: every failure is an Error that points into the text. All JSON that the
// program reads goes through here, so that no file and no server's answer can exhaust the stack or
// throw an exception of the library (tools/check_layers.py).
namespace capstan {

// Deeper nesting is refused: values are copied, written and destroyed by recursion.
inline constexpr int kDeepestJson = 64;

// The position of the text in the file named in messages, if it is a part of one.
struct TextStart {
  int64_t line = 1, column = 1;
};

// The value of a whole JSON text. Throws Fault::file as "where:line:column: …" for anything that is
// not strict JSON in UTF-8, for duplicate keys, for numbers beyond a double, and for nesting deeper
// than max_depth, at most kDeepestJson. Integers outside int64 and uint64 become doubles.
nlohmann::json parse_json(std::string_view text, std::string_view where,
                          int max_depth = kDeepestJson, TextStart start = {});

// The same, with the keys of objects in the order of the text.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view where);

// The same; null for what parse_json refuses. For texts that are ignored unless they are objects.
nlohmann::json json_or_null(std::string_view text);

// "where:line:column" of the key at the end of a path of keys, in a text that parse_json accepts.
// If the path ends early, of the last key that exists; if there is none, of the start. Reads the
// text again: for error messages.
std::string json_location(std::string_view text, std::string_view where,
                          std::initializer_list<std::string_view> path);

// "where:line:column" of a byte of the text. Lines and columns count from 1; columns count
// characters, not bytes.
std::string text_location(std::string_view text, std::string_view where, size_t offset,
                          TextStart start = {});

// A string formatted for messages: in quotes, escaped to plain ASCII, cut if long.
std::string in_quotes(std::string_view text);
// A value formatted for messages: scalars as written, "a list", "an object".
std::string shown(const nlohmann::json& value);

}  // namespace capstan
