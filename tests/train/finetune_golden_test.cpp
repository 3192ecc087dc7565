// Fine-tuning on ragged, masked instructions against transformers: tools/golden/make_finetune.py.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "data/data_source.h"
#include "engine.h"
#include "ops/elementwise.h"
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

nlohmann::json read_json(const char* name) {
  return nlohmann::json::parse(std::ifstream(kFolder / name));
}

class FinetuneGolden : public testing::TestWithParam<std::tuple<Case, Device>> {
 protected:
  FinetuneGolden() {
    DataOptions o;
    o.path = kFolder / "records.jsonl";
    o.style = "alpaca";
    o.mask_prompt = true;
    o.validation_fraction = 0;
    o.max_seq_length = golden.at("max_seq_length");
    o.cache = false;
    data = load_data(o, tokenizer);
    batches = {.max_seq_length = o.max_seq_length,
               .vocab = tokenizer.vocab_size(),
               .packed = case_.packed};
  }

  TrainOptions options(Precision precision) const {
    TrainOptions o;
    o.device = device;
    o.precision = precision;
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
    return o;
  }

  // Calls look(number, result) after each step; `prepare` changes the weights before the first.
  template <class Prepare, class Look>
  void take_steps(const TrainOptions& o, const Prepare& prepare, const Look& look) {
    const RunPlan plan = Trainer::plan(o);
    Arena arena(plan.device, device), host(plan.host, Arena::Pinned{});
    Queue q(device, arena, host);
    Trainer trainer(q, o);
    load_parameters(q, trainer.params(), kFolder);
    prepare(q, trainer.params());
    MicroBatches micro(data.train, case_.micro_batch, batches);
    for (size_t s = 0; s < steps.size(); ++s) {
      micro.start(steps[s]);
      look(s, trainer.step(micro, static_cast<int64_t>(s)));
    }
  }
  static void leave(Queue&, Parameters&) {}

  const Case case_ = std::get<0>(GetParam());
  const Device device = std::get<1>(GetParam());
  const nlohmann::json golden = read_json("golden.json");
  const std::vector<std::vector<int64_t>> steps = golden.at("steps");
  const std::vector<double> losses = golden.at("losses"), norms = golden.at("norms");
  const ByteTokenizer tokenizer;
  LoadedData data;
  BatchOptions batches;
};

TEST_P(FinetuneGolden, ThirtyStepsEqualTransformers) {
  take_steps(options(Precision::f32_true), leave, [&](size_t s, const StepResult& r) {
    // 30 steps of f32 arithmetic; the largest difference seen is 2e-6.
    EXPECT_NEAR(r.loss, losses[s], 2e-5 * losses[s]) << "step " << s;
    EXPECT_NEAR(r.grad_norm, norms[s], 2e-4 * norms[s]) << "step " << s;
  });
}

// Weights and gradients have eleven bits.
TEST_P(FinetuneGolden, InF16TheyAreNear) {
  for (const Precision precision : {Precision::f16_mixed, Precision::f16_true})
    take_steps(options(precision), leave, [&](size_t s, const StepResult& r) {
      EXPECT_FALSE(r.overflowed) << "step " << s;
      EXPECT_NEAR(r.loss, losses[s], 2e-3 * losses[s]) << name_of(precision) << " step " << s;
      EXPECT_NEAR(r.grad_norm, norms[s], 2e-2 * norms[s]) << name_of(precision) << " step " << s;
    });
}

// tools/golden/make_fp16.py: with scales that overflow at first, and again after they were doubled.
TEST_P(FinetuneGolden, TheLossScaleMovesAsGradScalers) {
  const nlohmann::json fp16 = read_json("fp16.json");
  TrainOptions o = options(Precision::f16_mixed);
  o.loss_scale = {.start = fp16.at("start"), .interval = fp16.at("interval")};
  const auto prepare = [&](Queue& q, Parameters& params) {
    const float factor = fp16.at("factor");
    const ModelSpec& spec = params.spec();
    for (size_t i = 0; i < spec.params.size(); ++i) {
      const Tensor w = params.master(static_cast<int>(i));
      if (spec.params[i].name == "model.norm.weight") scale(q, w, w, 1 / factor);
      if (spec.params[i].name == "lm_head.weight") scale(q, w, w, factor);
    }
    params.refresh_weights(q);
  };
  int skipped = 0;
  take_steps(o, prepare, [&](size_t s, const StepResult& r) {
    EXPECT_EQ(r.loss_scale, fp16.at("scales")[s]) << "step " << s;
    EXPECT_EQ(r.overflowed, fp16.at("skipped")[s]) << "step " << s;
    const double loss = fp16.at("losses")[s];
    EXPECT_NEAR(r.loss, loss, 3e-3 * loss) << "step " << s;
    skipped += r.overflowed ? 1 : 0;
    if (r.overflowed) return;
    const double norm = fp16.at("norms")[s];
    EXPECT_NEAR(r.grad_norm, norm, 3e-2 * norm) << "step " << s;
  });
  EXPECT_GE(skipped, 10);
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
