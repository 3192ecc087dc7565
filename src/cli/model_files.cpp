#include "cli/model_files.h"

#include "base/error.h"
#include "checkpoint/files.h"
#include "data/tokenizer_json.h"

namespace capstan::cli {

void require_byte_tokenizer(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "tokenizer.json";
  require(is_byte_tokenizer(read_text(file), file.string()), Fault::file,
          "{}: expected capstan's byte-level tokenizer; other tokenizers are not read yet",
          file.string());
}

}  // namespace capstan::cli
