// The stages of a pipeline train as one rank does: see train/pipeline.h.

#include "train/pipeline.h"

#include <omp.h>

#include "checkpoint/save_model.h"
#include "comm/thread_group.h"
#include "rank_run.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan::test {
namespace {

Trained train(const Case& c, int ranks, const Sharding& sharding = kDdp) {
  Trained all;
  std::mutex mutex;
  const Dataset data = ragged(29, c.config.vocab);
  omp_set_num_threads(ranks);
  run_as_threads(
      ranks, [&](Communicator group) { train_rank(c, data, sharding, group, all, mutex); },
      std::chrono::seconds(20));
  return all;
}

Case five_layers() {
  Case c;
  c.config.layers = 5;
  return c;
}

struct Shape {
  int stages;
  PipelineOptions options;
};
const Shape kShapes[] = {{2, {}}, {3, {}}, {5, {}}, {2, {.chunks = 2}}};

TEST(Pipelines, AreBitwiseOneRank) {
  for (const auto precision : {Precision::f32_true, Precision::bf16_true, Precision::bf16_mixed})
    for (const Recompute recompute : {Recompute::none, Recompute::block})
      for (const bool lora : {false, true}) {
        Case c = five_layers();
        c.precision = precision;
        c.recompute = recompute;
        if (lora) c.lora = every_map(0.1);
        for (const int64_t micro : {1, 2, 5, 13}) {
          c.micro_batch = micro;
          c.mesh = {};
          const Trained expected = train(c, 1);
          for (const Shape& shape : kShapes) {
            c.mesh.pipeline = shape.stages;
            c.pipeline = shape.options;
            SCOPED_TRACE(fmt::format("{} stages of {}, {}, {}, micro-batches of {}{}", shape.stages,
                                     shape.options.chunks, name_of(precision),
                                     name_of(Recomputation(recompute)), micro,
                                     lora ? ", LoRA" : ""));
            EXPECT_EQ(train(c, shape.stages), expected);
          }
        }
      }
}

}  // namespace
}  // namespace capstan::test
