#include "ops/attention.h"

#include "ops/attention_reference.h"
#include "ops/cpu/attention.h"
#include "ops/elementwise.h"
#if CAPSTAN_WITH_CUDA
#include "tensor/cuda/context.h"
#endif

namespace capstan::test {
namespace {

class Attention : public AttentionOnEveryDevice {};
INSTANTIATE_TEST_SUITE_P(Ops, Attention, testing::ValuesIn(devices_present()), device_name);

// Lengths around the edges of a strip of 64 queries; groups of 1, 2, 4 and 7.
TEST_P(Attention, MatchesF64) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t T : {1, 3, 63, 64, 65, 130}) {
      expect_matches_f64({1, 1, 16, {T}}, dtype);
      expect_matches_f64({2, 2, 48, {T}}, dtype);
      expect_matches_f64({4, 2, 100, {T}}, dtype);
      expect_matches_f64({4, 1, 128, {T}}, dtype);
      expect_matches_f64({7, 1, 16, {T}}, dtype);
      expect_matches_f64({2, 1, 256, {T}}, dtype);
    }
}

// Groups of 1, 2, 3, 4 and 8, around the edges of tiles; heads between the widths of tiles, and one
// whose rows do not begin at multiples of 16 bytes.
TEST_P(Attention, MatchesF64AtTheEdgesOfTiles) {
  for (const DType dtype : kComputeTypes) {
    for (const int64_t T : {1, 63, 64, 65, 129}) {
      expect_matches_f64({2, 2, 64, {T}}, dtype);
      expect_matches_f64({8, 1, 64, {T}}, dtype);
      expect_matches_f64({4, 1, 80, {T}}, dtype);
      expect_matches_f64({1, 1, 100, {T}}, dtype);
      expect_matches_f64({4, 1, 128, {T}}, dtype);
      expect_matches_f64({6, 2, 128, {T}}, dtype);
      expect_matches_f64({2, 1, 7, {T}}, dtype);
      expect_matches_f64({2, 1, 36, {T}}, dtype);
    }
    for (const int64_t D : {64, 80, 128})
      for (const int64_t window : {0, 50})
        expect_matches_f64({2, 1, D, {64, 1, 63, 66}, window}, dtype);
  }
}

TEST_P(Attention, MatchesF64WithDocumentsAndWindows) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t window : {0, 1, 2, 5, 63, 64, 65, 100, 1000})
      expect_matches_f64({4, 2, 16, {1, 70, 1, 1, 64, 5, 129}, window}, dtype);
  // More documents than a kernel keeps in shared memory.
  for (const DType dtype : kComputeTypes)
    for (const int64_t D : {16, 128})
      expect_matches_f64({2, 1, D, std::vector<int64_t>(300, 3)}, dtype);
}

#if CAPSTAN_WITH_CUDA
// More tiles than the comparison with f64 could wait for: one way of computing against the other.
// Several tests: under racecheck each takes minutes.
class AttentionGenerations : public AttentionOnEveryDevice {
 protected:
  void expect_agree(const std::vector<Layout>& layouts) {
    if (q_.device() != Device::cuda || !q_.cuda().wgmma()) GTEST_SKIP() << "a Hopper GPU";
    for (const Layout& l : layouts) {
      Case c = make(l, DType::bf16);
      forward(c);
      backward(c, c.dqkv);
      const Values o = values(c.o), lse = values(c.lse), gradients = values(c.dqkv);
      q_.cuda().avoid_wgmma(true);
      forward(c);
      backward(c, c.dqkv);
      EXPECT_LT(error(o, values(c.o)), 2 * tolerance(DType::bf16, l.terms())) << l;
      EXPECT_LT(error(lse, values(c.lse)), tolerance(DType::f32, l.terms())) << l;
      EXPECT_LT(error(gradients, values(c.dqkv)), 4 * tolerance(DType::bf16, l.terms())) << l;
      q_.cuda().avoid_wgmma(false);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, AttentionGenerations, testing::ValuesIn(devices_present()),
                         device_name);

// Where shared memory holds fewer tiles (8.6: less than 8.0; 7.5: less than that), they take turns;
// the same values are added in the same order.
TEST_P(AttentionGenerations, SmallerGpusComputeTheSameBits) {
  if (q_.device() != Device::cuda || !q_.cuda().has_mma(DType::bf16)) GTEST_SKIP() << "Ampere";
  const std::vector<DType> types = {DType::bf16, DType::f16};
  std::vector<Case> cases;
  std::vector<std::vector<Values>> expected(2);
  for (const DType dtype : types) cases.push_back(make({4, 2, 128, {70, 1, 200, 63}}, dtype));
  for (const auto& capability : {std::pair(8, 0), std::pair(8, 6), std::pair(7, 5)}) {
    q_.cuda().act_like(capability);
    for (size_t i = 0; i < 2; ++i) {
      if (!q_.cuda().has_mma(types[i])) continue;
      const Case& c = cases[i];
      for (const Tensor& t : {*c.o, *c.lse, *c.dqkv}) fill(q_, t, NAN);  // of the one before
      forward(c);
      backward(c, c.dqkv);
      EXPECT_TRUE(std::isfinite(values(c.o)[0]));
      const std::vector<Values> found = {values(c.o), values(c.lse), values(c.dqkv)};
      if (expected[i].empty()) expected[i] = found;
      EXPECT_TRUE(found == expected[i]) << name_of(types[i]) << " " << capability.first;
    }
  }
}

TEST_P(AttentionGenerations, AgreeOverSharedKeys) {
  expect_agree({{32, 4, 64, {512, 1, 700, 63, 512}}});
}
TEST_P(AttentionGenerations, AgreeOverHeadsOf64) {
  expect_agree({{32, 32, 64, {512, 1, 700, 63, 512}}});
}
TEST_P(AttentionGenerations, AgreeOverHeadsOf128) {
  expect_agree({{8, 8, 128, {900, 900}}, {32, 32, 128, {512, 1, 63}}});
}
TEST_P(AttentionGenerations, AgreeOverWindows) {
  expect_agree({{4, 2, 100, {1000, 24}, 300}, {4, 2, 104, {1000, 24}, 300}});
}
TEST_P(AttentionGenerations, AgreeOverALongDocument) {
  expect_agree({{2, 1, 64, {9000}}});
}
// Work for all multiprocessors, and tiles side by side of which one sees far more.
TEST_P(AttentionGenerations, AgreeOverUnevenTiles) {
  expect_agree({{32, 16, 128, {64, 900, 64, 100}}});
}
TEST_P(AttentionGenerations, AgreeOverManyHeads) {
  expect_agree({{140, 140, 80, {64, 130}}, {144, 48, 96, {300}, 70}});
}
TEST_P(AttentionGenerations, AgreeOverMoreTilesThanAreSorted) {
  expect_agree({{2, 1, 72, {33000}, 100}});
}
#endif

TEST_P(Attention, ATokenAloneSeesItself) {
  for (const DType dtype : kComputeTypes) {
    const Layout l{2, 1, 16, {1, 1, 1}};
    const Case c = make(l, dtype);
    forward(c);
    backward(c, c.dqkv);
    const Values o = values(c.o), v = values(c.v(c.qkv)), d_o = values(c.d_o);
    Values dv;
    for (size_t t = 0; t < 3; ++t)
      for (size_t d = 0; d < 16; ++d) {
        EXPECT_EQ(o[32 * t + d], v[16 * t + d]);
        EXPECT_EQ(o[32 * t + 16 + d], v[16 * t + d]);
        dv.push_back(d_o[32 * t + d] + d_o[32 * t + 16 + d]);
      }
    EXPECT_LT(error(values(c.v(c.dqkv)), dv), tolerance(dtype));
    // The probability is 1 whatever q and k: their gradient is what rounding leaves of do·v - do·o.
    const double size = norm(d_o) * norm(v) * double{l.scale()};
    EXPECT_LT(norm(values(c.q(c.dqkv))),
              norm(values(c.k(c.qkv))) * size * tolerance(DType::f32, l.D));
    EXPECT_LT(norm(values(c.k(c.dqkv))),
              norm(values(c.q(c.qkv))) * size * tolerance(DType::f32, l.D));
  }
}

TEST_P(Attention, DocumentsDoNotSeeEachOther) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t window : {0, 5}) {
      const Layout l{4, 2, 16, {1, 70, 1, 5, 64}, window};
      const int64_t T = l.tokens(), from = 1, to = 71;  // the document that changes
      const Case c = make(l, dtype);
      const auto others = [&](const Tensor& t) {
        Values result = values(t.rows(0, from));
        const Values after = values(t.rows(to, T - to));
        result.insert(result.end(), after.begin(), after.end());
        return result;
      };
      forward(c);
      backward(c, c.dqkv);
      const Values o = others(c.o), gradients = others(c.dqkv),
                   inside = values(c.o->rows(from, 70));
      const Values noise = normal_values(c.qkv->dim(1), 1234, 10);
      for (const int64_t token : {from, int64_t{35}, to - 1})
        q_.upload(c.qkv->rows(token, 1), of(dtype, {c.qkv->dim(1)}, noise)->raw());
      forward(c);
      backward(c, c.dqkv);
      EXPECT_EQ(others(c.o), o);
      EXPECT_EQ(others(c.dqkv), gradients);
      EXPECT_NE(values(c.o->rows(from, 70)), inside);
    }
}

// Documents within one tile, and with an edge between two.
TEST_P(Attention, NanStaysInItsDocument) {
  for (const int64_t D : {16, 128})
    for (const std::vector<int64_t>& lengths :
         {std::vector<int64_t>{5, 9, 3}, std::vector<int64_t>{64, 70, 20}}) {
      const Layout l{2, 1, D, lengths};
      const int64_t begin = lengths[0], nan_row = begin + 2, end = begin + lengths[1];
      const Case c = make(l, DType::f32);
      const Buffer nan = of(DType::f32, {1, c.qkv->dim(1)}, Values(idx(c.qkv->dim(1)), NAN));
      q_.upload(c.qkv->rows(nan_row, 1), nan->raw());
      forward(c);
      backward(c, c.dqkv);
      for (const Tensor& t : {c.o->reshape({l.tokens(), 2 * D}), *c.dqkv})
        for (int64_t row = 0; row < l.tokens(); ++row) {
          const double sum = norm(values(t.rows(row, 1)));
          // Tokens of the same document before it are not promised: they may meet it times zero.
          if (row >= begin && row < nan_row) continue;
          EXPECT_EQ(std::isnan(sum), row >= nan_row && row < end) << "D=" << D << " row " << row;
        }
    }
}

TEST_P(Attention, AWindowOfOneGivesTheValue) {
  for (const DType dtype : kComputeTypes) {
    const Case c = make({2, 2, 48, {65, 3}, 1}, dtype);
    forward(c);
    EXPECT_EQ(values(c.o), values(c.v(c.qkv)));
  }
}

// On a GPU there are several ways for bf16, of which many heads have one.
TEST_P(Attention, AWindowLongerThanTheDocumentsChangesNothing) {
  const int64_t many = q_.device() == Device::cuda ? 140 : 2;
  const std::pair<Layout, DType> problems[] = {{{2, 1, 16, {1, 66, 30}}, DType::f32},
                                               {{2, 1, 16, {1, 66, 30}}, DType::bf16},
                                               {{many, many, 128, {1, 66, 30}}, DType::bf16}};
  for (const auto& [layout, dtype] : problems) {
    Case c = make(layout, dtype);
    forward(c);
    backward(c, c.dqkv);
    const Values o = values(c.o), lse = values(c.lse), gradients = values(c.dqkv);
    for (const int64_t window : {int64_t{66}, int64_t{67}, int64_t{1000}, int64_t{INT32_MAX}}) {
      c.mask.window = window;
      forward(c);
      backward(c, c.dqkv);
      EXPECT_EQ(values(c.o), o) << layout << ", window " << window;
      EXPECT_EQ(values(c.lse), lse) << layout << ", window " << window;
      EXPECT_EQ(values(c.dqkv), gradients) << layout << ", window " << window;
    }
  }
}

// Views whose rows are far apart give what dense tensors give.
TEST_P(Attention, EveryOperandMayHaveStrides) {
  for (const DType dtype : kComputeTypes) {
    const Layout l{4, 2, 16, {70, 3}};
    const int64_t T = l.tokens(), q_width = l.H * l.D, kv_width = l.K * l.D;
    const Buffer wide = random(dtype, {T, 3 * q_width}), narrow = random(dtype, {T, 3 * kv_width});
    const Tensor o = wide->cols(0, q_width).heads(l.H),
                 dq = wide->cols(q_width, q_width).heads(l.H);
    const Tensor d_o = wide->cols(2 * q_width, q_width).heads(l.H);
    const Tensor dk = narrow->cols(0, kv_width).heads(l.K);
    const Tensor dv = narrow->cols(2 * kv_width, kv_width).heads(l.K);
    const Values between = values(narrow->cols(kv_width, kv_width)), d_o_old = values(d_o);

    Case c = make(l, dtype);
    const Tensor q = c.q(c.qkv), k = c.k(c.qkv), v = c.v(c.qkv);
    attention(q_, o, c.lse, q, k, v, c.mask, l.scale());
    attention_backward(q_, dq, dk, dv, d_o, o, c.lse, q, k, v, c.mask, l.scale());

    c.d_o = of(dtype, {T, l.H, l.D}, d_o_old);
    const Buffer q_dense = of(dtype, {T, l.H, l.D}, values(q));
    const Buffer k_dense = of(dtype, {T, l.K, l.D}, values(k));
    const Buffer v_dense = of(dtype, {T, l.K, l.D}, values(v));
    attention(q_, c.o, c.lse, q_dense, k_dense, v_dense, c.mask, l.scale());
    EXPECT_LT(error(values(o), values(c.o)), 2 * tolerance(dtype, l.terms()));
    const Buffer dq_dense = empty(dtype, q.shape()), dk_dense = empty(dtype, k.shape()),
                 dv_dense = empty(dtype, v.shape());
    attention_backward(q_, dq_dense, dk_dense, dv_dense, c.d_o, c.o, c.lse, q_dense, k_dense,
                       v_dense, c.mask, l.scale());
    const double tol = 2 * tolerance(dtype, 2 * l.terms());
    EXPECT_LT(error(values(dq), values(dq_dense)), tol);
    EXPECT_LT(error(values(dk), values(dk_dense)), tol);
    EXPECT_LT(error(values(dv), values(dv_dense)), tol);
    EXPECT_EQ(values(narrow->cols(kv_width, kv_width)), between) << "wrote outside of the views";
    EXPECT_EQ(values(d_o), d_o_old) << "wrote to an operand";
  }
}

// Whole numbers: scores up to 1e5 are exact, and only the softmax is in question.
TEST_P(Attention, LargeScoresDoNotOverflow) {
  const Layout l{2, 1, 16, {70}};
  const Case c = make(l, DType::f32);
  Values whole = values(c.qkv);
  for (double& x : whole) x = std::round(4 * x);
  const Buffer qkv = of(DType::f32, c.qkv->shape(), whole);
  const Tensor q = c.q(qkv), k = c.k(qkv), v = c.v(qkv);
  attention(q_, c.o, c.lse, q, k, v, c.mask, 128);
  const AttentionValues r = attention_f64(l, values(q), values(k), values(v), 128);
  EXPECT_GT(*std::max_element(r.lse_HT.begin(), r.lse_HT.end()), 2e4);
  EXPECT_LT(error(values(c.o), r.o_THD), tolerance(DType::f32, l.terms()));
  EXPECT_LT(error(values(c.lse), r.lse_HT), tolerance(DType::f32));
  attention_backward(q_, c.q(c.dqkv), c.k(c.dqkv), c.v(c.dqkv), c.d_o, c.o, c.lse, q, k, v, c.mask,
                     128);
  EXPECT_TRUE(std::isfinite(norm(values(c.dqkv))));
}

// All keys are alike: the maximum is the same in every tile, and what was summed before must not
// be touched, however often.
TEST_P(Attention, AMaximumThatStaysChangesNothing) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t D : {64, 128})
      for (const double key : {0.369140625, 0.28515625, 0.83203125}) {  // bf16
        const Layout l{1, 1, D, {2048}};
        const Case c = make(l, dtype);
        Values all = values(c.qkv);
        for (size_t i = 0; i < all.size(); ++i) {
          const size_t part = i % idx(3 * D) / idx(D);
          if (part < 2) all[i] = part == 0 ? 16 : key;
        }
        const Buffer qkv = of(dtype, c.qkv->shape(), all);
        attention(q_, c.o, c.lse, c.q(qkv), c.k(qkv), c.v(qkv), c.mask, 0.125f);
        const Values lse = values(c.lse);
        double worst = 0;
        for (int64_t t = 0; t < l.tokens(); ++t) {
          const double expected = 0.125 * 16 * key * double(D) + std::log(double(t + 1));
          worst = std::max(worst, std::abs(lse[idx(t)] / expected - 1));
        }
        EXPECT_LT(worst, 4e-7) << name_of(dtype) << " D=" << D << " key " << key;
      }
}

TEST_P(Attention, DoesNotDependOnTheThreads) {
  for (const DType dtype : kComputeTypes) {
    const Case c = make({4, 2, 16, {1, 70, 33, 5}, 20}, dtype);
    expect_same_for_any_threads([&] {
      forward(c);
      backward(c, c.dqkv);
      Values all = values(c.o);
      for (const Values& more : {values(c.lse), values(c.dqkv)})
        all.insert(all.end(), more.begin(), more.end());
      return all;
    });
  }
}

TEST_P(Attention, NothingToDo) {
  const Case c = make({2, 1, 16, {}}, DType::bf16),
             empty_documents = make({2, 1, 16, {0, 3, 0}}, DType::f32);
  forward(c);
  backward(c, c.dqkv);
  EXPECT_EQ(q_.total().flops, 0);
  forward(empty_documents);
  const AttentionValues r = expected(empty_documents);
  EXPECT_LT(error(values(empty_documents.o), r.o_THD), tolerance(DType::f32, 19));
}

TEST_P(Attention, RefusesWrongOperands) {
  const Case c = make({4, 2, 16, {3, 5}}, DType::f32);
  const Tensor q = c.q(c.qkv), k = c.k(c.qkv), v = c.v(c.qkv);
  const auto bug = [&](const Tensor& o, const Tensor& lse, const Tensor& query, const Tensor& key,
                       const Tensor& value, const AttentionMask& mask) {
    expect_bug("attention", [&] { attention(q_, o, lse, query, key, value, mask, 1); });
    expect_bug("attention_backward", [&] {
      attention_backward(q_, query, key, value, o, o, lse, query, key, value, mask, 1);
    });
  };
  const Buffer three = random(DType::f32, {8, 3, 16}), narrow = random(DType::f32, {8, 2, 15});
  const Buffer bf = random(DType::bf16, {8, 2, 16}), lse16 = random(DType::bf16, {4, 8});
  bug(c.o, c.lse, q, three, three, c.mask);     // 3 key heads for 4 query heads
  bug(c.o, c.lse, q, narrow, narrow, c.mask);   // of another size
  bug(c.o, c.lse, q, k, bf, c.mask);            // of another type
  bug(c.o, c.lse, q, k, v.rows(0, 7), c.mask);  // fewer values than keys
  bug(c.o, c.lse, q, k.rows(0, 7), v.rows(0, 7), c.mask);
  bug(c.o->rows(0, 7), c.lse, q, k, v, c.mask);
  bug(c.o, lse16, q, k, v, c.mask);
  bug(c.o, c.lse->rows(0, 3), q, k, v, c.mask);
  bug(c.o, c.lse, c.qkv, c.qkv, c.qkv, c.mask);   // matrices
  bug(c.o, c.lse, q, k, v, {});                   // no documents
  bug(c.o, c.lse, q, k, v, {c.starts, 3, 5, 0});  // more documents than starts
  bug(c.o, c.lse, q, k, v, {c.starts, 2, 3, 0});  // too short to make 8 tokens
  bug(c.o, c.lse, q, k, v, {c.starts, 2, 9, 0});  // longer than all
  bug(c.o, c.lse, q, k, v, {c.lse->reshape({32}), 2, 5, 0});
  const Buffer angles = zeros(DType::f32, {9, 8}), wide = zeros(DType::f32, {9, 9});
  const Buffer at = zeros(DType::i32, {8}), few = zeros(DType::i32, {7});
  for (const RopeAngles& rotated : {RopeAngles{wide, wide, at}, RopeAngles{angles, wide, at},
                                    RopeAngles{angles, angles, few}, RopeAngles{{}, {}, at}})
    expect_bug("attention_backward", [&] {
      attention_backward(q_, c.q(c.dqkv), c.k(c.dqkv), c.v(c.dqkv), c.d_o, c.o, c.lse, q, k, v,
                         c.mask, 1, rotated);
    });
}

TEST(AttentionMemory, GrowsWithTheLength) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t n : {64, 1000, 65536}) {
      EXPECT_LE(cpu::attention_scratch(2 * n, 128, dtype),
                2 * cpu::attention_scratch(n, 128, dtype));
      EXPECT_LE(cpu::attention_backward_scratch(2 * n, 128, dtype),
                2 * cpu::attention_backward_scratch(n, 128, dtype));
    }
}

TEST(AttentionOnSim, CostsAndScratchAgree) {
  for (const DType dtype : kComputeTypes)
    expect_same_on_sim([&](Queue& queue) {
      const auto phase = queue.arena().phase("ops");
      const auto make = [&](const Shape& s) { return buffer_of(queue, dtype, s, Values(2000)); };
      const Buffer q = make({8, 4, 16}), k = make({8, 2, 16}), v = make({8, 2, 16});
      const Buffer o = make({8, 4, 16}), lse = buffer_of(queue, DType::f32, {4, 8}, Values(32));
      const Buffer starts = buffer_of(queue, DType::i32, {3}, {0, 3, 8});
      const AttentionMask mask{starts, 2, 5, 4};
      attention(queue, o, lse, q, k, v, mask, 1);
      const Buffer dq = make({8, 4, 16}), dk = make({8, 2, 16}), dv = make({8, 2, 16});
      const Buffer angles = buffer_of(queue, DType::f32, {8, 8}, Values(64));
      const Buffer at = buffer_of(queue, DType::i32, {8}, Values(8));
      attention_backward(queue, dq, dk, dv, o, o, lse, q, k, v, mask, 1);
      attention_backward(queue, dq, dk, dv, o, o, lse, q, k, v, mask, 1, {angles, angles, at});
    });
}

// Two documents of n tokens make n (n + 1) pairs; a window of w takes (n - w) (n - w + 1) of them.
TEST(AttentionOnSim, FlopsCountTheVisiblePairs) {
  const auto flops = [](int64_t window) {
    Arena arena;
    Queue queue(Device::sim, arena);
    const auto make = [&](DType dtype, const Shape& s) {
      return arena.make(Category::data, dtype, s, "operand");
    };
    const Buffer q = make(DType::f32, {20, 4, 16}), k = make(DType::f32, {20, 2, 16});
    const Buffer lse = make(DType::f32, {4, 20}), starts = make(DType::i32, {3});
    attention(queue, q, lse, q, k, k, {starts, 2, 10, window}, 1);
    return queue.total().flops;
  };
  EXPECT_DOUBLE_EQ(flops(0), 4.0 * (10 * 11) * 4 * 16);
  EXPECT_DOUBLE_EQ(flops(3), 4.0 * (10 * 11 - 7 * 8) * 4 * 16);
  EXPECT_DOUBLE_EQ(flops(100), flops(0));
}

}  // namespace
}  // namespace capstan::test
