#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/records/find_records.h"

// Tables as text, RFC 4180: cells between delimiters, rows on lines. A cell in double quotes may
// hold delimiters, line breaks and, doubled, quotes. Lines end with \n or \r\n; empty ones are
// passed over.
namespace capstan {

// All rows, the one with the names of the columns first. Throws Fault::file as file:line:column: a
// quote without an end, text after a closing quote, a quote within a cell that has none around it.
std::vector<RecordPlace> find_rows(std::string_view text, std::string_view where, char delimiter);

// The cells of a row that find_rows has found.
std::vector<std::string> cells_of(std::string_view row, char delimiter);

// The names of the columns, from the first row. Throws Fault::file: a name twice, one column whose
// name looks like several with another delimiter between them.
std::vector<std::string> columns_of(std::string_view row, std::string_view where, int64_t line,
                                    char delimiter);

}  // namespace capstan
