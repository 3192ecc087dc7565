#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/records/record.h"

namespace capstan {

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

}  // namespace capstan
