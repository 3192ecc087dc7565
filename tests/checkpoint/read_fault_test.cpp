// Blocks of a disk that cannot be read, in every file of a checkpoint.
#include <gtest/gtest.h>

#include <random>

#include "base/files.h"
#include "checkpoint/find.h"
#include "checkpoint/manifest.h"
#include "checkpoint/quick_folder.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/small_run.h"
#include "checkpoint/torch_file.h"
#include "support/fail_files.h"
#include "support/message_of.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

class BadByte {
 public:
  BadByte(const fs::path& path, int64_t byte) { fail_reads_arm(path.c_str(), byte); }
  BadByte(const BadByte&) = delete;
  BadByte& operator=(const BadByte&) = delete;
  ~BadByte() { fail_reads_arm(nullptr, -1); }
};

std::string told(const fs::path& path, int64_t byte) {
  return fmt::format("{}: cannot read byte {}: Input/output error", path.string(), byte);
}

TEST(ReadFaults, OfACheckpointNameFileAndByteAndTheOneBeforeIsTaken) {
  const QuickFolder folder;
  SmallRun().save(folder / "step-000001", 1);
  SmallRun().save(folder / "step-000002", 2);
  std::mt19937_64 random(3);
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "step-000002")) {
    if (!entry.is_regular_file()) continue;
    ++files;
    const auto size = static_cast<int64_t>(entry.file_size());
    for (const int64_t byte : {int64_t{0}, static_cast<int64_t>(random()) & (size - 1), size - 1}) {
      if (byte >= size) continue;
      const BadByte bad(entry.path(), byte);
      EXPECT_TRUE(message_of(Fault::file, [&] {
                    verify_checkpoint(folder / "step-000002");
                  }).starts_with(told(entry.path(), byte)));
      const CheckpointSearch found = newest_checkpoint(folder.path());
      ASSERT_TRUE(found.newest);
      EXPECT_EQ(found.newest->state.step, 1) << entry.path();
      ASSERT_EQ(found.skipped.size(), 1u);
      EXPECT_TRUE(found.skipped[0].starts_with(told(entry.path(), byte))) << found.skipped[0];
    }
  }
  EXPECT_EQ(files, 7);
  EXPECT_EQ(newest_checkpoint(folder.path()).newest->state.step, 2) << "without a bad byte";
}

TEST(ReadFaults, WhileWeightsAreLoadedNameFileAndByte) {
  const QuickFolder folder;
  SmallRun run;
  run.save(folder / "c", 1);
  const auto load = [&] {
    load_checkpoint(run.model.queue, run.model.params, run.optimizer, folder / "c");
  };
  for (const char* name : {"model.safetensors", "training_state/optimizer.safetensors"}) {
    const fs::path path = folder / "c" / name;
    const SafetensorsFile file(path);
    for (const int64_t byte : {int64_t{3}, file.header().data_begin - 1, file.header().data_begin,
                               static_cast<int64_t>(fs::file_size(path)) - 1}) {
      const BadByte bad(path, byte);
      EXPECT_TRUE(message_of(Fault::file, load).starts_with(told(path, byte)));
      EXPECT_GE(fail_reads_count(), 1);
    }
  }
  EXPECT_NO_THROW(load());
}

TEST(ReadFaults, OfATorchFileNameFileAndByte) {
  const fs::path pickles = fs::path(CAPSTAN_SOURCE_DIR) / "tests/checkpoint/pickles";
  int files = 0;
  for (const auto& entry : fs::directory_iterator(pickles)) {
    const fs::path& path = entry.path();
    std::unique_ptr<TorchFile> file;
    try {
      file = std::make_unique<TorchFile>(path);
    } catch (const Error&) {  // meant to be refused
      continue;
    }
    ++files;
    for (const StoredTensor& t : file->tensors()) {
      if (t.numel() == 0) continue;
      const BadByte bad(path, t.begin);
      std::vector<std::byte> room;
      EXPECT_TRUE(message_of(Fault::file, [&] {
                    file->read(t, 0, t.numel(), room);
                  }).starts_with(told(path, t.begin)));
    }
    const auto size = static_cast<int64_t>(entry.file_size());
    for (const int64_t byte : {int64_t{0}, size - 1}) {
      const BadByte bad(path, byte);
      EXPECT_TRUE(
          message_of(Fault::file, [&] { TorchFile again(path); }).starts_with(told(path, byte)));
    }
  }
  EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace capstan
