#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "checkpoint/adapter.h"
#include "checkpoint/find.h"
#include "checkpoint/stored_parts.h"
#include "checkpoint/tensor_writer.h"
#include "checkpoint/training_checkpoint.h"
#include "ops/elementwise.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

// What a save writes besides the request: views of the tensors, and copies of the rest, since the
// training continues meanwhile.
struct Contents {
  ModelConfig config;
  std::optional<LoraOptions> lora;  // the weights are the adapters only
  std::vector<TensorToWrite> weights, moments;
  std::map<std::string, std::string> optimizer;  // metadata
};

bool is_saved(const Parameters& params, int i) {
  const ModelSpec& spec = params.spec();
  return rows_of(spec.params[static_cast<size_t>(i)]) == saved_rows(spec);
}

// From the snapshot, in host memory; without one, from the run itself, through the queue.
Contents contents_of(const Parameters& params, const Optimizer& optimizer, const Snapshot* snapshot,
                     Queue& queue) {
  Queue* const q = snapshot == nullptr ? &queue : nullptr;
  Contents c;
  c.config = params.spec().config;
  c.config.dtype = params.types().master;
  c.optimizer = {{"optimizer", std::string(name_of(optimizer.options().kind))},
                 {"steps", std::to_string(optimizer.steps())}};
  c.lora = params.spec().lora;
  for (int i = 0; i < params.count(); ++i) {
    if (!is_saved(params, i)) continue;
    const Tensor whole = snapshot == nullptr ? params.stored(i) : snapshot->stored(i);
    for (const Part& part : params.spec().params[static_cast<size_t>(i)].parts)
      c.weights.push_back(
          tensor_to_write(part.name, whole.rows(part.first_row, part.rows), whole.dtype(), q));
  }
  std::vector<Optimizer::State> state = optimizer.state();
  for (size_t i = 0; i < state.size(); ++i) {
    const Tensor t = snapshot == nullptr ? state[i].tensor : snapshot->state(i);
    c.moments.push_back(tensor_to_write(std::move(state[i].name), t, t.dtype(), q));
  }
  return c;
}

int64_t nbytes(const std::vector<TensorToWrite>& tensors) {
  int64_t bytes = 0;
  for (const TensorToWrite& t : tensors) bytes += t.item.nbytes();
  return bytes;
}

// The first tensors, until they exceed `max_bytes`.
void keep_first(std::vector<TensorToWrite>& tensors, int64_t max_bytes) {
  size_t count = 0;
  for (int64_t bytes = 0; count < tensors.size() && bytes < max_bytes; ++count)
    bytes += tensors[count].item.nbytes();
  tensors.resize(count);
}

void write_model_files(const fs::path& path, const Contents& contents, const SaveRequest& request,
                       Threads threads, Manifest& sums) {
  sums["generation_config.json"] =
      write_text(path / "generation_config.json", generation_config_json(contents.config));
  for (const ExtraFile& extra : request.extras) sums[extra.name] = write_extra(path, extra);
  sums["config.json"] =
      write_text(path / "config.json", config_json(contents.config, request.config_like));
  write_weights(path, contents.weights, request.max_shard_bytes, threads, sums);
}

void write_adapter_files(const fs::path& path, const Contents& contents, const SaveRequest& request,
                         Threads threads, Manifest& sums) {
  for (const ExtraFile& extra : request.extras) sums[extra.name] = write_extra(path, extra);
  sums[std::string(kAdapterConfigFile)] =
      write_text(path / kAdapterConfigFile,
                 adapter_config_json({.lora = *contents.lora, .base = request.base_model}));
  sums[std::string(kAdapterFile)] =
      write_tensor_file(path / kAdapterFile, contents.weights, {{"format", "pt"}}, threads);
}

void write_checkpoint(const Contents& contents, const SaveRequest& request, Threads threads) {
  NewFolder folder(request.dir);
  const fs::path& path = folder.path();
  require_space(path, nbytes(contents.weights) + nbytes(contents.moments));
  Manifest sums;
  const auto write_files = contents.lora ? write_adapter_files : write_model_files;
  write_files(path, contents, request, threads, sums);
  sums[std::string(kStateFile)] =
      write_extra(path, ExtraFile::text(std::string(kStateFile), state_json(request.state)));
  if (request.moments)
    sums[std::string(kOptimizerFile)] =
        write_tensor_file(path / kOptimizerFile, contents.moments, contents.optimizer, threads);
  write_manifest(path, sums);
  if (request.before_name) request.before_name();
  folder.commit();
  if (request.keep > 0)
    keep_last(fs::absolute(request.dir).lexically_normal().parent_path(), request.keep,
              request.dir);
}

// The training thread handles signals: this thread's writes must not be interrupted.
template <class Body>
std::future<void> start_without_signals(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto restore = [&] { pthread_sigmask(SIG_SETMASK, &before, nullptr); };
  try {
    auto running = std::async(std::launch::async, std::move(body));
    restore();
    return running;
  } catch (const std::exception& e) {
    restore();
    fail(Fault::device, "cannot start the thread that saves checkpoints: {}", e.what());
  }
}

}  // namespace

Snapshot::Snapshot(Queue& q, const Parameters& params, const Optimizer& optimizer) {
  require(q.device() != Device::cuda || q.host().pinned(), Fault::bug,
          "a snapshot on cuda without host memory");
  const auto room_for = [&](const Tensor& like, const char* name) {
    return q.host().make(Category::staging, like.dtype(), like.shape(), name);
  };
  for (int i = 0; i < params.count(); ++i)
    stored_.push_back(is_saved(params, i) ? room_for(params.stored(i), "staged parameter")
                                          : Buffer());
  for (const Optimizer::State& s : optimizer.state())
    state_.push_back(room_for(s.tensor, "staged optimizer state"));
}

void Snapshot::capture(Queue& q, const Parameters& params, const Optimizer& optimizer) {
  for (int i = 0; i < params.count(); ++i)
    if (is_saved(params, i)) copy(q, stored(i), params.stored(i));
  const std::vector<Optimizer::State> now = optimizer.state();
  for (size_t i = 0; i < now.size(); ++i) copy(q, state(i), now[i].tensor);
  q.synchronize();
}

CheckpointSaver::CheckpointSaver(Queue& q, const Parameters& params, const Optimizer& optimizer,
                                 Snapshot* snapshot)
    : q_(q), params_(params), optimizer_(optimizer), snapshot_(snapshot) {}

CheckpointSaver::~CheckpointSaver() {
  try {
    wait();
  } catch (const std::exception& e) {
    log::warn("{}", e.what());
  }
}

void CheckpointSaver::save(SaveRequest request) {
  wait();
  const auto wanted = [&](Contents all) {
    if (!request.moments) all.moments.clear();
    require_file_size(request.dir / kOptimizerFile, nbytes(all.moments));
    keep_first(all.weights, request.max_bytes);
    keep_first(all.moments, request.max_bytes);
    return all;
  };
  if (snapshot_ == nullptr) {
    const Contents contents = wanted(contents_of(params_, optimizer_, nullptr, q_));
    return write_checkpoint(contents, request, Threads::all);
  }
  snapshot_->capture(q_, params_, optimizer_);
  Contents contents = wanted(contents_of(params_, optimizer_, snapshot_, q_));
  running_ = start_without_signals([contents = std::move(contents), request = std::move(request)] {
    write_checkpoint(contents, request, Threads::one);
  });
}

void CheckpointSaver::wait() {
  if (running_.valid()) running_.get();
}

bool CheckpointSaver::busy() const {
  return running_.valid() &&
         running_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

int64_t CheckpointSaver::bytes() const {
  int64_t bytes = 0;
  for (int i = 0; i < params_.count(); ++i)
    if (is_saved(params_, i)) bytes += params_.stored(i).nbytes();
  for (const Optimizer::State& s : optimizer_.state()) bytes += s.tensor.nbytes();
  return bytes;
}

void check_can_save(const fs::path& dir, int64_t bytes, int at_once) {
  const NewFolder folder(dir);
  require_writable(folder.path());
  require_space(folder.path().parent_path(), bytes * at_once);
  reserve_space(folder.path(), bytes * at_once);
}

}  // namespace capstan
