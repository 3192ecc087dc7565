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

// Whether a file of this name is taken for plain text in a folder: *.txt, or *.TXT.
bool is_text_name(const std::filesystem::path& path);
// Whether a file of this name holds documents as records, {"text": …}: *.jsonl, *.ndjson, *.json.
bool is_document_name(const std::filesystem::path& path);

struct TextSources {
  std::vector<std::filesystem::path> files;  // in the order of their names
  // Of the folder: files that look like data and are not read (*.json, *.csv, *.md, *.parquet …).
  std::vector<std::filesystem::path> passed_over;
};

// The text at `path`: one file, or the *.txt and *.jsonl files of a folder and of the folders in
// it, except those whose names begin with a dot. A folder that links reach twice is read once.
// Errors (Fault::file): no such path, no such file in the folder, a table (*.csv, *.tsv).
TextSources text_files(const std::filesystem::path& path);

// A whole file, without a byte order mark. Errors (Fault::file): it cannot be read; it is of
// another kind than text (Parquet, packed, UTF-16 …); invalid UTF-8, as file:line.
std::string read_utf8_file(const std::filesystem::path& file);

// Cuts a document into samples of max_seq_length + 1 tokens, of which the last may be shorter. Each
// begins with the last token of the one before, so that every token but the document's first is a
// target exactly once.
void add_document(Dataset& dataset, std::span<const int32_t> tokens, int64_t max_seq_length,
                  SampleOrigin origin = {});

// A text file is one document, and so is each record of a file of records: bos (where the tokenizer
// has one), the text as it is, eos. Empty ones are passed over; if all are empty, that is an error
// (Fault::file), and so is a record without a text. Several at once, in order. `progress` is called
// with the files done and their number.
Dataset load_text_files(const std::filesystem::path& path, const Tokenizer& tokenizer,
                        int64_t max_seq_length, const RecordFields& fields = {},
                        const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace capstan
