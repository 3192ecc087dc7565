#include "checkpoint/manifest.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/quick_folder.h"
#include "checkpoint/save_model.h"
#include "checkpoint/small_run.h"
#include "checkpoint/training_state.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

class Verify : public testing::Test {
 protected:
  Verify() { SmallRun().save(dir_, 1); }
  std::string failure() {
    return message_of(Fault::file, [&] { verify_checkpoint(dir_); });
  }
  void replace_in_manifest(const std::string& from, const std::string& to) {
    std::string text = read_text(dir_ / kManifest);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_text(dir_ / kManifest, text.replace(at, from.size(), to));
  }

  QuickFolder folder_;
  fs::path dir_ = folder_ / "step-1";
};

TEST_F(Verify, SaysWhichFileIsMissingShorterLongerOrOther) {
  const std::string text = read_text(dir_ / "config.json");
  const auto path = (dir_ / "config.json").string();
  write_text(path, text + "\n");
  EXPECT_TRUE(failure().starts_with(fmt::format("{}: expected {} bytes, found {}: it is too long",
                                                path, text.size(), text.size() + 1)))
      << failure();
  write_text(path, text.substr(1));
  EXPECT_NE(failure().find("it is truncated"), std::string::npos);
  write_text(path, std::string(text.size(), ' '));
  EXPECT_TRUE(
      failure().starts_with(path + ": expected contents with the SHA-256 " + sha256_of(text)));
  fs::remove(path);
  EXPECT_NE(failure().find("config.json: expected a file of "), std::string::npos);
  EXPECT_NE(failure().find("found none; this checkpoint is damaged: copy it again"),
            std::string::npos);
  fs::create_directory(path);
  EXPECT_NE(failure().find("found something else"), std::string::npos);
}

TEST_F(Verify, LetsUsersAddFilesButNoneThatWouldBeTakenForAPart) {
  write_text(dir_ / "README.md", "mine");
  EXPECT_NO_THROW(verify_checkpoint(dir_));
  for (const char* name : {"model-00001-of-00002.safetensors", "model.safetensors.index.json",
                           "training_state/rng.json"}) {
    write_text(dir_ / name, "");
    EXPECT_NE(failure().find(std::string(name) + ": unexpected file"), std::string::npos);
    fs::remove(dir_ / name);
  }
}

TEST_F(Verify, RefusesAManifestThatIsNotAsWritten) {
  replace_in_manifest("\"format\": 1", "\"format\": 2");
  EXPECT_NE(failure().find("MANIFEST.json: expected what Capstan writes (format 1)"),
            std::string::npos);
  replace_in_manifest("\"format\": 2", "\"format\": 1 ");
  EXPECT_NE(failure().find("expected what Capstan writes"), std::string::npos);
  replace_in_manifest("\"format\": 1 ", "\"format\": 1");
  EXPECT_NO_THROW(verify_checkpoint(dir_));
  replace_in_manifest("\"config.json\"", "\"../config.json\"");
  EXPECT_NE(failure().find("expected what Capstan writes"), std::string::npos);
  write_text(dir_ / kManifest, "[]");
  EXPECT_NE(failure().find("expected what Capstan writes"), std::string::npos);
  write_text(dir_ / kManifest, "{");
  EXPECT_NE(failure().find("MANIFEST.json:1:2: "), std::string::npos) << failure();
}

TEST_F(Verify, SizesAloneAreQuickAndBlind) {
  const std::string text = read_text(dir_ / "config.json");
  write_text(dir_ / "config.json", std::string(text.size(), ' '));
  EXPECT_NO_THROW(verify_sizes(dir_));
  write_text(dir_ / "config.json", "");
  EXPECT_THROW(verify_sizes(dir_), Error);
}

TEST(SavedModel, HasAManifest) {
  QuickFolder folder;
  Model model(small("LlamaForCausalLM"));
  save_model(model.queue, model.params, folder / "out");
  EXPECT_EQ(read_manifest(folder / "out").size(), 3u);
  EXPECT_NO_THROW(verify_checkpoint(folder / "out"));
}

TEST(TrainingState, ComesBackBitForBit) {
  TrainingState s = SmallRun::state(3);
  s.seed = UINT64_MAX;
  s.tokens = INT64_MAX;
  s.seconds = 0.1 + 0.2;
  s.first_loss = 11.0000000000000018;
  s.val_loss = 5e-324;
  s.recipe = "a: \"\\n\" # ü\n";
  EXPECT_EQ(parse_state(state_json(s), "x"), s);
  s.last_loss = std::nan("");
  s.val_loss = std::numeric_limits<double>::infinity();
  const TrainingState back = parse_state(state_json(s), "x");
  EXPECT_FALSE(back.last_loss || back.val_loss);
  s.recipe = "\xff";
  EXPECT_NO_THROW(parse_state(state_json(s), "x")) << "a save does not fail for a recipe's bytes";
}

TEST(TrainingState, OfAnEarlierVersionLacksWhatCameLater) {
  TrainingState s = SmallRun::state(3);
  s.eval_seconds = 1.5;
  s.save_seconds = 2.5;
  s.started = 1700000000;
  s.base_fingerprint = "base";
  s.base_checksum = "0123456789abcdef";
  s.computed_on = "a processor, 2 threads";
  s.order_of_sums = "in some order";
  EXPECT_EQ(parse_state(state_json(s), "x"), s);
  auto earlier = nlohmann::json::parse(state_json(s));
  for (const char* key : {"eval_seconds", "save_seconds", "started", "base_fingerprint",
                          "base_checksum", "computed_on", "order_of_sums"})
    EXPECT_EQ(earlier.erase(key), 1u) << key;
  EXPECT_EQ(parse_state(earlier.dump(), "x"), SmallRun::state(3));
}

TEST(TrainingState, ErrorsPointIntoTheFile) {
  const std::string good = state_json(SmallRun::state(3));
  const auto failure = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return message_of(Fault::file, [&] { parse_state(text, "state.json"); });
  };
  EXPECT_EQ(failure("\"step\": 3", "\"step\": -3"),
            "state.json:3:3: step: expected a whole number, found -3");
  EXPECT_EQ(failure("\"step\"", "\"steps\""), "state.json:1:1: step: expected a value, found none");
  EXPECT_EQ(failure("\"format\": 1", "\"format\": 2"),
            "state.json:2:3: format: expected 1, found 2");
  EXPECT_EQ(failure("\"seed\": 1337,", "\"seed\": 1337, \"more\": 0,"),
            "state.json:4:17: \"more\": no such key");
  EXPECT_EQ(failure("\"recipe\": ", "\"recipe\": 3, \"x\": "),
            "state.json:23:3: recipe: expected a string, found 3");
  EXPECT_NE(message_of(Fault::file, [&] { parse_state("3", "state.json"); })
                .find("state.json:1:1: expected an object, found 3"),
            std::string::npos);
}

}  // namespace
}  // namespace capstan
