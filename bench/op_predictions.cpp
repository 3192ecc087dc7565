// The ops of a training step: predicted by this machine's calibration (`capstan bench` writes it)
// beside measured. To see which op a prediction is wrong about.
//
// usage: bench_op_predictions HIDDEN INTERMEDIATE LAYERS HEADS VOCAB DOCUMENTS LENGTH PRECISION
// ACTIVATIONS

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <numeric>

#include "base/rng.h"
#include "plan/calibration.h"

namespace capstan::bench {
namespace {

struct Row {
  double predicted = 0, measured = 0;
};
using Rows = std::map<std::string, Row>;

TrainOptions options_of(char** argv) {
  TrainOptions o;
  o.device = cuda_present() ? Device::cuda : Device::cpu;
  o.model.hidden = std::atoll(argv[1]);
  o.model.intermediate = std::atoll(argv[2]);
  o.model.layers = std::atoll(argv[3]);
  o.model.heads = o.model.kv_heads = std::atoll(argv[4]);
  o.model.head_dim = o.model.hidden / o.model.heads;
  o.model.vocab = std::atoll(argv[5]);
  o.precision = parse_named<Precision>("precision", argv[8]);
  o.recompute = parse_recomputation(argv[9]);
  o.single_micro_batch = true;
  o.schedule = {.lr = 1e-4, .decay = Schedule::Decay::constant};
  return o;
}

Dataset random_documents(const TrainOptions& o, int64_t documents, int64_t length) {
  Dataset data;
  const Rng rng({.seed = 1});
  uint64_t draw = 0;
  std::vector<int32_t> tokens(static_cast<size_t>(length) + 1);
  for (int64_t d = 0; d < documents; ++d) {
    for (auto& t : tokens)
      t = static_cast<int32_t>(rng.below(draw++, static_cast<uint64_t>(o.model.vocab)));
    data.add(tokens, 0);
  }
  return data;
}

// The seconds of one step by op, after a step to warm up.
void run(Queue& q, const TrainOptions& o, MicroBatches& data, std::span<const int64_t> ids,
         int64_t steps, double Row::*field, Rows& rows) {
  Trainer trainer(q, o);
  if (q.device() == Device::sim)
    trainer.rehearse();
  else
    trainer.params().initialize(q, 1);
  for (int64_t i = 0; i <= steps; ++i) {
    if (i == 1) q.reset_totals();
    q.time_each_op(true);
    data.start(ids);
    trainer.step(data, i);
  }
  for (const OpTotal& r : q.totals())
    if (r.calls > 0) rows[r.op].*field = r.seconds / static_cast<double>(steps);
}

void compare(char** argv) {
  const TrainOptions given = options_of(argv);
  const int64_t documents = std::atoll(argv[6]), length = std::atoll(argv[7]);
  const BatchOptions batches{.max_seq_length = length, .vocab = given.model.vocab};
  const Dataset samples = random_documents(given, documents, length);
  TrainOptions o = given;
  o.limits = limits_of(samples, documents, batches);
  std::vector<int64_t> ids(static_cast<size_t>(documents));
  std::iota(ids.begin(), ids.end(), 0);
  MicroBatches data(samples, documents, batches);
  const auto calibration = find_calibration(o.device);
  require(calibration.has_value(), Fault::usage, "no calibration: run 'capstan bench' first");
  Rows rows;
  {
    Arena arena, host;
    Queue q(Device::sim, arena, host, cost_model(*calibration, o));
    run(q, o, data, ids, 1, &Row::predicted, rows);
  }
  const RunPlan plan = Trainer::plan(o);
  Arena arena(plan.device, o.device), host(plan.host, Arena::Pinned{});
  Queue q(o.device, arena, host);
  run(q, o, data, ids, 5, &Row::measured, rows);
  Row all;
  fmt::print("{:<26}{:>12}{:>12}{:>8}\n", "op", "predicted ms", "measured ms", "ratio");
  for (const auto& [op, r] : rows) {
    all.predicted += r.predicted;
    all.measured += r.measured;
    if (r.measured > 0 || r.predicted > 0)
      fmt::print("{:<26}{:>12.3f}{:>12.3f}{:>8.2f}\n", op, 1e3 * r.predicted, 1e3 * r.measured,
                 r.predicted / r.measured);
  }
  fmt::print("{:<26}{:>12.3f}{:>12.3f}{:>8.2f}\n", "all", 1e3 * all.predicted, 1e3 * all.measured,
             all.predicted / all.measured);
}

}  // namespace
}  // namespace capstan::bench

int main(int argc, char** argv) {
  try {
    capstan::require(argc == 10, capstan::Fault::usage,
                     "usage: bench_op_predictions HIDDEN INTERMEDIATE LAYERS HEADS VOCAB DOCUMENTS "
                     "LENGTH PRECISION ACTIVATIONS");
    capstan::bench::compare(argv);
    return 0;
  } catch (const capstan::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return e.exit_code();
  }
}
