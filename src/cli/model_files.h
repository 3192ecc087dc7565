#pragma once

#include <filesystem>

namespace capstan::cli {

// Throws Fault::file unless the folder's tokenizer.json is that of ByteTokenizer.
void require_byte_tokenizer(const std::filesystem::path& folder);

}  // namespace capstan::cli
