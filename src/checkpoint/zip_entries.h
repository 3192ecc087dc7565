#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace capstan {

// Where the contents of an archive's file lie in the archive.
struct ZipEntry {
  int64_t begin = 0, bytes = 0;
};

// Fills `to` with the archive's bytes from `at` on, which it has.
using ReadArchive = std::function<void(int64_t at, std::span<std::byte> to)>;

// The table of contents of a zip archive, as torch.save writes them: files stored as they are,
// neither compressed nor encrypted, with 64-bit sizes where needed. Every place is proved to lie
// within the archive. Throws Fault::file, naming `where`, for anything else. Checksums are not
// compared: the format's CRC is optional to torch.
std::map<std::string, ZipEntry, std::less<>> read_zip_entries(int64_t archive_bytes,
                                                              const ReadArchive& read,
                                                              std::string_view where);

}  // namespace capstan
