#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace capstan {

// The byte range of a file's contents in the archive.
struct ZipEntry {
  int64_t begin = 0, bytes = 0;
};

// Fills `to` with the archive's bytes from `at` on, which exist.
using ReadArchive = std::function<void(int64_t at, std::span<std::byte> to)>;

// The table of contents of a zip archive as written by torch.save: files are stored, neither
// compressed nor encrypted, with 64-bit sizes where needed. Checks that every file lies within the
// archive. Throws Fault::file, naming `where`, for anything else. Does not compare checksums: for
// torch the CRC is optional.
std::map<std::string, ZipEntry, std::less<>> read_zip_entries(int64_t archive_bytes,
                                                              const ReadArchive& read,
                                                              std::string_view where);

}  // namespace capstan
