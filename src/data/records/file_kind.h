#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace capstan {

// What a file is by its first bytes (some thousand of them), if it is neither UTF-8 text nor JSON,
// and what to do about it: "a Parquet file; convert it: python3 -c …". Empty for what may be text.
std::string foreign_kind(std::string_view begin, const std::filesystem::path& file);

// What separates the columns of a table with this name: a comma for .csv, a tab for .tsv; nothing
// for other names. Capitals do not count.
std::optional<char> table_delimiter(const std::filesystem::path& file);

// The ending of a name in small letters: ".jsonl".
std::string ending_of(const std::filesystem::path& file);

// The command that writes a data set in Arrow or Parquet files of a folder as JSONL; empty for a
// folder without such files.
std::string conversion_of_folder(const std::filesystem::path& folder);

}  // namespace capstan
