#include "data/records/record_source.h"

#include <array>

#include "base/json_text.h"
#include "base/utf8.h"

namespace capstan {
namespace {

using nlohmann::json;

// Alternative field names for questions and answers, in order of preference. A third name is the
// input.
struct Pair {
  const char *question, *answer, *input = "";
};
constexpr std::array kPairs = {
    Pair{"instruction", "response", "context"},
    Pair{"prompt", "completion"},
    Pair{"prompt", "response"},
    Pair{"question", "answer", "context"},
    Pair{"question", "response"},
    Pair{"query", "response"},
};

class Taker {
 public:
  Taker(json& object, const RecordFields& fields, const RecordSource& source)
      : object_(object), fields_(fields), source_(source) {}

  Record take() {
    // A record with both is an instruction, as in LitGPT, which ignores other fields.
    const RecordFields& f = fields_;
    if (f.named || (usual() && has(f.instruction) && has(f.output)))
      return instruction(f.instruction, f.input, f.output);
    if (usual() && has("chosen") && has("rejected")) refuse_preferences();
    for (const std::string& field : chat_fields())
      if (has(field)) return chat(field);
    if (usual())
      for (const Pair& p : kPairs)
        if (has(p.question) && has(p.answer)) {
          refuse_unwanted();
          return instruction(p.question, p.input, p.answer);
        }
    const std::string text = f.text.empty() ? "text" : f.text;
    if (has(text) && (usual() || !f.text.empty())) return document(text);
    refuse();
  }

 private:
  // Without named columns, the fields of a record decide its form.
  bool usual() const { return !fields_.named && fields_.messages.empty() && fields_.text.empty(); }
  bool has(const std::string& field) const { return !field.empty() && object_.contains(field); }
  bool has_messages(const std::string& field) const {
    if (!has(field)) return false;
    const json& list = object_[field];
    return list.is_array() && !list.empty() && list[0].is_object();
  }

  std::vector<std::string> chat_fields() const {
    if (!fields_.messages.empty()) return {fields_.messages};
    if (usual()) return {"messages", "conversations"};
    return {};
  }

  // The system message, in a field of its own.
  std::string system() {
    if (!fields_.system.empty()) return take_text(object_, fields_.system, true, source_);
    for (const char* field : {"system", "system_prompt"})
      if (const auto found = object_.find(field); found != object_.end() && found->is_string())
        return take_text(object_, field, true, source_);
    return {};
  }

  Record conversation(std::vector<Message> messages) {
    refuse_tools(object_, source_);
    if (std::string text = system(); !text.empty() && messages.front().role != Role::system)
      messages.insert(messages.begin(), {Role::system, std::move(text)});
    check_turns(messages, source_);
    return {.messages = std::move(messages)};
  }

  Record chat(const std::string& field) {
    return conversation(take_messages(object_[field], field, source_));
  }

  // A question and its answer; or the two parts of a conversation, if one of them is a list.
  Record instruction(const std::string& question, const std::string& input,
                     const std::string& answer) {
    if (has_messages(question) || has_messages(answer)) return parts(question, answer);
    Record record;
    record.instruction = take_text(object_, question, false, source_);
    if (!input.empty()) record.input = take_text(object_, input, true, source_);
    record.output = take_text(object_, answer, false, source_);
    record.system = system();
    if (record.instruction.empty() && record.input.empty() && record.output.empty())
      source_.fail_here("every field is empty. Remove the record");
    return record;
  }

  Record parts(const std::string& question, const std::string& answer) {
    std::vector<Message> messages;
    const auto add = [&](const std::string& field, Role role) {
      if (!has_messages(field)) {
        messages.push_back({role, take_text(object_, field, false, source_)});
        return;
      }
      for (Message& m : take_messages(object_[field], field, source_))
        messages.push_back(std::move(m));
    };
    add(question, Role::user);
    add(answer, Role::assistant);
    return conversation(std::move(messages));
  }

  Record document(const std::string& field) {
    Record record{.text = take_text(object_, field, false, source_)};
    if (record.text.empty()) source_.fail_here("{} is empty. Remove the record", in_quotes(field));
    return record;
  }

  // Preference pairs: learning from both needs another training method.
  [[noreturn]] void refuse_preferences() const {
    const bool is_list = has_messages("chosen");
    const bool is_answer = is_list && object_["chosen"][0].value("role", json()) == "assistant";
    std::string keys = is_list ? "--data.columns.messages chosen" : "--data.columns.text chosen";
    for (const char* question : {"prompt", "question", "instruction", "query"})
      if (has(question) && (!is_list || is_answer)) {
        keys = fmt::format("--data.columns.instruction {} --data.columns.output chosen", question);
        break;
      }
    source_.fail_here(
        "a preference pair (chosen and rejected), for DPO; Capstan trains on single answers. To "
        "train on the chosen ones, use {}",
        keys);
  }

  // An answer marked as bad, as in KTO data, must not be learned.
  void refuse_unwanted() const {
    if (has("label") && object_["label"] == false)
      source_.fail_here(
          "\"label\" is false: an unwanted answer, for KTO; Capstan trains on every answer. Remove "
          "such records");
  }

  // No form matches. If half of a form is there, report the missing part.
  [[noreturn]] void refuse() {
    const RecordFields& f = fields_;
    std::string missing = !f.text.empty() ? f.text : !f.messages.empty() ? f.messages : "";
    if (missing.empty() && has(f.instruction)) missing = f.output;
    for (const Pair& p : kPairs)
      if (missing.empty() && has(p.question)) missing = p.answer;
    const bool half = !missing.empty();
    if (!half) missing = f.instruction;
    source_.fail_here("expected the field {}, found {}{}", in_quotes(missing), fields_in(object_),
                      half || object_.empty()
                          ? ""
                          : ". Name the columns: --data.columns.instruction COLUMN "
                            "--data.columns.output COLUMN");
  }

  json& object_;
  const RecordFields& fields_;
  const RecordSource& source_;
};

}  // namespace

void RecordSource::check_utf8() const {
  const TextStart start = {line_, column_};
  if (const auto bad = invalid_utf8(text_))
    fail(Fault::file, "{}: not UTF-8: byte 0x{:02x}. Convert the file (iconv -t UTF-8)",
         text_location(text_, where_, *bad, start), static_cast<unsigned char>(text_[*bad]));
}

json RecordSource::parse() const {
  constexpr int kDeepest = 64;
  check_utf8();
  return parse_json(text_, where_, kDeepest, {line_, column_});
}

std::string fields_in(const json& object) {
  std::string keys;
  for (const auto& [key, value] : object.items()) keys += (keys.empty() ? "" : ", ") + key;
  return keys.empty() ? "no field" : in_quotes(keys);
}

std::string take_text(json& object, const std::string& field, bool optional,
                      const RecordSource& source) {
  const auto found = object.find(field);
  if (found == object.end() || (optional && found->is_null())) {
    if (optional) return {};
    source.fail_here("expected the field {}, found {}", in_quotes(field), fields_in(object));
  }
  if (!found->is_string())
    source.fail_here("{} must be text, found {}", in_quotes(field), shown(*found));
  return std::move(found->get_ref<std::string&>());
}

Record take_record(json& object, const RecordFields& fields, const RecordSource& source) {
  if (!object.is_object())
    source.fail_here(
        "expected a record, {{\"instruction\": …, \"output\": …}} or "
        "{{\"messages\": […]}}, found {}",
        shown(object));
  return Taker(object, fields, source).take();
}

Record parse_record(std::string_view text, std::string_view where, int64_t line, int64_t column,
                    const RecordFields& fields) {
  const RecordSource source(text, where, line, column);
  json value = source.parse();
  return take_record(value, fields, source);
}

}  // namespace capstan
