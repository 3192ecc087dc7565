#include "cli/model_files.h"

#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "data/tokenizer_json.h"

namespace capstan::cli {

ModelConfig model_by_sizes(const Recipe& r, const Tokenizer& tokenizer) {
  require(r.hidden_size % r.num_attention_heads == 0, Fault::usage,
          "model.hidden_size {} is not a multiple of model.num_attention_heads {}", r.hidden_size,
          r.num_attention_heads);
  ModelConfig c;
  c.vocab = tokenizer.vocab_size();
  c.hidden = r.hidden_size;
  c.intermediate = r.intermediate_size;
  c.layers = r.num_hidden_layers;
  c.heads = r.num_attention_heads;
  c.kv_heads = r.num_key_value_heads;
  c.head_dim = c.hidden / c.heads;
  c.max_positions = r.max_seq_length;
  c.tied = r.tie_embeddings;
  c.bos_id = tokenizer.bos().value_or(-1);
  c.eos_ids = {tokenizer.eos()};
  try {
    check_config(c);
  } catch (const Error& e) {
    const std::string_view what = e.what();
    if (what.find("head_dim") == std::string_view::npos) throw;
    fail(Fault::usage, "{} (head_dim is model.hidden_size / model.num_attention_heads: {} / {})",
         what, r.hidden_size, r.num_attention_heads);
  }
  return c;
}

void require_byte_tokenizer(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "tokenizer.json";
  require(is_byte_tokenizer(read_text(file), file.string()), Fault::file,
          "{}: expected capstan's byte-level tokenizer; other tokenizers are not read yet",
          file.string());
}

}  // namespace capstan::cli
