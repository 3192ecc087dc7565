// Feeds bytes to the reader of LitData's files: it must accept or throw Fault::file, and give no
// token that the vocabulary does not have.
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "data/records/litdata_format.h"

namespace {

using namespace capstan;

constexpr int64_t kVocab = 300;

void check(bool ok) {
  if (!ok) std::abort();
}

// The first byte says what the others are: an index, or a chunk of tokens of 2, 4 or 8 bytes.
void read(uint8_t kind, std::string_view bytes) {
  if (kind % 4 == 0) {
    const size_t size = parse_litdata_index(bytes, "fuzz").token_bytes;
    return check(size == 2 || size == 4 || size == 8);
  }
  const size_t token_bytes = size_t{1} << kind % 4;
  read_litdata_chunk(bytes, "fuzz", token_bytes, kVocab, [&](std::span<const int32_t> item) {
    for (const int32_t id : item) check(id >= 0 && id < kVocab);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    read(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  } catch (const Error& e) {
    check(e.fault() == Fault::file);
  }
  return 0;
}
