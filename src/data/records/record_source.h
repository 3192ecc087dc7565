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

// A record's text with its place in the file: all errors name it.
class RecordSource {
 public:
  RecordSource(std::string_view text, std::string_view where, int64_t line, int64_t column)
      : text_(text), where_(where), line_(line), column_(column) {}

  template <class... Args>
  [[noreturn]] void fail_here(fmt::format_string<Args...> format, Args&&... args) const {
    // Of several records on a line the column tells which.
    const std::string place = column_ > 1 ? fmt::format(":{}", column_) : "";
    fail(Fault::file, "{}:{}{}: {}", where_, line_, place,
         fmt::format(format, std::forward<Args>(args)...));
  }

  // Throws Fault::file for bytes that are not UTF-8.
  void check_utf8() const;
  // The text as JSON. Throws Fault::file as parse_json, and for what is not UTF-8.
  nlohmann::json parse() const;

 private:
  std::string_view text_, where_;
  int64_t line_, column_;
};

// The names of an object's fields as messages show them.
std::string fields_in(const nlohmann::json& object);

// The text of a field, which leaves the object. An optional one may be missing or null.
std::string take_text(nlohmann::json& object, const std::string& field, bool optional,
                      const RecordSource& source);

// The record that an object is, in the form that its fields show.
Record take_record(nlohmann::json& object, const RecordFields& fields, const RecordSource& source);

// The messages of a list, in whichever form they have; they need not take turns yet. `field` is
// where they stand.
std::vector<Message> take_messages(nlohmann::json& list, const std::string& field,
                                   const RecordSource& source);
// Throws where a conversation comes with tools to call, which no template here renders.
void refuse_tools(const nlohmann::json& record, const RecordSource& source);
// Throws unless these are system?, then user and assistant in turn, ending with assistant.
void check_turns(const std::vector<Message>& messages, const RecordSource& source);

// The value of one record. Without names given it is
//   {"instruction": "…", "input": "…", "output": "…"}    input may be missing, null or empty,
// the same as instruction/response (with context for the input), prompt/completion,
// prompt/response, question/answer (with context), question/response or query/response;
// a conversation under "messages" or "conversations", whose elements are
//   {"role": "system|user|assistant", "content": "…"},
//   {"from": "system|human|gpt", "value": "…"}  (the other names of roles are taken in both), or
//   "…"                                         strings: user and assistant in turn;
// or {"text": "…"}. A content may be in parts, [{"type": "text", "text": "…"}]. "system" or
// "system_prompt" beside the first two is a system message. Other fields are passed over.
//
// Throws Fault::file as "where:line:column: …": not JSON, not UTF-8, a field missing or not text,
// roles that are unknown or out of turn, no answer at the end, parts that are no text, the use of
// tools, pairs of preferences (chosen and rejected). `line` and `column` (from 1) are where `text`
// begins in the file called `where`.
Record parse_record(std::string_view text, std::string_view where, int64_t line, int64_t column,
                    const RecordFields& fields = {});

}  // namespace capstan
