#pragma once

#include <filesystem>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/extra_file.h"
#include "checkpoint/training_state.h"
#include "optim/optimizer.h"

// A training checkpoint is a model's folder, or, where the model has adapters, an adapter's
// (adapter.h), with
//   training_state/state.json             a TrainingState
//   training_state/optimizer.safetensors  Optimizer::state(), by its names ("NAME.exp_avg" of a
//                                         tensor NAME); its metadata: "optimizer" and "steps"
//   MANIFEST.json                         manifest.h
namespace capstan {

// Restores parameters, moments and the count of the optimizer's steps, bit for bit, and returns the
// state. Of a model with adapters, those: its base is load_parameters' part. Throws Fault::file and
// changes nothing unless everything is there, in the types that the run stores: another precision,
// optimizer or kind of checkpoint is told as such. Verifies no sums: call verify_checkpoint first,
// or take what newest_checkpoint found. On sim it checks, and reads no data. A file that cannot be
// read after all leaves a part of it restored.
TrainingState load_checkpoint(Queue& q, Parameters& params, Optimizer& optimizer,
                              const std::filesystem::path& dir);

// Room in host memory for one copy of all that a checkpoint holds: what is trained, and its
// moments. The arena must outlive it; it stays where it is, since a save in progress reads from it.
class Snapshot {
 public:
  // Takes Category::staging from the queue's host(), outside of a phase. A queue on cuda needs one
  // that is not its arena.
  Snapshot(Queue& q, const Parameters& params, const Optimizer& optimizer);
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Copies the stored parameters and the moments of what is trained; done on return.
  void capture(Queue& q, const Parameters& params, const Optimizer& optimizer);

  // Of parameter i; absent where it is not saved.
  Tensor stored(int i) const { return *stored_[static_cast<size_t>(i)]; }
  // Of the optimizer's state(), in its order.
  Tensor state(size_t i) const { return *state_[i]; }

 private:
  std::vector<Buffer> stored_, state_;
};

// What one save writes.
struct SaveRequest {
  std::filesystem::path dir;  // a checkpoint of that name is replaced
  TrainingState state;
  // A generation_config.json among them takes the place of ours, which adapters have none of.
  std::vector<ExtraFile> extras;
  // Called when all is written, before the folder gets its name, perhaps by another thread: what it
  // throws fails the save.
  std::function<void()> before_name;
  std::string base_model;   // of adapters: the base_model_name_or_path
  std::string config_like;  // of whole models: as config_json (model/config.h) has it
  int64_t max_shard_bytes = 5'000'000'000;
  bool moments = true;  // without them it is a model to use, not a state to go on from
  int keep = 0;         // afterwards keep_last(dir's folder, keep); 0: deletes nothing
  // To try a save: tensors are left out where those before them have this many bytes.
  int64_t max_bytes = INT64_MAX;
};

// Saves checkpoints, one at a time. With a snapshot, save() copies into it and returns, and a
// thread writes; without one, save() writes from the parameters and returns when that is done.
// All arguments must outlive it. Belongs to one thread.
class CheckpointSaver {
 public:
  CheckpointSaver(Queue& q, const Parameters& params, const Optimizer& optimizer,
                  Snapshot* snapshot);
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;
  // Waits. An error that nobody waited for is logged as a warning.
  ~CheckpointSaver();

  // Waits for the save before it, and throws its error. The folder appears under its name when it
  // is complete and on the disk; until then, and after any failure (Fault::file, naming the file),
  // what had the name before is untouched.
  void save(SaveRequest request);
  // Until the last save is done. Throws its error, once.
  void wait();
  bool busy() const;

  // Bytes of a checkpoint but for small files: about what a disk needs.
  int64_t bytes() const;

 private:
  Queue& q_;
  const Parameters& params_;
  const Optimizer& optimizer_;
  Snapshot* snapshot_;
  std::future<void> running_;
};

// Proves, before a run starts, that `dir` can be saved to: the folder can be made (its parents
// are), a probe of a few bytes can be written and synced there, and `at_once` times `bytes` can be
// had: 2 where a run saves more than once, since the checkpoint before stays until the next is
// complete. They are taken for a moment where the file system can, so that quotas count, too.
// Throws Fault::file, naming the file or folder, and the space needed.
void check_can_save(const std::filesystem::path& dir, int64_t bytes, int at_once = 1);

}  // namespace capstan
