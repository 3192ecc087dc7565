#include "cli/plan_answers.h"

#include <algorithm>
#include <filesystem>

#include "base/units.h"
#include "checkpoint/training_checkpoint.h"
#include "site/provision.h"
#include "site/server.h"

namespace capstan::cli {
namespace {

namespace fs = std::filesystem;

// Of a training checkpoint, which does not know the ranks.
int64_t checkpoint_bytes(const TrainOptions& options) {
  Arena arena;
  Queue q(Device::sim, arena, {.device = options.device});
  TrainOptions alone = options;
  alone.ranks = {};
  alone.mesh = {};
  alone.sharding = {.offload = options.sharding.offload};
  Trainer trainer(q, alone);
  return CheckpointSaver(q, trainer.params(), trainer.optimizer(), nullptr).bytes();
}

// Of a file, or of the files in a folder; 0 if it is not there.
int64_t bytes_at(const std::optional<std::string>& path) {
  std::error_code error;
  if (!path || !fs::exists(*path, error)) return 0;
  if (!fs::is_directory(*path, error)) return static_cast<int64_t>(fs::file_size(*path, error));
  int64_t bytes = 0;
  for (fs::recursive_directory_iterator at(*path, error), end; !error && at != end;
       at.increment(error))
    if (at->is_regular_file(error)) bytes += static_cast<int64_t>(at->file_size(error));
  return bytes;
}

int64_t data_bytes(const Recipe& r) {
  int64_t bytes = 0;
  for (const auto* path : {&r.json_path, &r.train_data_path, &r.val_data_path, &r.data_path})
    bytes += bytes_at(*path);
  return bytes;
}

// Checkpoints that are there at the end, besides the final one. A run whose length is the default
// is one whose length is not known: few run for three trillion tokens.
std::optional<int64_t> kept(const Recipe& r, const Planned& planned) {
  if (!r.save_interval) return 0;
  std::optional<int64_t> written;
  if (planned.steps && !planned.default_length) written = (*planned.steps - 1) / *r.save_interval;
  if (!r.keep_last) return written;
  return written ? std::min(*written, *r.keep_last) : *r.keep_last;
}

}  // namespace

std::optional<double> between_machines(const Machines& machines) {
  if (machines.count == 1 || !machines.network) return std::nullopt;
  const Network& n = *machines.network;
  // What was measured as a whole has one rate.
  return n.ranks_per_machine > 0 ? n.across.bytes_per_second : n.bytes_per_second;
}

Needs needs_of(const Planned& planned, const Recipe& recipe, Task task, const Answers& a) {
  const TrainOptions& o = planned.options;
  Needs n;
  n.checkpoint_bytes = checkpoint_bytes(o);
  const ModelSpec spec = make_spec(o.model, o.decay, o.lora, o.quantize);
  n.model_bytes = spec.trainable_count() * size_of(types_of(o.precision).compute);
  if (task != Task::pretrain) n.base_bytes = 2 * make_spec(o.model).parameter_count();
  n.data_bytes = data_bytes(recipe);
  n.checkpoints = kept(recipe, planned).value_or(1);
  n.keeps_all = recipe.save_interval && !recipe.keep_last;
  const auto stored = [&](int64_t checkpoints) {
    return (checkpoints + 1) * n.checkpoint_bytes + n.model_bytes + n.base_bytes + n.data_bytes;
  };
  const auto disk = [](int64_t bytes) {
    return static_cast<int64_t>(provisioned(static_cast<double>(bytes)));
  };
  n.stored_bytes = stored(n.checkpoints);
  n.disk_bytes = disk(n.stored_bytes);
  if (n.keeps_all && n.checkpoints > kUsuallyKept) n.disk_of_last = disk(stored(kUsuallyKept));
  const int devices = a.machines.devices;
  n.planned_host_bytes = n.host_bytes = a.fit.plan.host.total_bytes * devices;
  n.copy_bytes = copy_bytes(o.model);
  n.copies = copies_of(o.model, a.fit.available.device);
  if (o.device == Device::cuda && a.gpu) {
    const HostNeeds host = host_needs({.id = a.gpu->id, .bytes = a.gpu->sold_bytes()}, devices, 0);
    n.host_bytes = std::max(n.host_bytes, host.ram_bytes);
    n.cores = host.cores;
  }
  if (a.time) n.input_tokens = a.time->step.tokens_per_second();
  if (planned.inputs && !planned.rough && !planned.inputs->data.from_cache &&
      planned.inputs->data.seconds > 0) {
    const Dataset& train = planned.inputs->data.train;
    double tokens = 0;
    for (int64_t i = 0; i < train.size(); ++i)
      tokens += static_cast<double>(train.inputs_of(i, planned.inputs->max_seq_length));
    n.tokenizer_tokens = tokens / planned.inputs->data.seconds;
  }
  return n;
}

}  // namespace capstan::cli
