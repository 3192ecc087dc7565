#pragma once

#include <filesystem>
#include <string>

#include "base/files.h"
#include "checkpoint/adapter.h"
#include "checkpoint/small_run.h"

// What the tests of adapters share.
namespace capstan {

inline const LoraOptions kLora = {.r = 3, .alpha = 16, .key = true, .mlp = true, .head = true};

inline SaveRequest request(const std::filesystem::path& dir, int64_t step) {
  SaveRequest r = SmallRun::request(dir, step);
  r.base_model = "models/base";
  return r;
}

inline void save(SmallRun& run, const std::filesystem::path& dir, int64_t step) {
  run.set(step);
  CheckpointSaver saver(run.model.queue, run.model.params, run.optimizer, nullptr);
  saver.save(request(dir, step));
}

inline TrainingState resume(SmallRun& run, const std::filesystem::path& dir) {
  return load_checkpoint(run.model.queue, run.model.params, run.optimizer, dir);
}

inline void load(SmallRun& run, const std::filesystem::path& dir) {
  load_adapter(run.model.queue, run.model.params, dir);
}

// The message of a load that must fail and change nothing.
template <class Load>
std::string failure(SmallRun& run, const Load& load_it) {
  const std::string before = run.bits();
  const std::string message = message_of(Fault::file, load_it);
  EXPECT_EQ(run.bits() == before, true) << "something was changed";
  return message;
}

inline void replace(const std::filesystem::path& path, const std::string& from,
                    const std::string& to) {
  std::string text = read_text(path);
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  write_text(path, text.replace(at, from.size(), to));
}

}  // namespace capstan
