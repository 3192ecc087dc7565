// The recipes of recipes/lab, with a tiny checkpoint in the place of theirs.

#include <set>

#include "lora_program.h"

namespace capstan::cli_test {
namespace {

class LabRecipes : public Lora {
 protected:
  const fs::path recipes = fs::path(CAPSTAN_SOURCE_DIR) / "recipes" / "lab";
};

TEST_F(LabRecipes, Run) {
  fs::create_directories(at("data"));
  fs::copy(at("data.jsonl"), at("data/alpaca2k.jsonl"));
  for (const char* name : {"open_llama_7b", "open_llama_13b"}) {
    const fs::path models = at("checkpoints/openlm-research");
    fs::create_directories(models);
    fs::copy(at("checkpoints/tiny/final"), models / name, fs::copy_options::recursive);
  }
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(recipes)) {
    SCOPED_TRACE(entry.path().string());
    const std::string name = *names.insert(entry.path().stem()).first;
    const Outcome o =
        run({"finetune_full", "--config", entry.path().string(), "--accelerator=cpu"});
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(fs::exists(at("out/lab/" + name + "/final/model.safetensors")));
    const bool alone = name == "7b-one-gpu";
    EXPECT_EQ(o.out.find("the slowest rank is") == std::string::npos, alone) << o.out;
  }
  EXPECT_EQ(names, (std::set<std::string>{"7b-one-gpu", "7b-ddp-4", "7b-fsdp-4",
                                          "7b-fsdp-4-batch-8", "13b-zero3-offload"}));
}

// As docs/performance.md has them, in GiB for each GPU of 80 GB.
TEST_F(LabRecipes, FitTheGpusThatTheyAreFor) {
  const std::pair<const char*, double> expected[] = {{"7b-one-gpu", 58.8},
                                                     {"7b-ddp-4", 50.6},
                                                     {"7b-fsdp-4", 22.3},
                                                     {"7b-fsdp-4-batch-8", 30.4},
                                                     {"13b-zero3-offload", 25.3}};
  for (const auto& [name, gib] : expected) {
    SCOPED_TRACE(name);
    const Outcome o = run({"plan", (recipes / (std::string(name) + ".yaml")).string(),
                           "--accelerator=cuda", "--memory=80GB", "--json"});
    ASSERT_EQ(o.code, 0) << o.err;
    const auto bytes = nlohmann::json::parse(o.out)["memory"]["peak_bytes"].get<double>();
    EXPECT_NEAR(bytes / (1 << 30), gib, 0.06);
  }
}

}  // namespace
}  // namespace capstan::cli_test
