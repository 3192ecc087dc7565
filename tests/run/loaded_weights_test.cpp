// Ranks compare what they have read of the model, and a resumed run what it has read of its base.

#include <omp.h>

#include <cstring>

#include "base/files.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/training_state.h"
#include "comm/thread_group.h"
#include "machine/name.h"
#include "short_run.h"
#include "support/message_of.h"

namespace capstan::test {
namespace {

namespace fs = std::filesystem;

// What no fingerprint of some values sees: one value, a quarter into the tensor.
constexpr const char* kChanged = "model.layers.1.mlp.down_proj.weight";
void change_a_value(const fs::path& folder) {
  const fs::path path = folder / "model.safetensors";
  std::string text = read_text(path);
  const SafetensorsFile file(path);
  const StoredTensor& t = *file.find(kChanged);
  ASSERT_GT(t.numel(), 4 * 64 + 8);
  const int64_t at = file.header().data_begin + t.begin + t.nbytes() / 4;
  text[static_cast<size_t>(at) + 1] ^= 1;
  write_text(path, text);
}

class LoadedWeights : public testing::Test {
 protected:
  LoadedWeights() {
    const RunInputs in = short_inputs(8, 0);
    Arena arena(Arena::Heap{}, Device::cpu);
    Queue q(Device::cpu, arena);
    Parameters params(arena, make_spec(in.model.config), Precision::f32_true, Gradients::none);
    params.initialize(q, 1);
    for (const char* name : {"one", "other"}) {
      fs::create_directories(folder / name);
      write_model(q, params, folder / name);  // no manifest: as from somewhere else
    }
  }

  Recipe recipe(const char* out) const {
    Recipe r = short_recipe(folder);
    r.out_dir = folder / out;
    r.accelerator = Accelerator::cpu;
    r.save_interval = 1;
    r.max_steps = 2;
    r.lr_warmup_steps = 0;
    r.eval_max_new_tokens.reset();
    return r;
  }
  SharedInputs inputs(const char* model) const {
    RunInputs in = short_inputs(8, 0);
    in.model.folder = folder / model;
    return std::make_shared<const RunInputs>(std::move(in));
  }
  // The last of the ranks has the other folder.
  void train(const Recipe& r, Task task, int ranks) const {
    omp_set_num_threads(ranks);
    run_as_threads(
        ranks,
        [&](Communicator group) {
          const log::Quiet quiet(group.rank() != 0);
          const bool last = group.rank() + 1 == ranks;
          TrainingRun run(r, task, inputs(last ? "other" : "one"), {}, group);
          run.initialize();
          run.train();
          run.finish();
        },
        std::chrono::seconds(60));
  }

  const TempFolder folder;
};

TEST_F(LoadedWeights, OfRanksAreTheSame) {
  const Quiet quiet;
  train(recipe("good"), Task::pretrain, 2);
  change_a_value(folder / "other");
  for (const auto& [strategy, tensor] : {std::pair{Strategy::ddp, 1}, {Strategy::zero2, 1}}) {
    Recipe r = recipe("bad");
    r.strategy = strategy;
    r.tensor_parallel = tensor;
    const std::string message = message_of(Fault::usage, [&] { train(r, Task::pretrain, 3); });
    const std::string host = host_name();
    EXPECT_NE(message.find("rank 2 on " + host + " has read other values of " + kChanged),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("than rank 0 on " + host), std::string::npos) << message;
    EXPECT_FALSE(fs::exists(folder / "bad/step-00000001"));
  }
}

// Of adapters on a frozen base, on any ranks.
TEST_F(LoadedWeights, OfAFrozenBaseStayTheSame) {
  const Quiet quiet;
  std::string checksum;
  for (const auto& [name, ranks, strategy, tensor, quantize] :
       {std::tuple{"alone", 1, Strategy::ddp, 1, Quantize::none},
        {"zero3", 3, Strategy::zero3, 1, Quantize::none},
        {"tensor", 2, Strategy::ddp, 2, Quantize::none},
        {"nf4", 2, Strategy::zero3, 1, Quantize::nf4}}) {
    Recipe r = recipe(name);
    r.strategy = strategy;
    r.tensor_parallel = tensor;
    r.quantize = quantize;
    train(r, Task::finetune_lora, ranks);
    const TrainingState state = read_state(fs::path(r.out_dir) / "final");
    ASSERT_TRUE(state.base_checksum) << name;
    if (checksum.empty()) checksum = *state.base_checksum;
    EXPECT_EQ(*state.base_checksum, checksum) << name;
  }
  Recipe r = recipe("alone");
  r.resume = {Resume::Mode::folder, (fs::path(r.out_dir) / "step-000001").string()};
  train(r, Task::finetune_lora, 1);
  change_a_value(folder / "other");
  EXPECT_NE(message_of(Fault::usage, [&] { train(r, Task::finetune_lora, 1); })
                .find("was trained on other base weights"),
            std::string::npos);
}

}  // namespace
}  // namespace capstan::test
