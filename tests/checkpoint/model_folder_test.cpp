#include "checkpoint/model_folder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "checkpoint/quick_folder.h"
#include "checkpoint/save_model.h"
#include "checkpoint/small_model.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

class Index : public testing::Test {
 protected:
  Index() {
    save_model(model_.queue, model_.params, dir_, {.dtype = {}, .max_shard_bytes = 10000});
    index_ = nlohmann::json::parse(read_text(path_));
  }
  std::string failure() {
    write_text(path_, index_.dump(2));
    return load_failure(model_, dir_);
  }
  std::string failure_with(const nlohmann::json& file) {
    index_["weight_map"]["model.norm.weight"] = file;
    return failure();
  }

  QuickFolder folder_;
  fs::path dir_ = folder_ / "out";
  fs::path path_ = dir_ / "model.safetensors.index.json";
  Model model_{small("LlamaForCausalLM")};
  nlohmann::json index_;
};

TEST_F(Index, NamesMustStayInTheFolder) {
  for (const char* bad : {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..",
                          "a\\b.safetensors", "", "model.bin", "x..safetensors"}) {
    const std::string message = failure_with(bad);
    EXPECT_NE(message.find("\"model.norm.weight\": expected the name of a .safetensors file in "
                           "this folder, found \""),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("index.json:"), std::string::npos);
  }
  EXPECT_NE(failure_with(3).find("found 3"), std::string::npos);
  EXPECT_NE(failure_with(std::string("a\0.safetensors", 14)).find("in this folder"),
            std::string::npos);
}

TEST_F(Index, FilesAndTensorsMustBeThere) {
  EXPECT_NE(
      failure_with("gone.safetensors").find("expected the file \"gone.safetensors\", found none"),
      std::string::npos);
  EXPECT_NE(failure_with(index_["weight_map"]["model.embed_tokens.weight"])
                .find("which has no such tensor"),
            std::string::npos);
}

TEST_F(Index, MustBeAMap) {
  index_["weight_map"] = {1, 2};
  EXPECT_NE(failure().find(":5:3: weight_map: expected an object, found a list"),
            std::string::npos);
  index_.erase("weight_map");
  EXPECT_NE(failure().find(":1:1: weight_map: expected an object, found none"), std::string::npos);
  index_ = 3;
  EXPECT_NE(failure().find(":1:1: expected an object, found 3"), std::string::npos);
}

TEST_F(Index, ATensorOfAShardCountsThoughUnlisted) {
  index_["weight_map"].erase("model.norm.weight");
  write_text(path_, index_.dump());
  EXPECT_NO_THROW(load_parameters(model_.queue, model_.params, dir_));
}

TEST_F(Index, AnotherTotalIsWarnedOf) {
  index_["metadata"]["total_size"] = 1;
  write_text(path_, index_.dump());
  testing::internal::CaptureStderr();
  load_parameters(model_.queue, model_.params, dir_);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("total_size says 1, the tensors have"),
            std::string::npos);
}

TEST(ModelFolder, SaysWhatItFoundInstead) {
  QuickFolder folder;
  EXPECT_NE(
      message_of(Fault::file, [&] { ModelFolder f(folder.path()); })
          .find("expected model.safetensors, pytorch_model.bin or an index of either's shards, "
                "found none of them"),
      std::string::npos);
  write_text(folder / "pytorch_model.bin", "");
  EXPECT_NE(
      message_of(Fault::file, [&] { ModelFolder f(folder.path()); })
          .find("pytorch_model.bin: expected a zip archive of torch.save, found something else"),
      std::string::npos);
  fs::remove(folder / "pytorch_model.bin");
  write_text(folder / "lit_model.pth", "");
  EXPECT_NE(message_of(Fault::file, [&] { ModelFolder f(folder.path()); })
                .find("found LitGPT's lit_model.pth"),
            std::string::npos);
  EXPECT_NE(message_of(Fault::file, [&] { ModelFolder f(folder / "none"); }).find("found nothing"),
            std::string::npos);
  EXPECT_NE(message_of(Fault::file, [&] { read_config(folder / "none"); })
                .find("none/config.json: cannot open"),
            std::string::npos);
}

}  // namespace
}  // namespace capstan
