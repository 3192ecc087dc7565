#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/records/record.h"

namespace capstan {

// A record's text with its position in the file, for errors.
class RecordSource {
 public:
  RecordSource(std::string_view text, std::string_view where, int64_t line, int64_t column)
      : text_(text), where_(where), line_(line), column_(column) {}

  template <class... Args>
  [[noreturn]] void fail_here(fmt::format_string<Args...> format, Args&&... args) const {
    // The column distinguishes several records on one line.
    const std::string place = column_ > 1 ? fmt::format(":{}", column_) : "";
    fail(Fault::file, "{}:{}{}: {}", where_, line_, place,
         fmt::format(format, std::forward<Args>(args)...));
  }

  // Throws Fault::file for invalid UTF-8.
  void check_utf8() const;
  // Parses the text as JSON. Throws Fault::file as parse_json does, and for invalid UTF-8.
  nlohmann::json parse() const;

 private:
  std::string_view text_, where_;
  int64_t line_, column_;
};

// The names of an object's fields, formatted for messages.
std::string fields_in(const nlohmann::json& object);

// Moves the text of a field out of the object. An optional one may be missing or null.
std::string take_text(nlohmann::json& object, const std::string& field, bool optional,
                      const RecordSource& source);

// The record in an object; its fields decide the form.
Record take_record(nlohmann::json& object, const RecordFields& fields, const RecordSource& source);

// The messages of a list in any of the forms; they need not alternate yet. `field` is the name of
// the list.
std::vector<Message> take_messages(nlohmann::json& list, const std::string& field,
                                   const RecordSource& source);
// Throws if a conversation includes tool definitions, which no known template renders.
void refuse_tools(const nlohmann::json& record, const RecordSource& source);
// Throws unless the messages are system?, then user and assistant in turn, ending with assistant.
void check_turns(const std::vector<Message>& messages, const RecordSource& source);

// Parses one record. Unless the user named fields, it is
//   {"instruction": "…", "input": "…", "output": "…"}    input may be missing, null or empty,
// with the alternative names instruction/response (context is the input), prompt/completion,
// prompt/response, question/answer (with context), question/response or query/response; a
// conversation under "messages" or "conversations" with elements
//   {"role": "system|user|assistant", "content": "…"},
//   {"from": "system|human|gpt", "value": "…"}  (either form accepts the other's roles), or
//   "…"                                         strings: user and assistant in turn;
// or {"text": "…"}. A content may be in parts, [{"type": "text", "text": "…"}]. "system" or
// "system_prompt" next to the first two is a system message. Ignores other fields.
//
// Throws Fault::file as "where:line:column: …": not JSON, not UTF-8, a field missing or not text,
// roles that are unknown or out of turn, no answer at the end, parts other than text, tool calls,
// preference pairs (chosen and rejected). `line` and `column` (from 1) are the position of `text`
// in the file named `where`.
Record parse_record(std::string_view text, std::string_view where, int64_t line, int64_t column,
                    const RecordFields& fields = {});

}  // namespace capstan
