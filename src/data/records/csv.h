#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/records/find_records.h"

// Tables as text, RFC 4180: one row per line, cells separated by delimiters. A cell in double
// quotes may contain delimiters, line breaks and doubled quotes. Lines end with \n or \r\n; empty
// lines are skipped.
namespace capstan {

// All rows; the first has the column names. Throws Fault::file as file:line:column: an unclosed
// quote, text after a closing quote, a quote inside an unquoted cell.
std::vector<RecordPlace> find_rows(std::string_view text, std::string_view where, char delimiter);

// The cells of a row from find_rows.
std::vector<std::string> cells_of(std::string_view row, char delimiter);

// The column names, from the first row. Throws Fault::file: a duplicate name, or a single column
// whose name looks like several with another delimiter.
std::vector<std::string> columns_of(std::string_view row, std::string_view where, int64_t line,
                                    char delimiter);

}  // namespace capstan
