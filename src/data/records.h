#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace capstan {

enum class Role { system, user, assistant };
std::string_view name_of(Role role);

struct Message {
  Role role = Role::user;
  std::string content;

  bool operator==(const Message&) const = default;
};

// One record of instruction data, in one of two forms.
struct Record {
  // Alpaca form. Used while there are no messages.
  std::string instruction, input, output;
  // Chat form: system?, then user and assistant in turn, ending with assistant. Contents as they
  // are in the file.
  std::vector<Message> messages;

  bool is_chat() const { return !messages.empty(); }
  bool operator==(const Record&) const = default;
};

// What the fields of the Alpaca form are called in a file. An empty name: there is no such field.
struct RecordFields {
  std::string instruction = "instruction", input = "input", output = "output";
};

// The value of one record. Either
//   {"instruction": "…", "input": "…", "output": "…"}    input may be missing, null or empty
// or a conversation under "messages" or "conversations", whose elements are
//   {"role": "system|user|assistant", "content": "…"},
//   {"from": "system|human|gpt", "value": "…"}  (the other names of roles are taken in both), or
//   "…"                                         strings: user and assistant in turn.
// Other fields are passed over. Throws Fault::file as "where:line:column: …": not JSON, not UTF-8,
// a field missing or not text, roles that are unknown or out of turn, no answer at the end. `line`
// and `column` (from 1) are where `text` begins in the file called `where`.
Record parse_record(std::string_view text, std::string_view where, int64_t line, int64_t column,
                    const RecordFields& fields = {});

// Where a record is in a text: bytes, and line and column from 1.
struct RecordPlace {
  size_t begin = 0, end = 0;
  int64_t line = 1, column = 1;
};

// The records of a text that is a JSON array of them, or has one on each line (JSONL, blank lines
// allowed). Which it is shows in the first character. Records are not parsed, but lists must be
// whole. Throws Fault::file: no record, neither of the two forms, a list that does not end.
std::vector<RecordPlace> find_records(std::string_view text, std::string_view where,
                                      const RecordFields& fields = {});

// A file of records, mapped. Only the records' places are kept in memory; a record is parsed when
// it is asked for. Const methods are safe from several threads.
class RecordFile {
 public:
  // Throws Fault::file: cannot be read, and as find_records.
  explicit RecordFile(const std::filesystem::path& path, RecordFields fields = {});

  int64_t size() const { return static_cast<int64_t>(places_.size()); }
  // Throws as parse_record.
  Record record(int64_t index) const;
  int64_t line_of(int64_t index) const { return places_[static_cast<size_t>(index)].line; }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  RecordFields fields_;
  MappedFile file_;
  std::string_view text_;
  std::vector<RecordPlace> places_;
};

// All records of a file. All bad records are reported in one error: the first ten, then their
// number.
std::vector<Record> read_records(const std::filesystem::path& path,
                                 const RecordFields& fields = {});

// Collects what is wrong with many records for one error. Not thread safe.
class RecordErrors {
 public:
  void add(std::string message);
  bool empty() const { return count_ == 0; }
  // Throws Fault::file with the first ten messages, one a line, and the number of the others.
  void throw_if_any() const;

 private:
  std::vector<std::string> first_;
  int64_t count_ = 0;
};

}  // namespace capstan
