#pragma once

#include "support/temp_folder.h"

namespace capstan {

// A TempFolder in memory where the system has such folders: hundreds of saves sync their files.
class QuickFolder {
 public:
  QuickFolder() {
    std::string name = "/dev/shm/capstan-XXXXXX";
    const bool in_memory = std::filesystem::is_directory("/dev/shm") && ::mkdtemp(name.data());
    path_ = std::filesystem::canonical(in_memory ? std::filesystem::path(name) : elsewhere_.path());
  }
  QuickFolder(const QuickFolder&) = delete;
  QuickFolder& operator=(const QuickFolder&) = delete;
  ~QuickFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  TempFolder elsewhere_;
  std::filesystem::path path_;
};

}  // namespace capstan
