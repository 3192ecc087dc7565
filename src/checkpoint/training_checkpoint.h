#pragma once

#include <filesystem>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/extra_file.h"
#include "checkpoint/training_state.h"
#include "comm/host_channel.h"
#include "optim/optimizer.h"

// A training checkpoint is a model's folder, or for a model with adapters an adapter's (adapter.h),
// with
//   training_state/state.json             a TrainingState
//   training_state/optimizer.safetensors  Optimizer::state(), by its names ("NAME.exp_avg" of a
//                                         tensor NAME); its metadata: "optimizer" and "steps"
//   MANIFEST.json                         manifest.h
namespace capstan {

// Restores parameters, moments and the optimizer's step count, bit for bit, and returns the state.
// For a model with adapters, restores those; load_parameters loads its base. Throws Fault::file and
// changes nothing unless everything is there, in the types that the run stores; a different
// precision, optimizer or kind of checkpoint has its own message. Does not verify checksums: call
// verify_checkpoint first, or use newest_checkpoint. On sim it checks, but reads no data. A read
// error in the middle leaves it partly restored.
TrainingState load_checkpoint(Queue& q, Parameters& params, Optimizer& optimizer,
                              const std::filesystem::path& dir);

// Host buffers for one copy of what this rank contributes to a checkpoint: the trained parameters
// that it owns, and their moments. Arena, parameters and optimizer must outlive it. It cannot move,
// since a save in progress reads from it.
class Snapshot {
 public:
  // Allocates Category::staging from the queue's host(), outside of a phase. A queue on cuda needs
  // a host() that is not its arena.
  Snapshot(Queue& q, const Parameters& params, const Optimizer& optimizer);
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Copies the stored parameters and their moments; complete on return.
  void capture(Queue& q);

  // All tensors of the checkpoint; their pieces are the copies.
  std::vector<SavedTensor> weights() const;
  std::vector<SavedTensor> state() const;

 private:
  std::vector<SavedTensor> owned_state() const;

  const Parameters& params_;
  const Optimizer& optimizer_;
  std::vector<Buffer> weights_;  // by owned range
  std::vector<Buffer> state_;    // by piece of owned_state
};

// What one save writes.
struct SaveRequest {
  std::filesystem::path dir;  // replaces a checkpoint of that name
  TrainingState state;
  // A generation_config.json among them replaces ours; adapters have none.
  std::vector<ExtraFile> extras;
  // Called when everything is written, before the folder gets its name, possibly by another thread.
  // If it throws, the save fails.
  std::function<void()> before_name;
  std::string base_model;   // for adapters: the base_model_name_or_path
  std::string config_like;  // for whole models: as in config_json (model/config.h)
  int64_t max_shard_bytes = 5'000'000'000;
  bool moments = true;  // without them it is a model, and no run can resume from it
  int keep = 0;         // then call keep_last(dir's folder, keep); 0: delete nothing
  // For a trial save: stops after tensors with this many bytes.
  int64_t max_bytes = INT64_MAX;
};

// Saves checkpoints, one at a time. With a snapshot, save() copies into it and returns, and a
// thread writes; without one, save() writes directly from the parameters before it returns. All
// references must outlive it. Not thread safe.
//
// Among several ranks, all of them save together, over a channel that nothing else uses: rank 0
// writes the files, the others send it what they own. The bytes do not depend on the ranks.
class CheckpointSaver {
 public:
  // Without a channel: one rank.
  CheckpointSaver(Queue& q, const Parameters& params, const Optimizer& optimizer,
                  Snapshot* snapshot, std::shared_ptr<HostChannel> channel = nullptr);
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;
  // Waits. Logs a pending error as a warning.
  ~CheckpointSaver();

  // Waits for the previous save, and throws its error. The folder appears under its name when it is
  // complete and flushed to disk; until then, and after any failure (Fault::file, naming the file),
  // the previous checkpoint of that name is untouched.
  void save(SaveRequest request);
  // Waits for the last save. Throws its error, once.
  void wait();
  bool busy() const;

  // Bytes of a checkpoint without small files: about what it needs on disk.
  int64_t bytes() const;

 private:
  Queue& q_;
  const Parameters& params_;
  const Optimizer& optimizer_;
  Snapshot* snapshot_;
  std::shared_ptr<HostChannel> channel_;
  std::future<void> running_;
};

// Checks, before a run starts, that `dir` can be saved to: the folder can be created (its parents
// are), a few bytes can be written and synced there, and `at_once` times `bytes` are free. at_once
// is 2 if a run saves more than once, since the previous checkpoint stays until the next is
// complete. Reserves the space for a moment if the file system supports it, so that quotas count,
// too. Throws Fault::file, naming the file or folder, and the space needed.
void check_can_save(const std::filesystem::path& dir, int64_t bytes, int at_once = 1);

}  // namespace capstan
