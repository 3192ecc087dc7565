#include "base/checksum.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/file_reader.h"

namespace capstan {

struct Checksum::State {
  explicit State(const EVP_MD* kind) : context(EVP_MD_CTX_new()) {
    require(context != nullptr && EVP_DigestInit_ex(context, kind, nullptr) == 1, Fault::bug,
            "OpenSSL lacks a checksum");
  }
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  EVP_MD_CTX* context;
};

Checksum::Checksum(Kind kind)
    : state_(std::make_unique<State>(kind == Kind::sha1 ? EVP_sha1() : EVP_sha256())) {}
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::update(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1, Fault::bug,
          "OpenSSL: a checksum failed");
}

void Checksum::update(std::string_view text) {
  update(std::as_bytes(std::span(text)));
}

std::string Checksum::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  require(EVP_DigestFinal_ex(state_->context, digest.data(), &size) == 1, Fault::bug,
          "OpenSSL: a checksum failed");
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string sha256_of(std::string_view text) {
  Sha256 sum;
  sum.update(text);
  return sum.hex();
}

std::string sha256_of_file(const std::filesystem::path& path) {
  const FileReader file(path);
  Sha256 sum;
  std::vector<std::byte> block(1 << 20);
  for (int64_t at = 0; at < file.size(); at += std::ssize(block)) {
    const auto piece = std::span(block).first(
        static_cast<size_t>(std::min<int64_t>(std::ssize(block), file.size() - at)));
    file.read(at, piece);
    sum.update(piece);
  }
  return sum.hex();
}

}  // namespace capstan
