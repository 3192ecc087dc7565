#include "checkpoint/find.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/files.h"
#include "checkpoint/manifest.h"
#include "checkpoint/quick_folder.h"
#include "checkpoint/save_model.h"
#include "checkpoint/small_run.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

class Checkpoints : public testing::Test {
 protected:
  void save(const std::string& name, int64_t step) { run_.save(out_ / name, step); }
  void flip_bit(const fs::path& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(30);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(30);
    file.put(byte);
  }
  std::string newest() {
    search_ = newest_checkpoint(out_);
    return search_.newest ? search_.newest->dir.filename().string() : "none";
  }
  std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(out_)) all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }

  QuickFolder folder_;
  fs::path out_ = folder_ / "out";
  SmallRun run_;
  CheckpointSearch search_;
};

using Names = std::vector<std::string>;

TEST_F(Checkpoints, TheNewestIsThatWithTheMostSteps) {
  EXPECT_EQ(newest(), "none");
  save("step-9", 9);
  save("step-000010", 10);
  EXPECT_EQ(newest(), "step-000010");
  save("final", 7);  // of a shorter run
  EXPECT_EQ(newest(), "step-000010") << "the name does not decide";
  save("final", 12);
  EXPECT_EQ(newest(), "final");
  EXPECT_EQ(search_.newest->state, SmallRun::state(12));
  EXPECT_TRUE(search_.skipped.empty());
}

TEST_F(Checkpoints, OthersAreNotTakenForOnes) {
  save("step-1", 1);
  save("step-x", 8);
  save("steps-9", 9);
  save("step-", 10);
  save_model(run_.model.queue, run_.model.params, out_ / "step-11");
  EXPECT_EQ(newest(), "step-1");
}

TEST_F(Checkpoints, ADamagedOneIsToldAndTheNextOlderTaken) {
  save("step-1", 1);
  save("step-2", 2);
  save("step-3", 3);
  save("step-4", 4);
  flip_bit(out_ / "step-4" / "model.safetensors");
  fs::remove(out_ / "step-3" / "MANIFEST.json");
  fs::resize_file(out_ / "step-2" / "training_state" / "state.json", 20);
  EXPECT_EQ(newest(), "step-1");
  ASSERT_EQ(search_.skipped.size(), 3u);
  EXPECT_NE(search_.skipped[0].find("step-2/training_state/state.json"), std::string::npos);
  EXPECT_NE(search_.skipped[1].find("step-4/model.safetensors: expected contents with the SHA-256"),
            std::string::npos)
      << search_.skipped[1];
  EXPECT_NE(search_.skipped[2].find("step-3/MANIFEST.json: expected a checkpoint's MANIFEST.json"),
            std::string::npos);
  fs::resize_file(out_ / "step-1" / "config.json", 3);
  EXPECT_EQ(newest(), "none");
}

// As a run out of time leaves them: the state, and a model for use.
TEST_F(Checkpoints, AModelBesideADamagedStateIsNothingToGoOnFrom) {
  save("step-1", 1);
  save("step-2", 2);
  CheckpointSaver saver(run_.model.queue, run_.model.params, run_.optimizer, nullptr);
  SaveRequest request = SmallRun::request(out_ / "final", 2);
  request.moments = false;
  saver.save(request);
  EXPECT_EQ(newest(), "step-2");
  flip_bit(out_ / "step-2" / "model.safetensors");
  EXPECT_EQ(newest(), "step-1");
  fs::remove_all(out_ / "step-2");
  EXPECT_EQ(newest(), "final") << "the model of a finished run";
}

TEST_F(Checkpoints, OneThatACrashLeftBetweenTwoRenamesIsFoundAndGetsItsNameBack) {
  save("step-1", 1);
  save("final", 2);
  fs::rename(out_ / "final", replaced_name(out_ / "final"));
  EXPECT_EQ(newest(), ".final.capstan-old");
  keep_last(out_, 1);
  EXPECT_EQ(newest(), "final");
  EXPECT_EQ(names(), (Names{"final", "step-1"}));
}

TEST_F(Checkpoints, KeepLastDeletesTheOldest) {
  for (int64_t step = 1; step <= 5; ++step) save("step-" + std::to_string(step), step);
  save("final", 1);
  fs::create_directories(out_ / "logs");
  keep_last(out_, 3);
  EXPECT_EQ(names(), (Names{"final", "logs", "step-3", "step-4", "step-5"}));
  keep_last(out_, 3);
  EXPECT_EQ(names().size(), 5u);
}

TEST_F(Checkpoints, KeepLastNeverDeletesTheNewestGoodOne) {
  for (int64_t step = 1; step <= 4; ++step) save("step-" + std::to_string(step), step);
  flip_bit(out_ / "step-4" / "model.safetensors");  // unseen by sizes
  flip_bit(out_ / "step-3" / "training_state" / "optimizer.safetensors");
  keep_last(out_, 1);
  EXPECT_EQ(newest(), "step-2");
  EXPECT_EQ(names(), (Names{"step-2", "step-3", "step-4"}));
}

TEST_F(Checkpoints, KeepLastDoesNotCountOnAModelWithoutMoments) {
  save("step-1", 1);
  save("step-2", 2);
  flip_bit(out_ / "step-2" / "model.safetensors");
  CheckpointSaver saver(run_.model.queue, run_.model.params, run_.optimizer, nullptr);
  SaveRequest request = SmallRun::request(out_ / "final", 3);
  request.moments = false;
  request.keep = 1;
  saver.save(request);
  EXPECT_EQ(newest(), "final");
  EXPECT_EQ(names(), (Names{"final", "step-1", "step-2"}));
}

TEST_F(Checkpoints, KeepLastRemovesWhatDeadRunsLeftAndNothingElse) {
  save("step-1", 1);
  fs::create_directories(out_ / ".step-2.capstan-part" / "training_state");
  fs::create_directories(out_ / ".mine");
  const NewFolder alive(out_ / "step-3");
  keep_last(out_, 1);
  EXPECT_EQ(names(), (Names{".mine", ".step-3.capstan-part", "step-1"}));
}

}  // namespace
}  // namespace capstan
