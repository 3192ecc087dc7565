#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/file_reader.h"

namespace capstan {

// The first bytes of a file, as many as foreign_kind() looks at.
std::string beginning_of(const FileReader& file);

// Identifies a file by its first bytes (a few thousand) if it is neither UTF-8 text nor JSON, and
// says what to do: "a Parquet file; convert it: python3 -c …". Empty if it may be text.
std::string foreign_kind(std::string_view begin, const std::filesystem::path& file);

// The column separator of a table with this name: a comma for .csv, a tab for .tsv; nothing for
// other names. Ignores case.
std::optional<char> table_delimiter(const std::filesystem::path& file);

// The extension of a name in lower case: ".jsonl".
std::string ending_of(const std::filesystem::path& file);

// The command that converts a folder of Arrow or Parquet files to JSONL; empty for a folder without
// such files.
std::string conversion_of_folder(const std::filesystem::path& folder);

}  // namespace capstan
