#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/rng.h"
#include "model/transformer.h"

namespace capstan {

// How the next token is chosen from the logits.
struct Sampling {
  double temperature = 0.8;  // 0: the most likely token, always
  int64_t top_k = 50;        // among the k most likely; 0: all
  double top_p = 1.0;        // among the fewest whose probabilities reach p
};

// The token that `draw` in [0, 1) picks. Ties go to the lower id. `logits` must hold no NaN.
int32_t choose_token(std::span<const float> logits, const Sampling& sampling, double draw);

// One sequence being continued: a cache of keys and values for `capacity` positions.
class Decoder {
 public:
  // Takes the cache and its tensors from the queue's arena. `longest_feed`: tokens given at a time.
  Decoder(Queue& q, Transformer& model, int64_t capacity, int64_t longest_feed);

  int64_t capacity() const { return capacity_; }
  int64_t length() const { return length_; }  // tokens in the cache
  void clear() { length_ = 0; }
  // Forgets all but the first `length` tokens.
  void keep(int64_t length);

  // Appends tokens and returns the logits of the last one, valid until the next call. Long input is
  // fed in pieces. Throws Fault::usage when the capacity is reached. Runs in the phase "decode".
  std::span<const float> feed(Queue& q, std::span<const int32_t> ids);

  // The rehearsal of feed on `sim`: the largest request.
  void rehearse(Queue& q);

 private:
  void feed_piece(Queue& q, std::span<const int32_t> ids);

  Transformer& model_;
  int64_t capacity_, longest_feed_, length_ = 0;
  std::vector<Buffer> keys_, values_;
  std::vector<LayerCache> caches_;
  Buffer ids_, positions_;
  std::vector<int32_t> host_positions_;
  std::vector<float> logits_;
};

struct GenerateOptions {
  int64_t max_new_tokens = 50;
  Sampling sampling;
  uint64_t seed = 1234;
  uint64_t sample = 0;                 // which of several continuations of one prompt
  std::vector<int64_t> stop_ids = {};  // end-of-sequence tokens; not part of the result
  // Several tokens that end a text together; not part of the result.
  std::vector<std::vector<int32_t>> stop_sequences = {};
  int64_t cached = 0;  // tokens of the prompt that are in the decoder's cache already
};

// Continues `prompt` until it ends itself, or until max_new_tokens or the capacity.
// `on_token`, where given, sees each token of the result, at once unless it may be the beginning of
// a stop sequence. Token i depends on (seed, sample, i) and the logits alone.
std::vector<int32_t> generate(Queue& q, Decoder& decoder, std::span<const int32_t> prompt,
                              const GenerateOptions& options,
                              const std::function<void(int32_t)>& on_token = {});

}  // namespace capstan
