#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/records/record.h"

namespace capstan {

// The position of a record in a text: bytes, and line and column from 1.
struct RecordPlace {
  size_t begin = 0, end = 0;
  int64_t line = 1, column = 1;
};

// Finds the records of a text that is a JSON array, an object with such an array under "data", or
// one record per line (JSONL, blank lines allowed). The first characters decide which. Records are
// not parsed, but lists must be complete. Throws Fault::file: no record, another format, a list
// that does not end.
std::vector<RecordPlace> find_records(std::string_view text, std::string_view where,
                                      const RecordFields& fields = {});

}  // namespace capstan
