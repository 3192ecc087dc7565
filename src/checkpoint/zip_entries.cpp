#include "checkpoint/zip_entries.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/json_text.h"

namespace capstan {
namespace {

// The layout follows PKWARE's APPNOTE; numbers are little endian.
constexpr uint64_t kEndSignature = 0x06054b50, kEnd64Signature = 0x06064b50;
constexpr uint64_t kLocator64Signature = 0x07064b50;
constexpr uint64_t kFileSignature = 0x02014b50, kLocalSignature = 0x04034b50;
constexpr uint64_t kEndBytes = 22, kLocator64Bytes = 20;
constexpr uint64_t kFileBytes = 46, kLocalBytes = 30;
constexpr uint64_t kLongestComment = 0xffff;
constexpr uint64_t kFull16 = 0xffff, kFull32 = 0xffffffff;  // "look in the 64-bit fields"

class ZipReader {
 public:
  ZipReader(int64_t archive_bytes, const ReadArchive& read, std::string_view where)
      : size_(static_cast<uint64_t>(archive_bytes)), read_(read), where_(where) {}

  std::map<std::string, ZipEntry, std::less<>> read() {
    const Directory directory = find_directory();
    std::map<std::string, ZipEntry, std::less<>> entries;
    uint64_t at = directory.begin;
    for (uint64_t i = 0; i < directory.count; ++i) at = read_file(at, directory, entries);
    return entries;
  }

 private:
  struct Directory {
    uint64_t begin = 0, end = 0, count = 0;
  };

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(Fault::file, "{}: {}; the file is damaged: download or copy it again", where_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  void check_bounds(uint64_t at, uint64_t bytes) const {
    if (at > size_ || bytes > size_ - at)
      refuse("expected a zip archive with {} bytes at {}, found the end at {}", bytes, at, size_);
  }

  uint64_t number(uint64_t at, uint64_t bytes) {
    check_bounds(at, bytes);
    if (at < window_begin_ || at + bytes > window_begin_ + window_.size()) {
      window_begin_ = at / kWindow * kWindow;
      window_.resize(std::min(2 * kWindow, size_ - window_begin_));
      read_(static_cast<int64_t>(window_begin_), window_);
    }
    uint64_t value = 0;
    for (uint64_t i = bytes; i-- > 0;)
      value = value << 8 | static_cast<uint64_t>(window_[at - window_begin_ + i]);
    return value;
  }

  std::string text(uint64_t at, uint64_t bytes) const {
    check_bounds(at, bytes);
    std::string out(bytes, '\0');
    read_(static_cast<int64_t>(at), std::as_writable_bytes(std::span(out)));
    return out;
  }

  void check_signature(uint64_t at, uint64_t expected, const char* what) {
    const uint64_t found = number(at, 4);
    if (found != expected)
      refuse("expected {} of a zip archive at byte {} ({:08x}), found {:08x}", what, at, expected,
             found);
  }

  uint64_t find_end() {
    for (uint64_t comment = 0; comment <= kLongestComment && kEndBytes + comment <= size_;
         ++comment) {
      const uint64_t at = size_ - kEndBytes - comment;
      if (number(at, 4) == kEndSignature && number(at + 20, 2) == comment) return at;
    }
    refuse("expected a zip archive's end, found none: it is truncated");
  }

  Directory find_directory() {
    const uint64_t end = find_end();
    Directory d{number(end + 16, 4), 0, number(end + 10, 2)};
    uint64_t bytes = number(end + 12, 4);
    if (d.begin == kFull32 || d.count == kFull16 || bytes == kFull32) {
      if (end < kLocator64Bytes) refuse("expected 64-bit sizes before byte {}, found none", end);
      check_signature(end - kLocator64Bytes, kLocator64Signature, "the 64-bit locator");
      const uint64_t end64 = number(end - kLocator64Bytes + 8, 8);
      check_signature(end64, kEnd64Signature, "the 64-bit end");
      d.count = number(end64 + 32, 8);
      bytes = number(end64 + 40, 8);
      d.begin = number(end64 + 48, 8);
    }
    if (d.begin > end || bytes > end - d.begin || d.count > bytes / kFileBytes)
      refuse("expected a table of {} files within {} bytes, found it at {} with {} bytes", d.count,
             end, d.begin, bytes);
    d.end = d.begin + bytes;
    return d;
  }

  // Returns the offset of the next one.
  uint64_t read_file(uint64_t at, const Directory& directory,
                     std::map<std::string, ZipEntry, std::less<>>& entries) {
    check_signature(at, kFileSignature, "a file's entry");
    const uint64_t flags = number(at + 8, 2), method = number(at + 10, 2);
    const uint64_t name_bytes = number(at + 28, 2), extra_bytes = number(at + 30, 2);
    const uint64_t next = at + kFileBytes + name_bytes + extra_bytes + number(at + 32, 2);
    if (next > directory.end) refuse("expected a file's entry at {}, found the table's end", at);
    const std::string name = text(at + kFileBytes, name_bytes);
    uint64_t stored = number(at + 20, 4), bytes = number(at + 24, 4), local = number(at + 42, 4);
    read_extra_64(at + kFileBytes + name_bytes, extra_bytes, bytes, stored, local);
    require(method == 0 && (flags & 1) == 0 && stored == bytes, Fault::file,
            "{}: {}: expected a stored file, found it {}; write it with torch.save", where_,
            in_quotes(name), (flags & 1) != 0 ? "encrypted" : "compressed");
    check_signature(local, kLocalSignature, "a file's header");
    const uint64_t begin = local + kLocalBytes + number(local + 26, 2) + number(local + 28, 2);
    if (begin > size_ || bytes > size_ - begin)
      refuse("{}: expected {} bytes at {}, found the end at {}", in_quotes(name), bytes, begin,
             size_);
    const bool is_new =
        entries.emplace(name, ZipEntry{static_cast<int64_t>(begin), static_cast<int64_t>(bytes)})
            .second;
    if (!is_new) refuse("expected each name once, found {} twice", in_quotes(name));
    return next;
  }

  // From the extra field with the id 1: those of size, stored size and offset that did not fit, in
  // this order.
  void read_extra_64(uint64_t at, uint64_t left, uint64_t& bytes, uint64_t& stored,
                     uint64_t& local) {
    while (left >= 4) {
      const uint64_t id = number(at, 2), size = number(at + 2, 2);
      if (size > left - 4)
        refuse("expected {} bytes of extra fields at {}, found {}", size, at, left);
      uint64_t field = at + 4;
      const uint64_t end = field + size;
      for (uint64_t* value : {&bytes, &stored, &local}) {
        if (id != 1 || *value != kFull32) continue;
        if (end - field < 8) refuse("expected a 64-bit size at {}, found none", field);
        *value = number(field, 8);
        field += 8;
      }
      at = end;
      left -= 4 + size;
    }
  }

  static constexpr uint64_t kWindow = 4096;

  uint64_t size_;
  const ReadArchive& read_;
  std::string_view where_;
  std::vector<std::byte> window_;  // position in the archive of the last numbers read
  uint64_t window_begin_ = 0;
};

}  // namespace

std::map<std::string, ZipEntry, std::less<>> read_zip_entries(int64_t archive_bytes,
                                                              const ReadArchive& read,
                                                              std::string_view where) {
  return ZipReader(archive_bytes, read, where).read();
}

}  // namespace capstan
