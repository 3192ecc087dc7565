#include "data/records/litdata.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "data/records/litdata_format.h"
#include "data/records/text_files.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

std::string read_bytes(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  require(!error, Fault::file, "{}: cannot read: {}", path.string(), error.message());
  std::string bytes(size, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(bytes.data(), static_cast<std::streamsize>(size));
  require(in.gcount() == static_cast<std::streamsize>(size), Fault::file, "{}: cannot read: {}",
          path.string(), std::strerror(errno));
  return bytes;
}

}  // namespace

bool is_litdata(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder, error) && fs::is_regular_file(folder / "index.json", error);
}

Dataset load_litdata(const fs::path& folder, const Tokenizer& tokenizer, int64_t max_seq_length) {
  const fs::path index_file = folder / "index.json";
  const LitDataIndex index = parse_litdata_index(read_text(index_file), index_file.string());
  Dataset dataset;
  for (const std::string& name : index.chunks) {
    const fs::path path = folder / name;
    const int32_t file = dataset.add_file(path.string());
    read_litdata_chunk(read_bytes(path), path.string(), index.token_bytes, tokenizer.vocab_size(),
                       [&](std::span<const int32_t> tokens) {
                         add_document(dataset, tokens, max_seq_length, {.file = file});
                       });
  }
  require(dataset.size() > 0, Fault::file,
          "{}: its chunks contain no document of two tokens or more", folder.string());
  return dataset;
}

}  // namespace capstan
