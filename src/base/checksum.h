#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace capstan {

// SHA-256 of bytes that arrive in pieces: what `sha256sum` prints.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  // 64 hexadecimal digits. Ends the computation.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_of(std::string_view text);
// Reads the file once, in pieces. Throws Fault::file if it cannot be read.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace capstan
