// Feeds bytes to the safetensors header parser: it must accept or throw Fault::file, and what it
// accepts must be what it promises.
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace {

using capstan::SafetensorsHeader;

void check(bool ok) {
  if (!ok) std::abort();
}

void check_header(const SafetensorsHeader& header, size_t file_bytes) {
  int64_t covered = 0;
  for (const capstan::StoredTensor& t : header.tensors) {
    int64_t bytes = t.type.size;
    for (const int64_t extent : t.shape) bytes *= extent;
    check(t.begin == covered && t.nbytes() == bytes);
    covered = t.end;
  }
  check(header.data_begin + covered == static_cast<int64_t>(file_bytes));
}

void parse(const std::string& file) {
  try {
    const auto bytes = std::as_bytes(std::span(file));
    check_header(capstan::parse_safetensors_header(bytes, std::ssize(bytes), "fuzz"), file.size());
  } catch (const capstan::Error& e) {
    check(e.fault() == capstan::Fault::file);
  }
}

// A file with the right length before the JSON and some data after it: a random length is almost
// never right, and nothing behind it would be reached.
std::string with_length(std::string json, size_t data_bytes) {
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>((json.size() >> (8 * i)) & 0xff);
  return file + json + std::string(data_bytes, '\1');
}

}  // namespace

// The first byte chooses: 0 for the bytes as they are, else the size of the data.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  parse(data[0] == 0 ? rest : with_length(rest, data[0] - size_t{1}));
  return 0;
}
