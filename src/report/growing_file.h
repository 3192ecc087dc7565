#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace capstan {

// A file that grows by whole lines or records: a partial write is rolled back. Every failure is
// Fault::file and names the file.
class GrowingFile {
 public:
  // `flags` besides those for appending, such as O_EXCL.
  explicit GrowingFile(std::filesystem::path path, int flags = 0);
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;
  ~GrowingFile();

  const std::filesystem::path& path() const { return path_; }
  int64_t size() const;
  void append(std::string_view text);
  void sync() const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace capstan
