#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

// The algorithm for each matrix product of a GPU, from a library or ours, measured once and kept on
// disk: measurements are noisy, and another algorithm may round differently, so runs are bitwise
// equal only if they do not measure again.
//
// One file NAME.products, little endian, NAME being the first 16 digits of the machine's SHA-256:
//
//   offset  bytes
//        0      8  "CAPPRODS"
//        8      4  version, 1
//       12      4  0x01020304: byte order
//       16     64  SHA-256 of the machine's name, in hexadecimal
//       80      8  number of products N, int64
//       88      8  zeros
//       96     64  SHA-256 of bytes 0 … 95 and of all from 160 on, in hexadecimal
//      160         N times 128 bytes, keys ascending: the key (8 int64), the algorithm (64 bytes)
namespace capstan {

// Shapes, strides, types and alignments: what determines the algorithm.
struct ProductKey {
  std::array<int64_t, 8> fields{};
  auto operator<=>(const ProductKey&) const = default;
};
// As the library stores it, or the name of our kernel (cuda/product_method.h).
using ProductAlgorithm = std::array<std::byte, 64>;

// The file decides: once it has a key, every process uses its entry. Any number of processes may
// use one file; an object is not thread safe.
class ProductCache {
 public:
  // `machine` identifies everything that algorithms depend on: the GPU, and the versions of the
  // library and of our kernel. A damaged or foreign file counts as empty, with a warning, and the
  // next keep() replaces it. With an empty folder name there is no cache.
  ProductCache(std::filesystem::path folder, std::string_view machine);

  // Null if the file has no entry.
  const ProductAlgorithm* find(const ProductKey& key) const;

  // Whether measuring makes sense: the folder can be created and the file locked. Otherwise warns,
  // once.
  bool writable();
  void close() { writable_ = Writable::no; }  // keeps nothing more, silently

  // Adds to the file and returns its entry for the key from now on: another process's, if that was
  // first. Throws Fault::file if it cannot be written; the file then has no such entry.
  ProductAlgorithm keep(const ProductKey& key, const ProductAlgorithm& algorithm);

  const std::filesystem::path& path() const { return path_; }

 private:
  using Products = std::map<ProductKey, ProductAlgorithm>;
  class Lock;

  Products read() const;
  void write(const Products& products) const;

  std::filesystem::path folder_, path_;
  std::string machine_;  // its checksum
  Products products_;
  enum class Writable : uint8_t { unknown, yes, no } writable_ = Writable::unknown;
};

}  // namespace capstan
