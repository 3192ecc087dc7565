#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "checkpoint/adapter.h"
#include "checkpoint/find.h"
#include "checkpoint/spread_tensor.h"
#include "checkpoint/stored_parts.h"
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
  std::vector<SpreadTensor> weights, moments;
  std::map<std::string, std::string> optimizer;  // metadata
  Queue* queue = nullptr;  // to fetch the tensors through; null: they are in host memory
};

Contents contents_of(const Parameters& params, const Optimizer& optimizer, const Snapshot* snapshot,
                     Queue& queue) {
  Contents c;
  if (snapshot == nullptr) c.queue = &queue;
  c.config = params.spec().config;
  c.config.dtype = params.types().master;
  c.optimizer = {{"optimizer", std::string(name_of(optimizer.options().kind))},
                 {"steps", std::to_string(optimizer.steps())}};
  c.lora = params.spec().lora;
  c.weights = spread(params, snapshot == nullptr ? stored_parts(params, saved_rows(params.spec()))
                                                 : snapshot->weights());
  c.moments = spread(params, snapshot == nullptr ? optimizer.state() : snapshot->state());
  return c;
}

int64_t nbytes(const std::vector<SpreadTensor>& tensors) {
  int64_t bytes = 0;
  for (const SpreadTensor& t : tensors) bytes += t.tensor.nbytes();
  return bytes;
}

// The first tensors, until they exceed `max_bytes`.
void keep_first(std::vector<SpreadTensor>& tensors, int64_t max_bytes) {
  size_t count = 0;
  for (int64_t bytes = 0; count < tensors.size() && bytes < max_bytes; ++count)
    bytes += tensors[count].tensor.nbytes();
  tensors.resize(count);
}

std::vector<TensorToWrite> to_write(const std::vector<SpreadTensor>& tensors, Queue* q,
                                    HostChannel& channel) {
  std::vector<TensorToWrite> all;
  for (const SpreadTensor& t : tensors) all.push_back(to_write(t, q, channel));
  return all;
}

using TensorList = std::vector<TensorToWrite>;

void write_model_files(const fs::path& path, const Contents& contents, const TensorList& weights,
                       const SaveRequest& request, Threads threads, Manifest& sums) {
  sums["generation_config.json"] =
      write_text(path / "generation_config.json", generation_config_json(contents.config));
  for (const ExtraFile& extra : request.extras) sums[extra.name] = write_extra(path, extra);
  sums["config.json"] =
      write_text(path / "config.json", config_json(contents.config, request.config_like));
  write_weights(path, weights, request.max_shard_bytes, threads, sums);
}

void write_adapter_files(const fs::path& path, const Contents& contents, const TensorList& weights,
                         const SaveRequest& request, Threads threads, Manifest& sums) {
  for (const ExtraFile& extra : request.extras) sums[extra.name] = write_extra(path, extra);
  sums[std::string(kAdapterConfigFile)] =
      write_text(path / kAdapterConfigFile,
                 adapter_config_json({.lora = *contents.lora, .base = request.base_model}));
  sums[std::string(kAdapterFile)] =
      write_tensor_file(path / kAdapterFile, weights, {{"format", "pt"}}, threads);
}

void write_checkpoint(const Contents& contents, const SaveRequest& request, Threads threads,
                      HostChannel& channel) {
  NewFolder folder(request.dir);
  const fs::path& path = folder.path();
  require_space(path, nbytes(contents.weights) + nbytes(contents.moments));
  Manifest sums;
  const auto write_files = contents.lora ? write_adapter_files : write_model_files;
  write_files(path, contents, to_write(contents.weights, contents.queue, channel), request, threads,
              sums);
  sums[std::string(kStateFile)] =
      write_extra(path, ExtraFile::text(std::string(kStateFile), state_json(request.state)));
  if (request.moments)
    sums[std::string(kOptimizerFile)] = write_tensor_file(
        path / kOptimizerFile, to_write(contents.moments, contents.queue, channel),
        contents.optimizer, threads);
  write_manifest(path, sums);
  if (request.before_name) request.before_name();
  folder.commit();
  if (request.keep > 0)
    keep_last(fs::absolute(request.dir).lexically_normal().parent_path(), request.keep,
              request.dir);
}

// This rank's part of a save. If it fails, so does that of every rank.
void save_part(const Contents& contents, const SaveRequest& request, Threads threads,
               HostChannel& channel) {
  try {
    if (channel.rank() == 0) return write_checkpoint(contents, request, threads, channel);
    send_values(contents.weights, contents.queue, channel);
    send_values(contents.moments, contents.queue, channel);
  } catch (const std::exception& e) {
    channel.abort(e.what());
    throw;
  }
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

Snapshot::Snapshot(Queue& q, const Parameters& params, const Optimizer& optimizer)
    : params_(params), optimizer_(optimizer) {
  require(q.device() != Device::cuda || q.host().pinned(), Fault::bug,
          "a snapshot on cuda without host memory");
  for (const Range& r : params.owned())
    weights_.push_back(
        q.host().make(Category::staging, params.types().master, {r.count}, "staged parameter"));
  for (const SavedTensor& t : owned_state())
    for (const SavedTensor::Piece& piece : t.pieces)
      state_.push_back(q.host().make(Category::staging, t.type, {piece.values.numel()},
                                     "staged optimizer state"));
}

std::vector<SavedTensor> Snapshot::owned_state() const {
  std::vector<SavedTensor> all = optimizer_.state();
  for (SavedTensor& t : all) t = only(t, params_.owned());
  return all;
}

void Snapshot::capture(Queue& q) {
  const std::vector<Range>& owned = params_.owned();
  for (size_t i = 0; i < owned.size(); ++i) copy(q, weights_[i], params_.stored(owned[i]));
  size_t next = 0;
  for (const SavedTensor& t : owned_state())
    for (const SavedTensor::Piece& piece : t.pieces) copy(q, state_[next++], piece.values);
  q.synchronize();
}

std::vector<SavedTensor> Snapshot::weights() const {
  std::vector<SavedTensor> all = stored_parts(params_, saved_rows(params_.spec()));
  const std::vector<Range>& owned = params_.owned();
  for (SavedTensor& t : all) {
    t.pieces.clear();
    for (size_t i = 0; i < owned.size(); ++i)
      if (const Range some = overlap(owned[i], t.range); some.count > 0)
        t.pieces.push_back({some.first - t.range.first,
                            weights_[i]->rows(some.first - owned[i].first, some.count)});
  }
  return all;
}

std::vector<SavedTensor> Snapshot::state() const {
  std::vector<SavedTensor> all = owned_state();
  size_t next = 0;
  for (SavedTensor& t : all)
    for (SavedTensor::Piece& piece : t.pieces) piece.values = *state_[next++];
  return all;
}

CheckpointSaver::CheckpointSaver(Queue& q, const Parameters& params, const Optimizer& optimizer,
                                 Snapshot* snapshot, std::shared_ptr<HostChannel> channel)
    : q_(q),
      params_(params),
      optimizer_(optimizer),
      snapshot_(snapshot),
      channel_(channel ? std::move(channel) : channel_of_one()) {}

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
    return save_part(contents, request, Threads::all, *channel_);
  }
  snapshot_->capture(q_);
  Contents contents = wanted(contents_of(params_, optimizer_, snapshot_, q_));
  running_ = start_without_signals(
      [contents = std::move(contents), request = std::move(request), channel = channel_] {
        save_part(contents, request, Threads::one, *channel);
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
  for (const SavedTensor& t : stored_parts(params_, saved_rows(params_.spec())))
    bytes += t.nbytes();
  for (const SavedTensor& t : optimizer_.state()) bytes += t.nbytes();
  return bytes;
}

void check_can_save(const fs::path& dir, int64_t bytes, int at_once) {
  const NewFolder folder(dir);
  require_writable(folder.path());
  require_space(folder.path().parent_path(), bytes * at_once);
  reserve_space(folder.path(), bytes * at_once);
}

}  // namespace capstan
