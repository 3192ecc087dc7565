#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace capstan {

// The checksum of bytes that arrive in pieces.
class Checksum {
 public:
  enum class Kind : uint8_t { sha256, sha1 };
  explicit Checksum(Kind kind);
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  // 64 hexadecimal digits, or 40 of SHA-1. Ends the computation.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What `sha256sum` prints.
class Sha256 : public Checksum {
 public:
  Sha256() : Checksum(Kind::sha256) {}
};

std::string sha256_of(std::string_view text);
// Reads the file once, in pieces. Throws Fault::file if it cannot be read.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace capstan
