#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "data/dataset/dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace capstan {

// An instruction as the model sees it (any prompt style already applied) and the answer wanted.
struct Example {
  std::string prompt, response;

  bool operator==(const Example&) const = default;
};

// Adds the sample bos? prompt response eos. With `mask_prompt` the first token that counts is the
// first of the response.
//
// Prompt and response are encoded as one text, as the model will meet them; a token that spans the
// border counts as response. Throws Fault::file, naming the sample, when both are empty.
void add_example(Dataset& dataset, const Tokenizer& tokenizer, const Example& example,
                 bool mask_prompt);

// max_seq_length limits the tokens of a sample (Cut::tokens).
Dataset make_dataset(std::span<const Example> examples, const Tokenizer& tokenizer,
                     bool mask_prompt);

// One {"instruction": …, "output": …} per line. Throws Fault::file: not writable, text not UTF-8.
void write_jsonl(const std::filesystem::path& path, std::span<const Example> examples);

}  // namespace capstan
