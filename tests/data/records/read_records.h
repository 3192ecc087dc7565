#pragma once

#include <filesystem>
#include <vector>

#include "base/error.h"
#include "data/records/record_file.h"

namespace capstan {

// All records of a file. All bad records are reported in one error: the first ten, then their
// number.
inline std::vector<Record> read_records(const std::filesystem::path& path,
                                        const RecordFields& fields = {}) {
  const RecordFile file(path, fields);
  std::vector<Record> records;
  RecordErrors errors;
  for (int64_t i = 0; i < file.size(); ++i) {
    try {
      records.push_back(file.record(i));
    } catch (const Error& e) {
      errors.add(e.what());
    }
  }
  errors.throw_if_any();
  return records;
}

}  // namespace capstan
