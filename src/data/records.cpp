#include "data/records.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/utf8.h"

namespace capstan {
namespace {

using nlohmann::json;

struct RoleName {
  std::string_view name;
  Role role;
};
constexpr std::array kRoleNames = {
    RoleName{"system", Role::system}, RoleName{"user", Role::user},
    RoleName{"human", Role::user},    RoleName{"assistant", Role::assistant},
    RoleName{"gpt", Role::assistant},
};

// A record's text with its place in the file: all errors name it.
class Source {
 public:
  Source(std::string_view text, std::string_view where, int64_t line, int64_t column)
      : text_(text), where_(where), line_(line), column_(column) {}

  template <class... Args>
  [[noreturn]] void fail_here(fmt::format_string<Args...> format, Args&&... args) const {
    // Of several records on a line the column tells which.
    const std::string place = column_ > 1 ? fmt::format(":{}", column_) : "";
    fail(Fault::file, "{}:{}{}: {}", where_, line_, place,
         fmt::format(format, std::forward<Args>(args)...));
  }

  json parse() const {
    const TextStart start = {line_, column_};
    if (const auto bad = invalid_utf8(text_))
      fail(Fault::file, "{}: not UTF-8: byte 0x{:02x}. Convert the file (iconv -t UTF-8)",
           text_location(text_, where_, *bad, start), static_cast<unsigned char>(text_[*bad]));
    return parse_json(text_, where_, kDeepest, start);
  }

 private:
  static constexpr int kDeepest = 64;

  std::string_view text_, where_;
  int64_t line_, column_;
};

std::string take_text(json& object, const std::string& field, bool optional, const Source& source) {
  const auto found = object.find(field);
  if (found == object.end() || (optional && found->is_null())) {
    if (optional) return {};
    std::string keys;
    for (const auto& [key, value] : object.items()) keys += (keys.empty() ? "" : ", ") + key;
    source.fail_here("expected the field {}, found {}", in_quotes(field),
                     keys.empty() ? "no field" : in_quotes(keys));
  }
  if (!found->is_string())
    source.fail_here("{} must be text, found {}", in_quotes(field), shown(*found));
  return std::move(found->get_ref<std::string&>());
}

Role role_of(const std::string& name, size_t turn, const Source& source) {
  for (const RoleName& known : kRoleNames)
    if (known.name == name) return known.role;
  source.fail_here("message {}: expected the role system, user or assistant, found {}", turn,
                   in_quotes(name));
}

Message take_message(json& value, size_t index, const Source& source) {
  if (value.is_string())
    return {index % 2 == 0 ? Role::user : Role::assistant,
            std::move(value.get_ref<std::string&>())};
  if (!value.is_object())
    source.fail_here("message {}: expected an object with role and content, found {}", index + 1,
                     shown(value));
  const bool share_gpt = value.contains("from");
  const std::string role = take_text(value, share_gpt ? "from" : "role", false, source);
  return {role_of(role, index + 1, source),
          take_text(value, share_gpt ? "value" : "content", false, source)};
}

// system?, then user and assistant in turn, ending with assistant.
void check_turns(const std::vector<Message>& messages, const Source& source) {
  const size_t first = messages.front().role == Role::system ? 1 : 0;
  for (size_t i = first; i < messages.size(); ++i) {
    const Role expected = (i - first) % 2 == 0 ? Role::user : Role::assistant;
    if (messages[i].role != expected)
      source.fail_here(
          "message {} is from {}, expected {}: a conversation is system (or not), then "
          "user and assistant in turn",
          i + 1, name_of(messages[i].role), name_of(expected));
  }
  if (messages.back().role != Role::assistant)
    source.fail_here("the conversation ends with {}, expected assistant: there is nothing to learn",
                     name_of(messages.back().role));
}

std::vector<Message> take_messages(json& list, const std::string& field, const Source& source) {
  if (!list.is_array() || list.empty())
    source.fail_here("{} must be a list of messages, found {}", in_quotes(field),
                     list.is_array() ? "an empty list" : shown(list));
  std::vector<Message> messages;
  for (json& value : list) messages.push_back(take_message(value, messages.size(), source));
  check_turns(messages, source);
  return messages;
}

}  // namespace

std::string_view name_of(Role role) {
  switch (role) {
    case Role::system: return "system";
    case Role::user: return "user";
    case Role::assistant: return "assistant";
  }
  return "?";
}

Record parse_record(std::string_view text, std::string_view where, int64_t line, int64_t column,
                    const RecordFields& fields) {
  const Source source(text, where, line, column);
  json value = source.parse();
  if (!value.is_object())
    source.fail_here(
        "expected a record, {{\"instruction\": …, \"output\": …}} or "
        "{{\"messages\": […]}}, found {}",
        shown(value));
  Record record;
  // What has both is an instruction, as for LitGPT, which passes other fields over.
  const bool is_instruction = value.contains(fields.instruction) && value.contains(fields.output);
  for (const char* field : {"messages", "conversations"}) {
    if (is_instruction) break;
    if (const auto list = value.find(field); list != value.end()) {
      record.messages = take_messages(*list, field, source);
      return record;
    }
  }
  record.instruction = take_text(value, fields.instruction, false, source);
  if (!fields.input.empty()) record.input = take_text(value, fields.input, true, source);
  record.output = take_text(value, fields.output, false, source);
  if (record.instruction.empty() && record.input.empty() && record.output.empty())
    source.fail_here("every field is empty. Remove the record");
  return record;
}

}  // namespace capstan
