#pragma once

#include <filesystem>
#include <string>
#include <vector>

// Damaged files of a run are kept for inspection, beside their place, and the run goes on.
namespace capstan {

inline constexpr const char* kAsideSuffix = ".bad";

// Renames a file or folder to NAME.bad, or NAME.bad-2 and so on, and returns that name. Throws
// Fault::file.
std::filesystem::path put_aside(const std::filesystem::path& path);
// Whether a name is one that put_aside gives.
bool is_put_aside(const std::filesystem::path& path);

// A line that does not belong into its file: a killed run, a power cut or an editor may leave one.
struct BadLine {
  std::string text;  // unchanged, without the newline
  std::string why;   // "file:line:column: expected …"
};
// Appends the lines to NAME.bad and warns of them.
void move_bad_lines(const std::filesystem::path& file, const std::vector<BadLine>& lines);

}  // namespace capstan
