// Feeds bytes to the readers of torch's files: they execute nothing, and must accept or throw
// Fault::file. What they accept must lie within the file.
#include <algorithm>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "checkpoint/pickle.h"
#include "checkpoint/zip_entries.h"

namespace {

using namespace capstan;

void check(bool ok) {
  if (!ok) std::abort();
}

void check_pickle(std::span<const std::byte> bytes) {
  for (const auto& tensor : read_pickle(bytes, "fuzz")) {
    int64_t last = tensor.first;
    bool empty = false;
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      empty |= tensor.shape[d] == 0;
      last += (tensor.shape[d] - 1) * tensor.strides[d];
    }
    check(empty || last < tensor.storage_values);
  }
}

void check_zip(std::span<const std::byte> bytes) {
  const auto read = [&](int64_t at, std::span<std::byte> to) {
    check(at >= 0 && at + std::ssize(to) <= std::ssize(bytes));
    std::copy_n(bytes.begin() + at, to.size(), to.begin());
  };
  for (const auto& [name, entry] : read_zip_entries(std::ssize(bytes), read, "fuzz"))
    check(entry.begin >= 0 && entry.bytes >= 0 &&
          entry.begin + entry.bytes <= static_cast<int64_t>(bytes.size()));
}

}  // namespace

// The first byte says which of the two.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  try {
    if ((data[0] & 1) != 0)
      check_pickle(bytes);
    else
      check_zip(bytes);
  } catch (const Error& e) {
    check(e.fault() == Fault::file);
  }
  return 0;
}
