#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace capstan {
namespace {

int32_t most_likely(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// The first values of a row, as a row of their own.
Tensor first_of(const Tensor& row, int64_t count) {
  return row.reshape({row.numel()}).rows(0, count).reshape({1, count});
}

}  // namespace

int32_t choose_token(std::span<const float> logits, const Sampling& s, double draw) {
  if (s.temperature <= 0) return most_likely(logits);

  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t k =
      s.top_k > 0 ? std::min(order.size(), static_cast<size_t>(s.top_k)) : order.size();
  const auto more_likely = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(k), order.end(),
                    more_likely);

  std::vector<double> weight(k);
  const double top = logits[static_cast<size_t>(order[0])];
  for (size_t i = 0; i < k; ++i)
    weight[i] = std::exp((logits[static_cast<size_t>(order[i])] - top) / s.temperature);
  double total = std::accumulate(weight.begin(), weight.end(), 0.0);

  // The nucleus: the shortest prefix of the list with probability top_p, at least one token.
  size_t kept = k;
  if (s.top_p < 1) {
    double mass = 0;
    for (kept = 0; kept < k && mass < s.top_p * total; ++kept) mass += weight[kept];
    kept = std::max<size_t>(kept, 1);
    total = std::accumulate(weight.begin(), weight.begin() + static_cast<int64_t>(kept), 0.0);
  }
  double target = draw * total;
  for (size_t i = 0; i + 1 < kept; ++i) {
    if (target < weight[i]) return order[i];
    target -= weight[i];
  }
  return order[kept - 1];
}

Decoder::Decoder(Queue& q, const Parts& model, int64_t capacity, int64_t longest_feed)
    : model_(model),
      capacity_(capacity),
      longest_feed_(std::min(longest_feed, capacity)),
      caches_(model.size()) {
  require(capacity <= model[0].positions(), Fault::bug,
          "decoder: capacity of {} positions, but the model has {}", capacity,
          model[0].positions());
  const ModelConfig& c = model.config();
  const DType type = model.params().types().compute;
  const int64_t width = model.params().spec().share.kv_heads() * c.head_dim;
  for (size_t part = 0; part < model.size(); ++part)
    for (int i = model[part].stage().first; i < model[part].stage().end; ++i) {
      keys_.push_back(q.arena().make(Category::cache, type, {capacity, width}, "keys"));
      values_.push_back(q.arena().make(Category::cache, type, {capacity, width}, "values"));
      caches_[part].push_back({*keys_.back(), *values_.back(), 0});
    }
  ids_ = q.arena().make(Category::data, DType::i32, {longest_feed_}, "decoder ids");
  positions_ = q.arena().make(Category::data, DType::i32, {longest_feed_}, "decoder positions");
  host_positions_.resize(static_cast<size_t>(longest_feed_));
  logits_.resize(static_cast<size_t>(c.vocab));
}

void Decoder::feed_piece(Queue& q, std::span<const int32_t> ids) {
  const auto n = static_cast<int64_t>(ids.size());
  for (const int32_t id : ids)
    require(id >= 0 && id < model_.config().vocab, Fault::usage,
            "token {} is not in the model's vocabulary of {}", id, model_.config().vocab);
  std::iota(host_positions_.begin(), host_positions_.begin() + n, static_cast<int32_t>(length_));
  Batch batch;
  batch.ids_T = ids_->rows(0, n);
  batch.positions_T = positions_->rows(0, n);
  q.upload(batch.ids_T, ids.data());
  q.upload(batch.positions_T, host_positions_.data());
  for (auto& of_part : caches_)
    for (LayerCache& cache : of_part) cache.start = length_;

  const auto phase = q.arena().phase("decode");
  // Every rank gets all logits: those of the others that share the last stage, and of that stage.
  const Communicator& shares = model_.params().mesh().tensor();
  const int64_t stages = model_.pipe().stages();
  const int64_t largest = largest_vocab_share(model_.config(), shares.size());
  const Buffer logits = q.arena().make(Category::activations, DType::f32,
                                       {stages * shares.size(), largest}, "logits");
  const Tensor of_stage = logits->rows(model_.pipe().stage() * shares.size(), shares.size());
  const Tensor mine = of_stage.rows(shares.rank(), 1);
  compute(q, batch, first_of(mine, model_.params().spec().share.vocab.count));
  if (shares.size() > 1) {
    Work work = shares.all_gather(q, of_stage, mine);
    work.join(q);
  }
  if (stages > 1) {
    const Communicator& all = model_.pipe().all();
    Work work = all.all_gather(q, logits, all.slice_of(logits));
    work.join(q);
  }
  for (int rank = 0; rank < shares.size(); ++rank) {
    const Span vocab = layer_share(model_.config(), {{rank, shares.size()}}).vocab;
    q.download(logits_.data() + vocab.first,
               first_of(logits->rows((stages - 1) * shares.size() + rank, 1), vocab.count));
  }
  length_ += n;
}

void Decoder::compute(Queue& q, const Batch& batch, Tensor logits_1V) {
  model_.pass_through(q, batch.tokens(), [&](Transformer& part, size_t i, Buffer in) {
    return part.decode(q, batch, caches_[i], logits_1V, std::move(in));
  });
}

std::span<const float> Decoder::feed(Queue& q, std::span<const int32_t> ids) {
  require(!ids.empty(), Fault::bug, "decoder: no tokens to feed");
  require(length_ + static_cast<int64_t>(ids.size()) <= capacity_, Fault::usage,
          "{} tokens do not fit: the cache has {} positions, {} in use", ids.size(), capacity_,
          length_);
  while (!ids.empty()) {
    const size_t n = std::min(ids.size(), static_cast<size_t>(longest_feed_));
    feed_piece(q, ids.first(n));
    ids = ids.subspan(n);
  }
  return logits_;
}

void Decoder::keep(int64_t length) {
  require(length >= 0 && length <= length_, Fault::bug, "decoder: cannot keep {} of {} tokens",
          length, length_);
  length_ = length;
}

void Decoder::rehearse(Queue& q) {
  const std::vector<int32_t> ids(static_cast<size_t>(longest_feed_));
  feed_piece(q, ids);
  clear();
}

namespace {

// The length of the stop sequence at the end of `tokens`; 0 if none.
size_t ending(std::span<const int32_t> tokens, const std::vector<std::vector<int32_t>>& sequences) {
  for (const auto& s : sequences)
    if (!s.empty() && s.size() <= tokens.size() &&
        std::equal(s.begin(), s.end(), tokens.last(s.size()).begin()))
      return s.size();
  return 0;
}

// How many of the last tokens may be the start of a stop sequence.
size_t beginning(std::span<const int32_t> tokens,
                 const std::vector<std::vector<int32_t>>& sequences) {
  size_t most = 0;
  for (const auto& s : sequences)
    for (size_t n = std::min(tokens.size(), s.empty() ? 0 : s.size() - 1); n > most; --n)
      if (std::equal(s.begin(), s.begin() + static_cast<int64_t>(n), tokens.last(n).begin()))
        most = n;
  return most;
}

}  // namespace

std::vector<int32_t> generate(Queue& q, Decoder& decoder, std::span<const int32_t> prompt,
                              const GenerateOptions& options,
                              const std::function<void(int32_t)>& on_token) {
  const Rng rng({.seed = options.seed, .sample = options.sample, .site = site::sampling});
  std::vector<int32_t> result;
  size_t seen = 0;  // tokens passed to on_token
  const auto show = [&](size_t end) {
    for (; seen < end; ++seen)
      if (on_token) on_token(result[seen]);
  };
  decoder.keep(options.cached);
  std::span<const float> logits =
      decoder.feed(q, prompt.subspan(static_cast<size_t>(options.cached)));
  while (static_cast<int64_t>(result.size()) < options.max_new_tokens) {
    require(std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }),
            Fault::file,
            "the model's logits are not finite: its weights are damaged, or training diverged{}",
            decoder.in_f16() ? ", or they exceed f16; try --precision 32-true" : "");
    const int32_t token = choose_token(logits, options.sampling, rng.uniform(result.size()));
    const auto& stops = options.stop_ids;
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) break;
    result.push_back(token);
    if (const size_t n = ending(result, options.stop_sequences); n > 0) {
      result.resize(result.size() - n);
      break;
    }
    show(result.size() - beginning(result, options.stop_sequences));
    const bool last = static_cast<int64_t>(result.size()) == options.max_new_tokens;
    if (last || decoder.length() == decoder.capacity()) break;
    logits = decoder.feed(q, {&token, 1});
  }
  show(result.size());
  return result;
}

}  // namespace capstan
