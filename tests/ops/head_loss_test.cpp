#include "ops/head_loss.h"

#include "ops/cpu/head_loss.h"
#include "ops/head_loss_reference.h"
#if CAPSTAN_WITH_CUDA
#include "ops/cuda/head_loss.h"
#endif

namespace capstan::test {
namespace {

class HeadLoss : public HeadLossTest {};
INSTANTIATE_TEST_SUITE_P(Ops, HeadLoss, testing::ValuesIn(devices_present()), device_name);

TEST_P(HeadLoss, MatchesF64) {
  for (const DType x_type : kComputeTypes)
    for (const DType w_type : types_beside({x_type}))
      for (const int64_t T : {1, 3, 33, 100})
        for (const int64_t V : {1, 3, 31, 257})
          for (const int64_t D : {1, 33, 100}) {
            const Buffer x = random(x_type, {T, D}), w = head(w_type, V, D);
            const Buffer labels = some_labels(T, V), loss = loss_of(0);
            head_loss(q_, loss, x, w, labels);
            const double expected = head_loss_f64(values(x), values(w), values(labels), D).loss;
            // Each token's loss is a difference of values of size log V and 1.
            EXPECT_NEAR(values(loss)[0], expected,
                        (tolerance(DType::f32, D + V) + logit_error(GetParam(), x_type, w_type)) *
                            double(T) * (std::log(double(V)) + 1))
                << "T=" << T << " V=" << V << " D=" << D;
          }
}

TEST_P(HeadLoss, GradientsMatchFiniteDifferences) {
  const float scale = 0.37f;
  for (const DType dtype : kComputeTypes)
    for (const int64_t T : {1, 3, 33})
      for (const int64_t V : {1, 3, 100, 257})
        for (const int64_t D : {1, 31, 48}) {
          const double logits = logit_error(GetParam(), dtype, dtype);
          const Buffer x = random(dtype, {T, D}), w = head(dtype, V, D), labels = some_labels(T, V);
          const Buffer dx = empty(dtype, {T, D}), dw = zeros(DType::f32, {V, D}), loss = loss_of(0);
          head_loss_backward(q_, loss, dx, dw, x, w, labels, scale);
          const Values x64 = values(x), w64 = values(w), labels64 = values(labels);
          const auto f = [&](const Values& x_at, const Values& w_at) {
            return double{scale} * head_loss_f64(x_at, w_at, labels64, D).loss;
          };
          EXPECT_LT(gradient_error([&](const Values& at) { return f(at, w64); }, x64, values(dx)),
                    4 * (tolerance(dtype, V + D) + logits) + kDifferenceError)
              << name_of(dtype) << " T=" << T << " V=" << V << " D=" << D;
          EXPECT_LT(gradient_error([&](const Values& at) { return f(x64, at); }, w64, values(dw)),
                    4 * (tolerance(DType::f32, T + V + D) + logits) + kDifferenceError)
              << name_of(dtype) << " T=" << T << " V=" << V << " D=" << D;
        }
}

// Rows around what a GPU's shared memory holds, of whole packs of 16 bytes and not.
TEST_P(HeadLoss, TakesLargeVocabularies) {
  const int64_t T = 3, D = 8;
  for (const DType dtype : kComputeTypes)
    for (const int64_t V : {1000, 32000, 40000, 40001, 120000}) {
      const Buffer x = random(dtype, {T, D}), w = head(dtype, V, D), labels = some_labels(T, V);
      const Buffer dx = empty(dtype, {T, D}), dw = zeros(DType::f32, {V, D}), loss = loss_of(0);
      head_loss_backward(q_, loss, dx, dw, x, w, labels, 1);
      const HeadReference r = head_loss_f64(values(x), values(w), values(labels), D, true);
      const double logits = logit_error(GetParam(), dtype, dtype);
      EXPECT_NEAR(values(loss)[0], r.loss, (1e-5 + logits) * r.loss) << "V=" << V;
      EXPECT_LT(error(values(dx), r.dx), tolerance(dtype, V + D) + logits)
          << name_of(dtype) << " V=" << V;
      EXPECT_LT(error(values(dw), r.dw), tolerance(DType::f32, T + V + D) + logits)
          << name_of(dtype) << " V=" << V;
    }
}

TEST_P(HeadLoss, BothFormsGiveTheSameLoss) {
  const Buffer x = random(DType::bf16, {33, 16}), w = head(DType::f32, 100, 16);
  const Buffer labels = some_labels(33, 100), dx = empty(DType::f32, {33, 16});
  const Buffer dw = zeros(DType::f32, {100, 16}), one = loss_of(0), two = loss_of(0);
  head_loss(q_, one, x, w, labels);
  head_loss_backward(q_, two, dx, dw, x, w, labels, 0.25f);
  EXPECT_EQ(values(one), values(two));
}

// A term is as if its channels stood beside x's and w's.
TEST_P(HeadLoss, ATermAddsToTheLogits) {
  const int64_t T = 33, V = 100, D = 31, R = 5;
  const auto beside = [](const Values& a, const Values& b, int64_t rows) {
    Values both;
    const auto wide = a.size() / idx(rows), thin = b.size() / idx(rows);
    for (size_t r = 0; r < idx(rows); ++r) {
      both.insert(both.end(), &a[r * wide], &a[r * wide] + wide);
      both.insert(both.end(), &b[r * thin], &b[r * thin] + thin);
    }
    return both;
  };
  for (const DType dtype : kComputeTypes) {
    const Buffer x = random(dtype, {T, D}), w = head(dtype, V, D), labels = some_labels(T, V);
    const Buffer x2 = random(dtype, {T, R}), w2 = head(dtype, V, R);
    const Buffer dx = empty(dtype, {T, D}), dw = zeros(DType::f32, {V, D});
    const Buffer dx2 = empty(dtype, {T, R}), dw2 = zeros(DType::f32, {V, R});
    const Buffer loss = loss_of(0), alone = loss_of(0);
    const HeadReference r =
        head_loss_f64(beside(values(x), values(x2), T), beside(values(w), values(w2), V),
                      values(labels), D + R, true);
    head_loss(q_, alone, x, w, labels, -1, {x2, w2});
    head_loss_backward(q_, loss, dx, dw, x, w, labels, 1, -1, {x2, w2}, {dx2, dw2});
    EXPECT_EQ(values(loss), values(alone));
    const double logits = logit_error(GetParam(), dtype, dtype);
    EXPECT_NEAR(values(loss)[0], r.loss, (1e-5 + logits) * r.loss);
    EXPECT_LT(error(beside(values(dx), values(dx2), T), r.dx), tolerance(dtype, V + D) + logits);
    EXPECT_LT(error(beside(values(dw), values(dw2), V), r.dw),
              tolerance(DType::f32, T + V + D) + logits);

    // A frozen head: the others are as before, bit for bit. And the term's gradients alone.
    const Buffer dx_again = empty(dtype, {T, D}), dx2_again = empty(dtype, {T, R});
    const Buffer dw2_again = zeros(DType::f32, {V, R});
    head_loss_backward(q_, loss, dx_again, {}, x, w, labels, 1, -1, {x2, w2},
                       {dx2_again, dw2_again});
    EXPECT_EQ(values(dx_again), values(dx));
    EXPECT_EQ(values(dx2_again), values(dx2));
    EXPECT_EQ(values(dw2_again), values(dw2));
    head_loss_backward(q_, loss, {}, {}, x, w, labels, 1, -1, {x2, w2}, {dx2_again, dw2_again});
    EXPECT_EQ(values(dx2_again), values(dx2));
  }
  const Buffer x = random(DType::f32, {T, D}), w = head(DType::f32, V, D),
               labels = some_labels(T, V);
  const Buffer x2 = random(DType::f32, {T, R}), w2 = head(DType::f32, V, R + 1), loss = loss_of(0);
  expect_bug("head_loss", [&] { head_loss(q_, loss, x, w, labels, -1, {x2, w2}); });
  expect_bug("head_loss_backward", [&] {
    head_loss_backward(q_, loss, {}, {}, x, w, labels, 1, -1, {x2, w2->cols(0, R)}, {});
  });
}

TEST_P(HeadLoss, TakesEachTypeOnItsOwn) {
  const int64_t T = 33, V = 100, D = 31;
  for (const DType x_type : kComputeTypes)
    for (const DType w_type : types_beside({x_type}))
      for (const DType dx_type : types_beside({x_type, w_type}))
        for (const DType dw_type : types_beside({x_type, w_type, dx_type})) {
          const Buffer x = random(x_type, {T, D}), w = head(w_type, V, D);
          const Buffer labels = some_labels(T, V), loss = loss_of(0);
          const Buffer dx = empty(dx_type, {T, D}), dw = zeros(dw_type, {V, D});
          head_loss_backward(q_, loss, dx, dw, x, w, labels, 1);
          const HeadReference r = head_loss_f64(values(x), values(w), values(labels), D, true);
          const double logits = logit_error(GetParam(), x_type, w_type);
          EXPECT_LT(error(values(dx), r.dx), tolerance(dx_type, V + D) + logits);
          EXPECT_LT(error(values(dw), r.dw), tolerance(dw_type, T + V + D) + logits);
        }
}

struct ChunkSizes {
  int64_t T, V, chunk;
};
ChunkSizes sizes_of_chunks(Device device) {
#if CAPSTAN_WITH_CUDA
  if (device == Device::cuda) return {265, 262'145, cuda::head_chunk_rows(265, 262'145)};
#endif
  EXPECT_EQ(device, Device::cpu);
  return {41, 400'000, cpu::head_chunk_rows(41, 400'000)};
}

TEST_P(HeadLoss, SeveralChunks) {
  // Two full chunks and one of a single token, with ignored tokens at both ends and between.
  const auto [T, V, chunk] = sizes_of_chunks(GetParam());
  const int64_t D = 3;
  const Buffer x = random(DType::f32, {T, D}), w = head(DType::bf16, V, D);
  Values some(idx(T));
  for (size_t t = 0; t < some.size(); ++t) some[t] = double(t * 9973 % idx(V));
  for (const int64_t t :
       {int64_t{0}, int64_t{1}, int64_t{5}, T / 2, T / 2 + 1, T - 11, T - 2, T - 1})
    some[idx(t)] = kIgnore;
  ASSERT_EQ(2 * chunk + 1, T - 8) << "choose T for the chunk size of today";
  const Buffer labels = of(DType::i32, {T}, some), loss = loss_of(0), alone = loss_of(0);
  const Buffer dx = empty(DType::f32, {T, D}), dw = zeros(DType::f32, {V, D});
  head_loss(q_, alone, x, w, labels);
  head_loss_backward(q_, loss, dx, dw, x, w, labels, 1);
  const HeadReference r = head_loss_f64(values(x), values(w), some, D, true);
  const double tol = tolerance(DType::f32, V);
  EXPECT_NEAR(values(loss)[0], r.loss, tol * r.loss);
  EXPECT_EQ(values(alone), values(loss));
  EXPECT_LT(error(values(dx), r.dx), tol);
  EXPECT_LT(error(values(dw), r.dw), tol);
}

TEST(HeadLossChunks, FitAnyVocabulary) {
  for (const int64_t V : {1, 100, 32'000, 128'256, 400'000, 100'000'000})
    for (const int64_t T : {0, 1, 15, 16, 17, 300, 100'000}) {
      const int64_t rows = cpu::head_chunk_rows(T, V);
      EXPECT_LE(rows, T);
      EXPECT_GE(rows, std::min<int64_t>(T, 16));
    }
  EXPECT_LT(cpu::head_chunk_rows(100'000, 128'256), 1000) << "logits must not exist all at once";
}

TEST_P(HeadLoss, IgnoredTokensDoNotCount) {
  for (const DType dtype : kComputeTypes) {
    const int64_t T = 5, V = 31, D = 16;
    Values with_nan = normal_values(T * D, 1);
    for (size_t d = 0; d < idx(D); ++d) with_nan[2 * idx(D) + d] = NAN;
    const Buffer x = of(dtype, {T, D}, with_nan), w = head(dtype, V, D);
    const Buffer labels = of(DType::i32, {T}, {kIgnore, 3, kIgnore, 30, kIgnore});
    const Buffer loss = loss_of(0), dx = empty(dtype, {T, D}), dw = zeros(DType::f32, {V, D});
    head_loss_backward(q_, loss, dx, dw, x, w, labels, 1);
    for (const int64_t t : {0, 2, 4}) EXPECT_EQ(values(dx->rows(t, 1)), Values(idx(D), 0.0));
    const HeadReference r = head_loss_f64(values(x), values(w), values(labels), D, true);
    const double logits = logit_error(GetParam(), dtype, dtype);
    EXPECT_NEAR(values(loss)[0], r.loss, (tolerance(DType::f32, D + V) + logits) * r.loss);
    EXPECT_LT(error(values(dx), r.dx), tolerance(dtype, D + V) + logits);
    EXPECT_LT(error(values(dw), r.dw), tolerance(DType::f32, D + V) + logits);
  }
}

TEST_P(HeadLoss, AllIgnored) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t T : {0, 1, 40}) {
      const Buffer x = random(dtype, {T, 16}), w = random(dtype, {31, 16});
      const Buffer labels = of(DType::i32, {T}, Values(idx(T), double{kIgnore})),
                   loss = loss_of(2.5);
      const Buffer dx = empty(dtype, {T, 16}), dw = random(dtype, {31, 16});
      const Values dw_old = values(dw);
      head_loss(q_, loss, x, w, labels);
      head_loss_backward(q_, loss, dx, dw, x, w, labels, 1);
      EXPECT_EQ(values(loss)[0], 2.5);
      EXPECT_EQ(values(dx), Values(idx(T * 16), 0.0));
      EXPECT_EQ(values(dw), dw_old);
    }
}

TEST_P(HeadLoss, AddsToTheLossAndToTheWeightGradient) {
  const int64_t T = 33, V = 100, D = 16;
  for (const DType dtype : kComputeTypes) {
    const Buffer x = random(dtype, {T, D}), w = head(dtype, V, D), labels = some_labels(T, V);
    const Buffer dx = empty(dtype, {T, D}), dw = random(dtype, {V, D}), loss = loss_of(1000);
    const HeadReference r = head_loss_f64(values(x), values(w), values(labels), D, true);
    Values dw_sum = values(dw);
    for (size_t i = 0; i < dw_sum.size(); ++i) dw_sum[i] += r.dw[i];
    head_loss_backward(q_, loss, dx, dw, x, w, labels, 1);
    const double near =
        (tolerance(DType::f32, V + D) + logit_error(GetParam(), dtype, dtype)) * r.loss;
    EXPECT_LT(error(values(dw), dw_sum),
              tolerance(dtype, T + V + D) + logit_error(GetParam(), dtype, dtype));
    EXPECT_NEAR(values(loss)[0], 1000 + r.loss, near);
    head_loss(q_, loss, x, w, labels);
    EXPECT_NEAR(values(loss)[0], 1000 + 2 * r.loss, 2 * near);
  }
}

TEST_P(HeadLoss, TheScaleIsOfTheGradientsOnly) {
  const int64_t T = 33, V = 100, D = 16;
  const Buffer x = random(DType::f32, {T, D}), w = head(DType::f32, V, D),
               labels = some_labels(T, V);
  const auto gradients = [&](float scale) {
    const Buffer dx = empty(DType::f32, {T, D}), dw = zeros(DType::f32, {V, D}), loss = loss_of(0);
    head_loss_backward(q_, loss, dx, dw, x, w, labels, scale);
    Values all = values(dx), more = values(dw);
    all.insert(all.end(), more.begin(), more.end());
    return std::pair(all, values(loss));
  };
  const auto [one, loss_one] = gradients(1);
  const auto [small, loss_small] = gradients(0x1p-12f);
  Values expected(one);
  for (double& g : expected) g *= 0x1p-12;
  EXPECT_EQ(small, expected);  // a power of two rounds nothing
  EXPECT_EQ(loss_small, loss_one);
}

TEST_P(HeadLoss, LargeLogitsDoNotOverflow) {
  // Logits 1e4, -1e4, 9900 and 0: probabilities 1, 0, 0 and 0, in f32 exactly.
  const Buffer x = of(DType::f32, {3, 1}, {100, 100, 100});
  const Buffer w = of(DType::f32, {4, 1}, {100, -100, 99, 0});
  const Buffer labels = of(DType::i32, {3}, {0, 1, 2}), loss = loss_of(0);
  const Buffer dx = empty(DType::f32, {3, 1}), dw = zeros(DType::f32, {4, 1});
  head_loss_backward(q_, loss, dx, dw, x, w, labels, 1);
  EXPECT_EQ(values(loss)[0], 0 + 2e4 + 100);
  EXPECT_LT(error(values(dx), {0, 200, 1}), 1e-30);
  EXPECT_EQ(values(dw), (Values{200, -100, -100, 0}));
}

TEST_P(HeadLoss, NanIsNotHidden) {
  for (const DType dtype : kComputeTypes)
    for (const double bad : {double{NAN}, double{INFINITY}}) {
      Values broken = normal_values(5 * 16, 3);
      broken[2 * 16 + 7] = bad;
      const Buffer x = of(dtype, {5, 16}, broken), w = head(dtype, 31, 16);
      const Buffer labels = of(DType::i32, {5}, {1, 2, 3, 4, 5}), loss = loss_of(0);
      const Buffer dx = empty(dtype, {5, 16}), dw = zeros(DType::f32, {31, 16});
      head_loss(q_, loss, x, w, labels);
      EXPECT_FALSE(std::isfinite(values(loss)[0])) << bad;
      head_loss_backward(q_, loss, dx, dw, x, w, labels, 1);
      EXPECT_FALSE(std::isfinite(norm(values(dw)))) << bad;
      for (const int64_t t : {0, 1, 3, 4}) EXPECT_TRUE(std::isfinite(norm(values(dx->rows(t, 1)))));
    }
}

// One row of the head is damaged: one logit of each token, which is not its label's. Rows of the
// logits are whole packs or not.
TEST_P(HeadLoss, OneLogitThatIsNanIsNotHidden) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t V : {31, 32, 1201, 1208})
      for (const int64_t at : {0, 7, 30, 600, 1200}) {
        if (at >= V) continue;
        Values damaged = normal_values(V * 16, 3);
        damaged[idx(at) * 16 + 5] = NAN;
        const Buffer x = random(dtype, {3, 16}), w = of(dtype, {V, 16}, damaged);
        const Buffer labels = of(DType::i32, {3}, {1, 2, 3}), loss = loss_of(0);
        head_loss(q_, loss, x, w, labels);
        EXPECT_TRUE(std::isnan(values(loss)[0])) << name_of(dtype) << " V=" << V << " at " << at;
      }
}

// The tiles of the products follow the threads, so rounding may differ between numbers of them.
TEST_P(HeadLoss, AnyNumberOfThreads) {
  const int64_t T = 70, V = 300, D = 33;
  const Buffer x = random(DType::f32, {T, D}), w = head(DType::bf16, V, D),
               labels = some_labels(T, V);
  const HeadReference r = head_loss_f64(values(x), values(w), values(labels), D, true);
  const int usual = omp_get_max_threads();
  for (const int threads : {1, 2, 3}) {
    omp_set_num_threads(threads);
    Values runs[2];
    for (Values& run : runs) {
      const Buffer loss = loss_of(0), dx = empty(DType::f32, {T, D}),
                   dw = zeros(DType::f32, {V, D});
      head_loss_backward(q_, loss, dx, dw, x, w, labels, 1);
      EXPECT_NEAR(values(loss)[0], r.loss, tolerance(DType::f32, V + D) * r.loss) << threads;
      EXPECT_LT(error(values(dx), r.dx), tolerance(DType::f32, V + D)) << threads;
      EXPECT_LT(error(values(dw), r.dw), tolerance(DType::f32, T + V + D)) << threads;
      for (const Values& part : {values(loss), values(dx), values(dw)})
        run.insert(run.end(), part.begin(), part.end());
    }
    EXPECT_EQ(runs[0], runs[1]) << threads << " threads, twice";
  }
  omp_set_num_threads(usual);
}

TEST_P(HeadLoss, RefusesWrongOperands) {
  const Buffer x = random(DType::f32, {3, 8}), w = random(DType::f32, {6, 8}), loss = loss_of(0);
  const Buffer labels = of(DType::i32, {3}, {0, 1, 2}), loss32 = zeros(DType::f32, {1});
  const Buffer narrow = random(DType::f32, {6, 7}), wide = random(DType::f32, {3, 16});
  const Buffer other = zeros(DType::f64, {6, 8}), ids = empty(DType::i32, {3, 8});
  const auto bug = [&](const Tensor& l, const Tensor& a, const Tensor& b, const Tensor& labels_T) {
    expect_bug("head_loss", [&] { head_loss(q_, l, a, b, labels_T); });
    expect_bug("head_loss_backward", [&] { head_loss_backward(q_, l, a, b, a, b, labels_T, 1); });
  };
  bug(loss32, x, w, labels);
  bug(loss, x, narrow, labels);
  bug(loss, x, w, labels->rows(0, 2));
  bug(loss, x, w, x);
  bug(loss, wide->cols(0, 8), w, labels);
  bug(loss, x, other, labels);
  const auto backward_bug = [&](const Tensor& dx, const Tensor& dw) {
    expect_bug("head_loss_backward",
               [&] { head_loss_backward(q_, loss, dx, dw, x, w, labels, 1); });
  };
  backward_bug(x->rows(0, 2), w);
  backward_bug(wide->cols(0, 8), w);
  backward_bug(x, narrow);
  backward_bug(ids, w);
  backward_bug(x, other);
}

TEST(HeadLossOnSim, CostsAndScratchAgree) {
  for (const DType dtype : kComputeTypes)
    expect_same_on_sim([&](Queue& q) {
      const auto phase = q.arena().phase("ops");
      const auto make = [&](const Shape& s) { return buffer_of(q, dtype, s, Values(1000)); };
      const Buffer x = make({7, 9}), w = make({50, 9}), dx = make({7, 9}), dw = make({50, 9});
      const Buffer loss = buffer_of(q, DType::f64, {1}, {0});
      const Buffer labels = buffer_of(q, DType::i32, {7}, {0, 1, -100, 3, 4, 5, 49});
      head_loss(q, loss, x, w, labels);
      head_loss_backward(q, loss, dx, dw, x, w, labels, 1);
    });
}

// A plan for the largest batch must serve every smaller one.
TEST(HeadChunk, FewerTokensNeverNeedMoreRows) {
  for (const int64_t vocab : {259, 32000, 151936}) {
    int64_t before = 0;
    for (int64_t tokens = 1; tokens < 70000; tokens += 7) {
      const int64_t rows = cpu::head_chunk_rows(tokens, vocab);
      EXPECT_GE(rows, before) << tokens << " tokens, vocabulary " << vocab;
      EXPECT_LE(rows, tokens);
      before = rows;
    }
  }
}

}  // namespace
}  // namespace capstan::test
