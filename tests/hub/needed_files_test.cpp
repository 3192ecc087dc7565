#include "hub/needed_files.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace capstan {
namespace {

std::vector<std::string> needed(const std::vector<std::string>& names,
                                bool tokenizer_only = false) {
  HubTree tree;
  for (const std::string& name : names) tree.files.push_back({.path = name});
  std::vector<std::string> found;
  for (const HubFile& f : needed_files("maker/model", tree, tokenizer_only))
    found.push_back(f.path);
  return found;
}
using Names = std::vector<std::string>;

TEST(NeededFiles, SafetensorsBeforePicklesAndNeverBoth) {
  EXPECT_EQ(needed({"pytorch_model.bin", "model.safetensors", "config.json", "README.md"}),
            (Names{"config.json", "model.safetensors"}));
  EXPECT_EQ(
      needed({"pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json", "config.json",
              "optimizer.bin"}),
      (Names{"config.json", "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"}));
}

// As Meta and Mistral publish theirs: the weights twice.
TEST(NeededFiles, OtherCopiesOfTheWeightsAreLeft) {
  EXPECT_EQ(needed({"LICENSE.txt", "original/consolidated.00.pth", "original/params.json",
                    "consolidated.safetensors", "model-00001-of-00001.safetensors", "model.gguf",
                    "model.safetensors.index.json", "onnx/model.onnx", "tf_model.h5",
                    "tokenizer.model", "tokenizer.model.v3", "USE_POLICY.md"}),
            (Names{"LICENSE.txt", "USE_POLICY.md", "model-00001-of-00001.safetensors",
                   "model.safetensors.index.json", "tokenizer.model"}));
}

TEST(NeededFiles, TheTokenizerAlone) {
  EXPECT_EQ(needed({"model.safetensors", "vocab.json", "merges.txt", "tokenizer_config.json",
                    "chat_template.jinja", "LICENSE"},
                   true),
            (Names{"chat_template.jinja", "merges.txt", "tokenizer_config.json", "vocab.json"}));
}

TEST(NeededFiles, AnAdapterAndNothingThatCanBeTrained) {
  EXPECT_EQ(needed({"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"}),
            (Names{"adapter_config.json", "adapter_model.safetensors"}));
  EXPECT_THROW(needed({"config.json", "model.gguf"}), Error);
  EXPECT_THROW(needed({}), Error);
}

}  // namespace
}  // namespace capstan
