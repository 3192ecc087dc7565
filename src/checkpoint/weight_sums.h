#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace capstan {

// Checksums (base/place_sum.h) of what one rank reads of a model's tensors, made while it is read.
// Ranks that keep slices read pieces of a tensor; those that read the same piece must get the same
// bytes.
class WeightSums {
 public:
  struct Sum {
    int64_t bytes = 0, of = 0;  // of the piece, and of the whole tensor
    uint64_t sum = 0;

    // Some of the piece's bytes, which begin at byte `at` of the tensor.
    void add(int64_t at, std::span<const std::byte> some);
    bool operator==(const Sum&) const = default;
  };
  // By tensor, and by what a piece has of it, in any words.
  using Sums = std::map<std::pair<std::string, std::string>, Sum>;
  void add(const std::string& tensor, const std::string& piece, const Sum& sum) {
    sums_[{tensor, piece}] = sum;
  }
  const Sums& sums() const { return sums_; }

  // One line for each sum, and back.
  std::string text() const;
  static Sums parse(const std::string& text);

 private:
  Sums sums_;
};

// What ranks have read together.
struct AllWeightSums {
  // The first piece of which ranks have read different bytes; one of the fewest that agree with
  // each other, and one that has read something else.
  struct Difference {
    std::string tensor;
    size_t rank = 0, other = 0;
  };
  std::optional<Difference> difference;
  // Of all bytes of all tensors, however ranks have cut them: 16 hexadecimal digits. None if pieces
  // of different ranks overlap.
  std::optional<std::string> checksum;
};
AllWeightSums compare_sums(const std::vector<WeightSums::Sums>& by_rank);

}  // namespace capstan
