#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"
#include "data/records/record.h"
#include "data/tokenizer/tokenizer.h"

namespace capstan {

// Whether a file of this name in a folder is plain text: *.txt, or *.TXT.
bool is_text_name(const std::filesystem::path& path);
// Whether a file of this name contains documents as records, {"text": …}: *.jsonl, *.ndjson,
// *.json.
bool is_document_name(const std::filesystem::path& path);

struct TextSources {
  std::vector<std::filesystem::path> files;  // sorted by name
  // Files of the folder that look like data but are not read (*.json, *.csv, *.md, *.parquet …).
  std::vector<std::filesystem::path> passed_over;
};

// The text at `path`: one file, or the *.txt and *.jsonl files of a folder and its subfolders,
// except names that begin with a dot. A folder that is linked twice is read once. Errors
// (Fault::file): no such path, no such file in the folder, a table (*.csv, *.tsv).
TextSources text_files(const std::filesystem::path& path);

// A whole file, without a byte order mark. Errors (Fault::file): unreadable; not text (Parquet,
// compressed, UTF-16 …); invalid UTF-8, as file:line.
std::string read_utf8_file(const std::filesystem::path& file);

// Cuts a document into samples of max_seq_length + 1 tokens; the last may be shorter. Each begins
// with the last token of the previous one, so every token but the document's first is a target
// exactly once.
void add_document(Dataset& dataset, std::span<const int32_t> tokens, int64_t max_seq_length,
                  SampleOrigin origin = {});

// A text file is one document, and so is each record of a record file: bos (if the tokenizer has
// one), the unchanged text, eos. Empty documents are skipped; if all are empty, that is an error
// (Fault::file), and so is a record without a text. Tokenizes several at once, in order. Calls
// `progress` on this thread with the bytes of files that are done, and of all; it may throw to end
// the work.
Dataset load_text_files(const std::filesystem::path& path, const Tokenizer& tokenizer,
                        int64_t max_seq_length, const RecordFields& fields = {},
                        const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace capstan
