// Fine-tuning on ragged, masked instructions against transformers: tools/golden/make_finetune.py.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "data/data_source.h"
#include "engine.h"
#include "train/trainer.h"

namespace capstan {
namespace {

const std::filesystem::path kFolder =
    std::filesystem::path(CAPSTAN_SOURCE_DIR) / "tests/golden_finetune";

struct Case {
  int64_t micro_batch;
  bool packed;
  Recompute recompute;
};

class FinetuneGolden : public testing::TestWithParam<std::tuple<Case, Device>> {
 protected:
  Case case_ = std::get<0>(GetParam());
  Device device_ = std::get<1>(GetParam());
};

TEST_P(FinetuneGolden, ThirtyStepsEqualTransformers) {
  const nlohmann::json golden = nlohmann::json::parse(std::ifstream(kFolder / "golden.json"));
  const auto steps = golden.at("steps").get<std::vector<std::vector<int64_t>>>();
  const auto losses = golden.at("losses").get<std::vector<double>>();
  const auto norms = golden.at("norms").get<std::vector<double>>();
  const ByteTokenizer tokenizer;
  DataOptions data_options;
  data_options.path = kFolder / "records.jsonl";
  data_options.style = "alpaca";
  data_options.mask_prompt = true;
  data_options.validation_fraction = 0;
  data_options.max_seq_length = golden.at("max_seq_length");
  data_options.cache = false;
  const LoadedData data = load_data(data_options, tokenizer);
  const BatchOptions batches{.max_seq_length = data_options.max_seq_length,
                             .vocab = tokenizer.vocab_size(),
                             .packed = case_.packed};
  TrainOptions o;
  o.device = device_;
  o.model = read_config(kFolder);
  o.recompute = case_.recompute;
  o.limits = limits_of(data.train, case_.micro_batch, batches);
  o.single_micro_batch = case_.micro_batch == 8;
  o.optimizer = {.beta1 = golden.at("betas")[0],
                 .beta2 = golden.at("betas")[1],
                 .eps = golden.at("eps"),
                 .weight_decay = golden.at("weight_decay")};
  o.schedule = {.lr = golden.at("lr"),
                .min_lr = golden.at("min_lr"),
                .warmup_steps = golden.at("warmup"),
                .total_steps = std::ssize(steps)};
  o.max_norm = golden.at("max_norm");
  const RunPlan plan = Trainer::plan(o);
  Arena arena(plan.device, device_), host(plan.host, Arena::Pinned{});
  Queue q(device_, arena, host);
  Trainer trainer(q, o);
  load_parameters(q, trainer.params(), kFolder);
  MicroBatches micro(data.train, case_.micro_batch, batches);
  for (size_t s = 0; s < steps.size(); ++s) {
    micro.start(steps[s]);
    const StepResult r = trainer.step(micro, static_cast<int64_t>(s));
    // 30 steps of f32 arithmetic; the largest difference seen is 2e-6.
    EXPECT_NEAR(r.loss, losses[s], 2e-5 * losses[s]) << "step " << s;
    EXPECT_NEAR(r.grad_norm, norms[s], 2e-4 * norms[s]) << "step " << s;
  }
}

INSTANTIATE_TEST_SUITE_P(MicroBatches, FinetuneGolden,
                         testing::Combine(testing::Values(Case{1, true, Recompute::none},
                                                          Case{2, true, Recompute::selective},
                                                          Case{2, false, Recompute::none},
                                                          Case{8, true, Recompute::block},
                                                          Case{8, false, Recompute::none}),
                                          testing::ValuesIn(test::devices_present())),
                         [](const auto& suite) {
                           const Case& c = std::get<0>(suite.param);
                           return fmt::format("{}_{}_{}_{}", c.micro_batch,
                                              c.packed ? "packed" : "padded", name_of(c.recompute),
                                              name_of(std::get<1>(suite.param)));
                         });

}  // namespace
}  // namespace capstan
