#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

// Which algorithm a GPU multiplies matrices with, of a library or of ours, measured once and kept
// on disk: measuring is noisy, and another algorithm may round otherwise, so that runs are bitwise
// equal only where they do not measure anew.
//
// One file NAME.products, little endian, NAME being the first 16 digits of the machine's SHA-256:
//
//   offset  bytes
//        0      8  "CAPPRODS"
//        8      4  version, 1
//       12      4  0x01020304: the order of bytes
//       16     64  SHA-256 of the machine's name, in hexadecimal
//       80      8  number of products N, int64
//       88      8  zeros
//       96     64  SHA-256 of bytes 0 … 95 and of all from 160 on, in hexadecimal
//      160         N times 128 bytes, keys ascending: the key (8 int64), the algorithm (64 bytes)
namespace capstan {

// Shapes, strides, types and alignments: what an algorithm is chosen by.
struct ProductKey {
  std::array<int64_t, 8> fields{};
  auto operator<=>(const ProductKey&) const = default;
};
// As the library has it, or the name of ours (cuda/product_method.h).
using ProductAlgorithm = std::array<std::byte, 64>;

// The file decides: once it has a key, every process computes with what it says. Any number of
// processes may use one file; an object belongs to one thread.
class ProductCache {
 public:
  // `machine` names everything that algorithms hold for: the GPU, the library's version, ours. A
  // file that is damaged or foreign counts as empty, is warned of, and is replaced by the next
  // keep(). An empty folder has nothing and keeps nothing.
  ProductCache(std::filesystem::path folder, std::string_view machine);

  // Null where the file has nothing.
  const ProductAlgorithm* find(const ProductKey& key) const;

  // Whether there is any use in measuring: the folder can be made and the file locked. Where not,
  // it is warned of, once.
  bool writable();
  void close() { writable_ = Writable::no; }  // keeps nothing more, and says nothing of it

  // Adds to the file and returns what it has for the key from now on: that of another process, if
  // one was first. Throws Fault::file where it cannot be written; it then has nothing of this.
  ProductAlgorithm keep(const ProductKey& key, const ProductAlgorithm& algorithm);

  const std::filesystem::path& path() const { return path_; }

 private:
  using Products = std::map<ProductKey, ProductAlgorithm>;
  class Lock;

  Products read() const;
  void write(const Products& products) const;

  std::filesystem::path folder_, path_;
  std::string machine_;  // its sum
  Products products_;
  enum class Writable : uint8_t { unknown, yes, no } writable_ = Writable::unknown;
};

}  // namespace capstan
