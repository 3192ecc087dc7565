#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace capstan {

// A regular file, open for reading. Every failure is Fault::file and names the file, and the byte
// if a read failed. If another process changes or truncates the file meanwhile, reads return other
// bytes or an error, never a signal. Const methods are thread safe.
class FileReader {
 public:
  enum class Links : uint8_t { follow, refuse };  // only if the path itself is a link

  // Never blocks: rejects pipes, devices and folders.
  explicit FileReader(std::filesystem::path path, Links links = Links::follow);
  FileReader(FileReader&& other) noexcept;
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  ~FileReader();

  const std::filesystem::path& path() const { return path_; }
  int64_t size() const { return size_; }  // when it was opened
  mode_t mode() const { return mode_; }   // its permissions

  // Fills `to` with the bytes from `at` on.
  void read(int64_t at, std::span<std::byte> to) const;
  // The same on all threads, if there are many bytes.
  void read_parallel(int64_t at, std::span<std::byte> to) const;

 private:
  struct Failure {
    int64_t at = INT64_MAX;
    int error = 0;  // 0: the file ends there
  };
  Failure try_read(int64_t at, std::span<std::byte> to) const;
  void fail_if(const Failure& failure) const;

  std::filesystem::path path_;
  int64_t size_ = 0;
  mode_t mode_ = 0;
  int fd_ = -1;
};

// All bytes of a file, in memory.
class FileBytes {
 public:
  explicit FileBytes(const std::filesystem::path& path);

  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  size_t size_ = 0;
  std::unique_ptr<std::byte[]> data_;
};

}  // namespace capstan
