#include "model/layer_share.h"

#include <gtest/gtest.h>

#include "model/small_models.h"
#include "model/spec.h"
#include "model/tensor_cut.h"
#include "support/message_of.h"

namespace capstan::test {
namespace {

TEST(LayerShares, AreAboutEqualAndCoverEverything) {
  for (const int64_t n : {1, 7, 37, 64, 5632})
    for (const int64_t of : {1, 2, 3, 7})
      for (const int64_t grain : {1, 8, 64}) {
        int64_t next = 0;
        for (int64_t i = 0; i < of; ++i) {
          const Span span = even_share(n, i, of, grain);
          EXPECT_EQ(span.first, next);
          EXPECT_TRUE(span.first % grain == 0 || span.count == 0);
          EXPECT_LE(span.count, ((n + grain - 1) / grain + of - 1) / of * grain);
          next = span.end();
        }
        EXPECT_EQ(next, n);
      }
}

// Every query head is on one rank, with the key head that it attends to; a rank has as many query
// heads for each of its key heads.
TEST(LayerShares, OfHeadsKeepGroupsTogether) {
  for (const auto& [heads, kv_heads] : {std::pair{6, 3}, {8, 2}, {32, 8}, {12, 1}, {5, 5}})
    for (int size = 1; size <= heads; ++size) {
      if ((size + kv_heads - 1) / kv_heads > heads / kv_heads && size > kv_heads) continue;
      int64_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const HeadShare share = share_heads(heads, kv_heads, {rank, size});
        EXPECT_EQ(share.heads.first, next);
        EXPECT_GT(share.heads.count, 0);
        EXPECT_EQ(share.heads.count % share.kv_heads.count, 0);
        const int64_t group = heads / kv_heads;
        for (int64_t head = share.heads.first; head < share.heads.end(); ++head) {
          const int64_t own =
              (head - share.heads.first) / (share.heads.count / share.kv_heads.count);
          EXPECT_EQ(share.kv_heads.first + own, head / group);
        }
        EXPECT_LE(share.copies.first, rank);
        EXPECT_GT(share.copies.end(), rank);
        next = share.heads.end();
      }
      EXPECT_EQ(next, heads);
    }
}

// The parts of all ranks together are the checkpoint's tensors, each value once, but for copies.
TEST(LayerShares, CoverTheTensorsOfACheckpoint) {
  ModelConfig config = uneven_config();
  config.o_bias = config.qk_norm = true;
  config.architecture = "Qwen3ForCausalLM";
  const ModelSpec whole = make_spec(config, Decay::all, every_map(0));
  for (const int size : {2, 3, 4}) {
    std::vector<ModelSpec> specs;
    for (int rank = 0; rank < size; ++rank) {
      specs.push_back(make_spec(config, Decay::all, every_map(0), Quantize::none, {{rank, size}}));
      EXPECT_EQ(specs.back().parameter_count(), whole.parameter_count());
    }
    for (size_t i = 0; i < whole.params.size(); ++i)
      for (size_t k = 0; k < whole.params[i].parts.size(); ++k) {
        const Part& of_whole = whole.params[i].parts[k];
        std::vector<int> seen(static_cast<size_t>(of_whole.whole.numel()));
        int copies = 0;
        for (int rank = 0; rank < size; ++rank) {
          const Param& param = specs[static_cast<size_t>(rank)].params[i];
          const Part& part = param.parts[k];
          EXPECT_EQ(part.name, of_whole.name);
          EXPECT_EQ(part.whole, of_whole.whole);
          const TensorCut cut = cut_of(param, part);
          const int64_t count = part.rows * param.columns();
          cut.for_runs(0, count, [&](int64_t own, int64_t in_whole, int64_t n) {
            for (int64_t v = 0; v < n; ++v) {
              ++seen[static_cast<size_t>(in_whole + v)];
              EXPECT_EQ(cut.before(in_whole + v, count), own + v);
              EXPECT_EQ(cut.in_whole(own + v), in_whole + v);
            }
          });
          copies = std::max(copies, static_cast<int>(part.copies.count));
        }
        for (const int times : seen) {
          EXPECT_GE(times, 1) << of_whole.name;
          EXPECT_LE(times, copies) << of_whole.name;
        }
      }
  }
}

TEST(LayerShares, RefuseToCutABlockOfQuantizedValues) {
  ModelConfig config = aligned_config();  // rows of 96 values in down_proj
  EXPECT_NE(message_of(Fault::usage,
                       [&] {
                         make_spec(config, Decay::all, every_map(0), Quantize::nf4, {{0, 2}});
                       })
                .find("would be cut inside of a block of 64 quantized values"),
            std::string::npos);
  config.head_dim = 32;
  config.intermediate = 192;
  const ModelSpec spec = make_spec(config, Decay::all, every_map(0), Quantize::nf4_dq, {{1, 2}});
  const BlockIndex& block = spec.blocks[0];
  const auto format_of = [&](int i) { return spec.params[static_cast<size_t>(i)].quantize; };
  EXPECT_EQ(format_of(block.o), Quantize::nf4) << "columns have scales of their own";
  EXPECT_EQ(spec.params[static_cast<size_t>(block.o)].quantized_as, Quantize::nf4_dq);
}

}  // namespace
}  // namespace capstan::test
