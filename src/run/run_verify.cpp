// What a run tries, and predicts, before its first step.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/log.h"
#include "base/units.h"
#include "plan/history.h"
#include "plan/predict.h"
#include "report/work_bar.h"
#include "run/run.h"
#include "run/self_check.h"

namespace capstan {

// Makes it the verdict and the plan of this rank. Scratch depends on the number of threads, so
// ranks on unlike machines may judge differently: then the one that recomputes most decides.
void TrainingRun::agree_on(Fit& fit, const Ranks& mine) {
  const auto layers = static_cast<int>(options_.model.layers);
  struct Verdict {
    int fits = 0, rung = 0, staging = 0;
  };
  const Verdict own{fit.fits(), fit.options.recompute.rung(layers), fit.options.staging};
  Verdict of_all = own;
  for (const Verdict& other : team_.gather(own)) {
    of_all.fits = std::min(of_all.fits, other.fits);
    of_all.rung = std::max(of_all.rung, other.rung);
    of_all.staging = std::min(of_all.staging, other.staging);
  }
  require_fit(fit);
  require(of_all.fits == 1, Fault::does_not_fit,
          "does not fit on another rank, whose machine has other devices or another number of "
          "threads than this one's; its message says what would");
  const bool others = of_all.rung != own.rung || of_all.staging != own.staging;
  if (of_all.rung != own.rung) fit.options.recompute = Recomputation::at_rung(of_all.rung, layers);
  fit.options.staging = of_all.staging == 1;
  if (others || fit.options.ranks.rank != mine.rank) {
    fit.options.ranks = mine;
    fit.plan = Trainer::plan(fit.options);
  }
  const auto needs =
      team_.gather(RankNeed{mine.rank, fit.plan.device.total_bytes, fit.plan.host.total_bytes});
  const auto require_room = [&](const RankNeed& need, const char* memory, int64_t bytes,
                                int64_t available) {
    require(bytes <= available, Fault::does_not_fit,
            "does not fit: rank {} on {} needs {}{}, {} free", need.rank,
            team_.hosts()[static_cast<size_t>(need.rank)], format_bytes(bytes), memory,
            format_bytes(available));
  };
  for (const RankNeed& need : needs) {
    require_room(need, "", need.device, fit.available.device);
    require_room(need, " of host memory", need.host, fit.available.host);
  }
}

void TrainingRun::verify() {
  log::say("Verifying settings ...");
  const WorkBar bar("verifying settings", team_.leads());
  const Dataset& train = inputs_.data.train;
  std::vector<int64_t> order(static_cast<size_t>(train.size()));
  std::iota(order.begin(), order.end(), 0);
  // One micro-batch for each rank.
  const int64_t largest = micro_batch_for(train);
  const int64_t sharing = batch_ranks(options_.ranks, options_.mesh).size;
  const auto micro = static_cast<size_t>(std::min(largest * sharing, train.size()));
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(micro), order.end(),
                    [&](int64_t a, int64_t b) {
                      return train.inputs_of(a, inputs_.max_seq_length) >
                             train.inputs_of(b, inputs_.max_seq_length);
                    });
  MicroBatches data = micro_batches(train);
  data.start(std::span(order).first(micro));
  double loss = trainer_->probe(data).loss;
  check_stop();
  if (const Dataset& held = inputs_.data.validation; held.size() > 0 && std::isfinite(loss)) {
    Sampler in_order(held.size(), micro_batch_for(held), 0, false);
    MicroBatches one = micro_batches(held);
    one.start(in_order.ids(0));
    loss = trainer_->evaluate(one).mean();
  }
  require(std::isfinite(loss), Fault::file,
          "the loss before the first step is {}: the weights of {} are damaged, or overflow in {}; "
          "try precision 32-true",
          loss, inputs_.model.name, name_of(options_.precision));
  queue_.tell_measured();
  check_stop();
  if (recipe_.self_check) self_check();
  predict();
  check_stop();
  verify_save();
  gpu_.setup_done();
}

// The trainer of one rank has memory of its own, beside the plan. Products are of f32, on both
// sides: the rounding of TF32 would hide small mistakes.
void TrainingRun::self_check() {
  const auto channel = team_.group().open_channel("self check");
  SelfCheck check;
  std::vector<float> mine;
  StepBatches batches = step_batches(batch_ranks(options_.ranks, options_.mesh), recipe_);
  queue_.allow_tf32(false);
  check.ranks = trainer_->try_step(batches.of(record_.step), record_.step,
                                   [&] { mine = owned_gradients(queue_, trainer_->params()); });
  queue_.allow_tf32(uses_tf32(options_));
  if (team_.leads()) {
    TrainOptions o = options_;
    Recipe recipe = recipe_;
    recipe.use_one_rank();
    set_ranks(o, recipe, {}, {});
    o.sharding = kDdp;
    o.tf32 = false;
    o.staging = false;
    o.sample_positions = 0;
    const RunPlan plan = Trainer::plan(o);
    Arena memory(plan.device, o.device), host(plan.host, Arena::Pinned{});
    Queue q(o.device, memory, host);
    Trainer alone(q, o);
    load_state(q, alone);
    StepBatches whole = step_batches({}, recipe);
    check.alone = alone.try_step(whole.of(record_.step), record_.step, [&] {
      compare_gradients(check, q, &alone.params(), trainer_->params(), mine, *channel);
    });
    check.allowed = allowed_difference(options_, micro_batches_of_a_step());
    require(check.agrees(), Fault::bug, "self check: the ranks differ: {}",
            check.text(team_.size()));
    log::say("self check: {}", check.text(team_.size()));
  } else {
    compare_gradients(check, queue_, nullptr, trainer_->params(), mine, *channel);
  }
  team_.sync();
}

std::optional<Calibration> TrainingRun::measured(TrainOptions& o) const {
  auto calibration = find_calibration(o.device);
  if (!calibration || !calibration->types.contains(type_of_products(o))) return std::nullopt;
  if (team_.size() > 1) {
    const auto network = network_of(*calibration, team_.size(), team_.machines());
    if (!network) return std::nullopt;
    o.network.seconds_per_message = network->seconds_per_message;
    o.network.bytes_per_second = network->bytes_per_second;
  }
  return calibration;
}

void TrainingRun::predict() {
  TrainOptions o = options_;
  const auto calibration = measured(o);
  if (!calibration) return;
  warn_of_other_kernels(*calibration);
  prediction_.calibration = label_of(*calibration);
  prediction_.from_data_sheet = calibration->from_data_sheet;
  prediction_.step_seconds = estimate_run(o, cost_model(*calibration, o), recipe_, inputs_).seconds;
}

void TrainingRun::choose_overlap(const Room& room) {
  TrainOptions o = options_;
  int pays = 0;
  if (team_.leads())
    if (const auto calibration = measured(o))
      pays = overlap_pays(o, cost_model(*calibration, o), room) ? 1 : 0;
  options_.mesh.overlap = team_.of_leader(pays) == 1;
  if (options_.mesh.overlap)
    log::say("tensor_parallel_overlap: true, which is faster by what was measured here");
}

}  // namespace capstan
