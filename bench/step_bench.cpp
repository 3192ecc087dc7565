// One training step (forward, backward, AdamW) of a model of random weights on random tokens, timed
// like bench/torch_step.py does for PyTorch: three steps to warm up, then the median of seven.
//
// usage: bench_step CASE...     (a case is
// model:precision:micro_batch:seq:accumulation[:activations]) Prints one JSON line per case; the
// time by op on stderr.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/parallel.h"
#include "report/summary.h"
#include "train/trainer.h"

namespace capstan {
namespace {

struct Sizes {
  int64_t hidden, intermediate, layers, heads, kv_heads, vocab;
};

const std::map<std::string, Sizes> kModels = {
    {"1m", {128, 352, 4, 4, 4, 259}},
    {"15m", {288, 768, 6, 6, 6, 32000}},
    {"110m", {768, 2048, 12, 12, 12, 32000}},
};

struct Case {
  std::string name;
  Sizes model;
  Precision precision;
  int64_t micro_batch, seq, accumulation;
  Recompute recompute = Recompute::none;
};

Case parse(const std::string& text) {
  std::vector<std::string> words;
  std::stringstream in(text);
  for (std::string word; std::getline(in, word, ':');) words.push_back(word);
  require(
      words.size() >= 5 && kModels.contains(words[0]), Fault::usage,
      "'{}' is not a case: expected model:precision:micro_batch:seq:accumulation[:activations], "
      "with one of the models 1m, 15m, 110m",
      text);
  Case c{text,
         kModels.at(words[0]),
         parse_precision(words[1]),
         std::stoll(words[2]),
         std::stoll(words[3]),
         std::stoll(words[4])};
  if (words.size() > 5) c.recompute = parse_recompute(words[5]);
  return c;
}

ModelConfig config_of(const Sizes& s) {
  ModelConfig c;
  c.vocab = s.vocab;
  c.hidden = s.hidden;
  c.intermediate = s.intermediate;
  c.layers = s.layers;
  c.heads = s.heads;
  c.kv_heads = s.kv_heads;
  c.head_dim = s.hidden / s.heads;
  return c;
}

Dataset random_samples(const Case& c) {
  Dataset data;
  const Rng rng({.seed = 1});
  uint64_t draw = 0;
  for (int64_t s = 0; s < c.micro_batch * c.accumulation; ++s) {
    std::vector<int32_t> tokens(static_cast<size_t>(c.seq) + 1);
    for (auto& t : tokens)
      t = static_cast<int32_t>(rng.below(draw++, static_cast<uint64_t>(c.model.vocab)));
    data.add(tokens, 0);
  }
  return data;
}

void run(const Case& c) {
  const auto started = std::chrono::steady_clock::now();
  const auto since = [](auto start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const Dataset data = random_samples(c);
  const BatchOptions batches{.max_seq_length = c.seq, .vocab = c.model.vocab};
  TrainOptions o;
  o.model = config_of(c.model);
  o.precision = c.precision;
  o.recompute = c.recompute;
  o.limits = limits_of(data, c.micro_batch, batches);
  o.single_micro_batch = c.accumulation == 1;
  o.optimizer = {.beta1 = 0.9, .beta2 = 0.95};
  o.schedule = {.lr = 1e-4, .decay = Schedule::Decay::constant};
  const MemoryPlan plan = Trainer::plan(o);
  Arena arena(plan);
  Queue q(Device::cpu, arena);
  Trainer trainer(q, o);
  trainer.params().initialize(q, 1);
  const double start_seconds = since(started);

  MicroBatches micro(data, c.micro_batch, batches);
  std::vector<int64_t> ids(static_cast<size_t>(data.size()));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  std::vector<double> times;
  double loss = 0;
  for (int i = 0; i < 10; ++i) {
    if (i == 3) q.reset_totals();
    const auto start = std::chrono::steady_clock::now();
    micro.start(ids);
    loss = trainer.step(micro, i).loss;
    if (i >= 3) times.push_back(since(start));
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  const auto tokens = static_cast<double>(c.micro_batch * c.seq * c.accumulation);
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / 0x1p30; };
  const nlohmann::ordered_json line = {{"case", c.name},
                                       {"tok_s", tokens / median},
                                       {"step_ms", 1e3 * median},
                                       {"maxrss_gib", gib(peak_resident_bytes())},
                                       {"planned_gib", gib(plan.total_bytes)},
                                       {"start_ms", 1e3 * start_seconds},
                                       {"threads", num_threads()},
                                       {"loss", loss}};
  fmt::print("{}\n", line.dump());
  fmt::print(stderr, "{}", op_table(q, 14));
}

}  // namespace
}  // namespace capstan

int main(int argc, char** argv) {
  try {
    for (int i = 1; i < argc; ++i) capstan::run(capstan::parse(argv[i]));
    return 0;
  } catch (const capstan::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return e.exit_code();
  }
}
