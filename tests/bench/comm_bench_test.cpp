#include "bench/comm_bench.h"

#include <gtest/gtest.h>

#include <mutex>

#include "comm/thread_group.h"
#include "support/message_of.h"

namespace capstan {
namespace {

CommResult measure(int ranks) {
  ModelConfig m;
  m.vocab = 256, m.hidden = 128, m.intermediate = 64, m.layers = 1;
  m.heads = 2, m.kv_heads = 1, m.head_dim = 64;
  const CommSizes sizes{.bytes = {4 << 10, 1 << 20},
                        .seconds = 0.001,
                        .steps = {{m, 2, 32}, {m, 4, 8, Recompute::none, 2}},
                        .step_seconds = 0};
  CommResult all;
  std::mutex mutex;
  std::vector<std::string> begun;
  run_as_threads(ranks, [&](Communicator group) {
    Arena arena(Arena::Heap{}, Device::cpu);
    Queue q(Device::cpu, arena);
    const CommResult mine =
        bench_comm(q, group, sizes, [&](const std::string& what, int64_t number, int64_t of) {
          EXPECT_LT(number, of);
          const std::lock_guard lock(mutex);
          if (group.rank() == 0) begun.push_back(what);
        });
    const std::lock_guard lock(mutex);
    if (group.rank() == 0) all = mine;
  });
  EXPECT_EQ(begun.size(), all.rows.size() + 3 * sizes.steps.size()) << "in three precisions";
  return all;
}

TEST(CommBench, MeasuresEveryOpSizeAndGroup) {
  const CommResult of_four = measure(4), of_three = measure(3);
  EXPECT_EQ(of_four.rows.size(), 2u * (1 + 3 * 2)) << "pairs send; groups of two and of four";
  EXPECT_EQ(of_three.rows.size(), 2u * 3);
  ASSERT_EQ(of_four.networks.size(), 2u);
  EXPECT_TRUE(of_four.networks.contains(2) && of_four.networks.contains(4));
  EXPECT_TRUE(of_four.networks_across.empty());
  EXPECT_EQ(of_four.ranks_on_machine, 4);
  for (const auto& [ranks, network] : of_four.networks) {
    EXPECT_GT(network.bytes_per_second, 0);
    EXPECT_GE(network.seconds_per_message, 0);
  }
  for (const CommRow& row : of_four.rows) {
    EXPECT_GT(row.seconds, 0);
    const double slices = row.op == "all_reduce" ? 2 : 1;
    EXPECT_NEAR(row.sent_bytes,
                slices * (row.ranks - 1) * static_cast<double>(row.bytes) / row.ranks, 1);
    EXPECT_LE(ring_limit(row, of_four), row.seconds * (1 + 1e-9)) << "no row is faster";
  }
  EXPECT_EQ(of_four.together.size(), 3u);
  for (const auto& [precision, costs] : of_four.together) {
    EXPECT_TRUE(costs.seconds > 0 && costs.predicted > 0) << precision;
    const auto& product = costs.calls[static_cast<size_t>(OpKind::product)];
    EXPECT_GT(product.per_call + product.per_flop + product.per_byte, 0) << precision;
  }
  Calibration kept;
  add_to(kept, of_four);
  EXPECT_EQ(kept.networks, of_four.networks);
  ASSERT_EQ(kept.together.size(), 1u);
  EXPECT_EQ(kept.together.at(4), of_four.together);
  PrecisionCosts alone;
  alone["bf16-mixed"].seconds = of_four.together.at("bf16-mixed").seconds / 1.5;
  const std::string table = comm_table(of_four, alone);
  for (const char* part : {"all_gather", "reduce_scatter", "send", "1.00 MiB", "among 4 ranks: ",
                           "with all ranks at work, a step in bf16-mixed takes 1.50 times"})
    EXPECT_NE(table.find(part), std::string::npos) << table;
}

TEST(CommBench, NeedsSomebodyToTalkTo) {
  Arena arena(Arena::Heap{}, Device::cpu);
  Queue q(Device::cpu, arena);
  EXPECT_NE(message_of(Fault::usage, [&] { bench_comm(q, {}, comm_sizes(true), [](auto&&...) {}); })
                .find("--devices 2"),
            std::string::npos);
}

}  // namespace
}  // namespace capstan
