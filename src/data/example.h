#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "data/dataset/dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace capstan {

// A prompt (with any prompt style applied) and the expected answer.
struct Example {
  std::string prompt, response;

  bool operator==(const Example&) const = default;
};

// Adds the sample bos? prompt response eos. With `mask_prompt`, targets start at the first token of
// the response.
//
// Encodes prompt and response as one text, as at inference; a token that spans the boundary counts
// as response. Throws Fault::file, naming the sample, if both are empty.
void add_example(Dataset& dataset, const Tokenizer& tokenizer, const Example& example,
                 bool mask_prompt);

// max_seq_length limits the tokens of a sample (Cut::tokens).
Dataset make_dataset(std::span<const Example> examples, const Tokenizer& tokenizer,
                     bool mask_prompt);

}  // namespace capstan
