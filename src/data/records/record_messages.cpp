#include <algorithm>
#include <array>

#include "base/json_text.h"
#include "data/records/record_source.h"

namespace capstan {
namespace {

using nlohmann::json;

struct RoleName {
  std::string_view name;
  Role role;
};
constexpr std::array kRoleNames = {
    RoleName{"system", Role::system},       RoleName{"developer", Role::system},
    RoleName{"user", Role::user},           RoleName{"human", Role::user},
    RoleName{"assistant", Role::assistant}, RoleName{"gpt", Role::assistant},
    RoleName{"model", Role::assistant},     RoleName{"chatgpt", Role::assistant},
};
// Roles for tool calls, in OpenAI's, Llama's and ShareGPT's names.
constexpr std::array<std::string_view, 8> kToolRoles = {
    "tool",      "function",      "ipython",     "function_call",
    "tool_call", "tool_response", "observation", "function_response"};

constexpr const char* kNoTools =
    "No known chat template renders tool calls; remove such records, or write the calls into the "
    "text yourself";

bool is_nothing(const json& value) {
  return value.is_null() || value.empty() || value == "" || value == "[]" || value == "{}";
}

// A list of parts, all of which must be text: [{"type": "text", "text": "…"}].
std::string take_parts(json& parts, size_t turn, const RecordSource& source) {
  std::string text;
  for (json& part : parts) {
    const auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || type == part.end() || !type->is_string())
      source.fail_here(
          "message {}: expected parts such as {{\"type\": \"text\", \"text\": …}}, found {}", turn,
          shown(part));
    if (*type != "text")
      source.fail_here("message {}: has a part of type {}: only text is supported", turn,
                       shown(*type));
    text += take_text(part, "text", false, source);
  }
  return text;
}

void refuse_tools(const json& message, const std::string& role, size_t turn,
                  const RecordSource& source) {
  if (std::find(kToolRoles.begin(), kToolRoles.end(), role) != kToolRoles.end())
    source.fail_here("message {}: the role {} is for tool calls. {}", turn, in_quotes(role),
                     kNoTools);
  for (const char* field : {"tool_calls", "function_call"})
    if (const auto calls = message.find(field); calls != message.end() && !is_nothing(*calls))
      source.fail_here("message {}: calls a tool ({}). {}", turn, in_quotes(field), kNoTools);
}

Role role_of(const std::string& name, size_t turn, const RecordSource& source) {
  for (const RoleName& known : kRoleNames)
    if (known.name == name) return known.role;
  source.fail_here("message {}: expected the role system, user or assistant, found {}", turn,
                   in_quotes(name));
}

Message take_message(json& value, size_t index, const RecordSource& source) {
  const size_t turn = index + 1;
  if (value.is_string())
    return {index % 2 == 0 ? Role::user : Role::assistant,
            std::move(value.get_ref<std::string&>())};
  if (!value.is_object())
    source.fail_here("message {}: expected an object with role and content, found {}", turn,
                     shown(value));
  const bool share_gpt = value.contains("from");
  const std::string role = take_text(value, share_gpt ? "from" : "role", false, source);
  refuse_tools(value, role, turn, source);
  const char* const field = share_gpt ? "value" : "content";
  const auto content = value.find(field);
  return {role_of(role, turn, source), content != value.end() && content->is_array()
                                           ? take_parts(*content, turn, source)
                                           : take_text(value, field, false, source)};
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

void refuse_tools(const json& record, const RecordSource& source) {
  for (const char* field : {"tools", "functions"})
    if (const auto tools = record.find(field); tools != record.end() && !is_nothing(*tools))
      source.fail_here("has {} for the model to call. {}", in_quotes(field), kNoTools);
}

std::vector<Message> take_messages(json& list, const std::string& field,
                                   const RecordSource& source) {
  if (!list.is_array() || list.empty())
    source.fail_here("{} must be a list of messages, found {}", in_quotes(field),
                     list.is_array() ? "an empty list" : shown(list));
  std::vector<Message> messages;
  for (json& value : list) messages.push_back(take_message(value, messages.size(), source));
  return messages;
}

void check_turns(const std::vector<Message>& messages, const RecordSource& source) {
  const size_t first = messages.front().role == Role::system ? 1 : 0;
  for (size_t i = first; i < messages.size(); ++i) {
    const Role expected = (i - first) % 2 == 0 ? Role::user : Role::assistant;
    if (messages[i].role != expected)
      source.fail_here(
          "message {} is from {}, expected {}: a conversation is an optional system message, then "
          "user and assistant in turn",
          i + 1, name_of(messages[i].role), name_of(expected));
  }
  if (messages.back().role != Role::assistant)
    source.fail_here("the conversation ends with {}, expected assistant: there is nothing to learn",
                     name_of(messages.back().role));
}

}  // namespace capstan
