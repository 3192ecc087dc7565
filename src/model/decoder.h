#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/rng.h"
#include "model/parts.h"

namespace capstan {

// How to choose the next token from the logits.
struct Sampling {
  double temperature = 0.8;  // 0: always the most likely token
  int64_t top_k = 50;        // among the k most likely; 0: all
  double top_p = 1.0;        // among the fewest whose probabilities reach p
};

// The token selected by `draw` in [0, 1). Ties go to the lower id. `logits` must not contain NaN.
int32_t choose_token(std::span<const float> logits, const Sampling& sampling, double draw);

// Decodes one sequence, with a cache of keys and values for `capacity` positions. All stages of a
// pipeline decode together, and all of them get the logits.
class Decoder {
 public:
  // Allocates the cache and its tensors from the queue's arena. `longest_feed`: maximum tokens per
  // forward pass.
  Decoder(Queue& q, const Parts& model, int64_t capacity, int64_t longest_feed);

  int64_t capacity() const { return capacity_; }
  int64_t length() const { return length_; }  // tokens in the cache
  void clear() { length_ = 0; }
  // Drops all but the first `length` tokens.
  void keep(int64_t length);

  // Appends tokens and returns the logits of the last one, valid until the next call. Feeds long
  // input in pieces. Throws Fault::usage if it exceeds the capacity. Runs in the phase "decode".
  std::span<const float> feed(Queue& q, std::span<const int32_t> ids);

  // Rehearses feed on `sim` with the largest request.
  void rehearse(Queue& q);

  bool in_f16() const { return model_.params().types().compute == DType::f16; }

 private:
  void feed_piece(Queue& q, std::span<const int32_t> ids);

  void compute(Queue& q, const Batch& batch, Tensor logits_1V);

  Parts model_;
  int64_t capacity_, longest_feed_, length_ = 0;
  std::vector<Buffer> keys_, values_;
  std::vector<std::vector<LayerCache>> caches_;  // by part
  Buffer ids_, positions_;
  std::vector<int32_t> host_positions_;
  std::vector<float> logits_;
};

struct GenerateOptions {
  int64_t max_new_tokens = 50;
  Sampling sampling;
  uint64_t seed = 1234;
  uint64_t sample = 0;                 // index among several continuations of one prompt
  std::vector<int64_t> stop_ids = {};  // end-of-sequence tokens; not part of the result
  // Sequences of tokens that end the text; not part of the result.
  std::vector<std::vector<int32_t>> stop_sequences = {};
  int64_t cached = 0;  // tokens of the prompt already in the decoder's cache
};

// Continues `prompt` until a stop token or sequence, max_new_tokens or the capacity. `on_token`, if
// given, receives each token of the result, immediately unless it may start a stop sequence. Token
// i depends only on (seed, sample, i) and the logits.
std::vector<int32_t> generate(Queue& q, Decoder& decoder, std::span<const int32_t> prompt,
                              const GenerateOptions& options,
                              const std::function<void(int32_t)>& on_token = {});

}  // namespace capstan
