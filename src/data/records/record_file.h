#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_reader.h"
#include "data/records/find_records.h"
#include "data/records/record.h"

namespace capstan {

class RecordSource;

// A file of records in memory: JSON as for find_records, or a table (.csv or .tsv) whose first row
// has the column names. Parses a record on request. Const methods are thread safe.
class RecordFile {
 public:
  // Throws Fault::file: unreadable, of another kind (Parquet, Arrow, compressed, UTF-16 …), and as
  // find_records and find_rows do.
  explicit RecordFile(const std::filesystem::path& path, RecordFields fields = {});

  int64_t size() const { return static_cast<int64_t>(places_.size()); }
  // Throws as parse_record does.
  Record record(int64_t index) const;
  // The field "text" (or its configured name) of a record; ignores the other fields. Throws
  // Fault::file.
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
  std::optional<char> delimiter_;     // for a table
  std::vector<std::string> columns_;  // likewise
};

// Collects the errors of many records into one. Not thread safe.
class RecordErrors {
 public:
  // "file:line:column: what is wrong". Records with the same problem count as one message.
  void add(std::string message);
  bool empty() const { return count_ == 0; }
  // Throws Fault::file with the first ten problems, one per line, each with the lines of some
  // records that have it, and the number of the others.
  void throw_if_any() const;

 private:
  static constexpr size_t kMostShown = 10;
  struct Problem {
    std::string first;  // the message of the first record
    int64_t records = 1;
    std::string places = {};  // lines of the next records, as text
  };
  std::vector<Problem> problems_;
  int64_t count_ = 0;
};

}  // namespace capstan
