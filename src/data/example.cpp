#include "data/example.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"
#include "data/record_renderer.h"

namespace capstan {

void add_example(Dataset& dataset, const Tokenizer& tokenizer, const Example& example,
                 bool mask_prompt) {
  require(!example.prompt.empty() || !example.response.empty(), Fault::file,
          "sample {}: prompt and response are both empty. Remove it", dataset.size());
  const RenderedRecord sample{
      .pieces = {{example.prompt, false, !mask_prompt}, {example.response, false, true}},
      .add_eos = true,
      .add_bos = true};
  const EncodedPieces encoded = encode(sample, tokenizer);
  dataset.add(encoded.tokens, encoded.learned);
}

Dataset make_dataset(std::span<const Example> examples, const Tokenizer& tokenizer,
                     bool mask_prompt) {
  Dataset dataset;
  dataset.set_cut(Cut::tokens);
  for (const Example& example : examples) add_example(dataset, tokenizer, example, mask_prompt);
  return dataset;
}

}  // namespace capstan
