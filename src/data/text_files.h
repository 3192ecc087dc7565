#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/tokenizer.h"

namespace capstan {

// Whether a file of this name is taken for text in a folder: *.txt, or *.TXT.
bool is_text_name(const std::filesystem::path& path);

// The text at `path`: one file, or the *.txt files of one folder (not of the folders in it), in the
// order of their names. Errors (Fault::file): no such path, no .txt file in the folder.
std::vector<std::filesystem::path> text_files(const std::filesystem::path& path);

// A whole file, without a byte order mark. Errors (Fault::file): it cannot be read; invalid UTF-8,
// as file:line.
std::string read_utf8_file(const std::filesystem::path& file);

// Cuts a document into samples of max_seq_length + 1 tokens, of which the last may be shorter. Each
// begins with the last token of the one before, so that every token but the document's first is a
// target exactly once.
void add_document(Dataset& dataset, std::span<const int32_t> tokens, int64_t max_seq_length,
                  SampleOrigin origin = {});

// Each file is one document: bos (where the tokenizer has one), the text as it is, eos. Empty files
// are passed over; if all are empty, that is an error (Fault::file). Several files at once, in
// order. `progress` is called with the files done and their number.
Dataset load_text_files(const std::filesystem::path& path, const Tokenizer& tokenizer,
                        int64_t max_seq_length,
                        const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace capstan
