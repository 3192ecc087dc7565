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

void write_jsonl(const std::filesystem::path& path, std::span<const Example> examples) {
  std::ofstream out(path);
  require(out.is_open(), Fault::file, "{}: cannot write: {}", path.string(), std::strerror(errno));
  for (size_t i = 0; i < examples.size(); ++i) {
    const auto& [prompt, response] = examples[i];
    require(!invalid_utf8(prompt) && !invalid_utf8(response), Fault::file,
            "{}:{}: this example is not valid UTF-8, as JSON requires", path.string(), i + 1);
    // Ordered, so that the fields appear in reading order.
    const nlohmann::ordered_json record = {{"instruction", prompt}, {"output", response}};
    out << record.dump() << '\n';
  }
  out.close();
  require(out.good(), Fault::file, "{}: cannot write: {}", path.string(), std::strerror(errno));
}

}  // namespace capstan
