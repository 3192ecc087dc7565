#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_reader.h"

namespace capstan {

enum class Role { system, user, assistant };
std::string_view name_of(Role role);

struct Message {
  Role role = Role::user;
  std::string content;

  bool operator==(const Message&) const = default;
};

// One record, in one of three forms.
struct Record {
  // Alpaca form. Used while there are neither messages nor text.
  std::string instruction = {}, input = {}, output = {};
  // Chat form: system?, then user and assistant in turn, ending with assistant. Contents as they
  // are in the file.
  std::vector<Message> messages = {};
  // A document, learned as it is.
  std::string text = {};
  // Beside the Alpaca form: what the model is told beforehand.
  std::string system = {};

  bool is_chat() const { return !messages.empty(); }
  bool is_document() const { return !text.empty(); }
  bool operator==(const Record&) const = default;
};

// What the fields of a record are called in a file. An empty name: there is no such field.
struct RecordFields {
  std::string instruction = "instruction", input = "input", output = "output";
  // Names that the user gave to the fields of other forms; empty: the usual ones.
  std::string system = {}, messages = {}, text = {};
  // The user gave names of the Alpaca form: records have it, under these names. (Of the forms whose
  // names were given a record has one; without any, the fields that are there tell.)
  bool named = false;
};

// How records are read, for the keys of cached tokens: another number where the same file gives
// other records.
inline constexpr int kRecordReader = 2;

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

// Where a record is in a text: bytes, and line and column from 1.
struct RecordPlace {
  size_t begin = 0, end = 0;
  int64_t line = 1, column = 1;
};

// The records of a text that is a JSON array of them, an object with that array under "data", or
// has a record on each line (JSONL, blank lines allowed). Which it is shows in the first
// characters. Records are not parsed, but lists must be whole. Throws Fault::file: no record, none
// of these forms, a list that does not end.
std::vector<RecordPlace> find_records(std::string_view text, std::string_view where,
                                      const RecordFields& fields = {});

class RecordSource;  // a record's text and place

// A file of records, in memory: JSON as for find_records, or a table by its name, .csv or .tsv,
// whose first row has the names of the columns. A record is parsed when it is asked for. Const
// methods are safe from several threads.
class RecordFile {
 public:
  // Throws Fault::file: cannot be read, of another kind (Parquet, Arrow, packed, UTF-16 …), and as
  // find_records and find_rows.
  explicit RecordFile(const std::filesystem::path& path, RecordFields fields = {});

  int64_t size() const { return static_cast<int64_t>(places_.size()); }
  // Throws as parse_record.
  Record record(int64_t index) const;
  // The field "text" (or what names it) of a record, whatever else it has. Throws Fault::file.
  std::string document(int64_t index) const;
  int64_t line_of(int64_t index) const { return places_[static_cast<size_t>(index)].line; }
  const std::string& name() const { return name_; }

 private:
  RecordSource source(int64_t index) const;
  nlohmann::json value(int64_t index, const RecordSource& source) const;

  std::string name_;
  RecordFields fields_;
  FileBytes file_;
  std::string_view text_;
  std::vector<RecordPlace> places_;
  std::optional<char> delimiter_;     // of a table
  std::vector<std::string> columns_;  // likewise
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
