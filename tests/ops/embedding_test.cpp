#include "ops/embedding.h"

#include "ops/reference.h"

namespace capstan::test {
namespace {

CAPSTAN_ON_EVERY_DEVICE(Embedding);

// T ids below V, with repetitions.
Values some_ids(int64_t T, int64_t V) {
  Values ids;
  for (int64_t t = 0; t < T; ++t) ids.push_back(double((t * t + 3 * t) % V));
  return ids;
}

TEST_P(Embedding, CopiesTheRowsOfTheIds) {
  for (const DType y_type : kComputeTypes)
    for (const DType w_type : types_beside({y_type}))
      for (const int64_t T : {1, 33})
        for (const int64_t D : {1, 31, 32, 33, 288}) {
          const int64_t V = 17;
          const Values ids = some_ids(T, V);
          const Buffer w = random(w_type, {V, D}), y = empty(y_type, {T, D});
          embedding(q_, y, w, of(DType::i32, {T}, ids));
          const Values table = values(w);
          Values expected;
          for (const double id : ids)
            for (int64_t d = 0; d < D; ++d) expected.push_back(table[idx(int64_t(id) * D + d)]);
          if (y_type == w_type || y_type == DType::f32) {
            EXPECT_EQ(values(y), expected);
          }
          EXPECT_LT(error(values(y), expected), tolerance(y_type)) << "T=" << T << " D=" << D;
        }
}

TEST_P(Embedding, GradientAddsUpRepeatedIds) {
  for (const DType dw_type : kComputeTypes)
    for (const DType dy_type : types_beside({dw_type}))
      for (const int64_t T : {1, 40})
        for (const int64_t D : {1, 31, 33, 288}) {
          const int64_t V = 11;
          const Values ids = some_ids(T, V);
          const Buffer dw = random(dw_type, {V, D}), dy = random(dy_type, {T, D});
          Values expected = values(dw);
          const Values added = values(dy);
          std::vector<int> uses(idx(V));
          for (int64_t t = 0; t < T; ++t) {
            ++uses[idx(int64_t(ids[idx(t)]))];
            for (int64_t d = 0; d < D; ++d)
              expected[idx(int64_t(ids[idx(t)]) * D + d)] += added[idx(t * D + d)];
          }
          embedding_backward(q_, dw, dy, of(DType::i32, {T}, ids));
          // Each addition rounds to the type of dw.
          const double adds = *std::max_element(uses.begin(), uses.end());
          EXPECT_LT(error(values(dw), expected), std::sqrt(adds) * tolerance(dw_type));
        }
}

TEST_P(Embedding, GradientDoesNotDependOnTheThreads) {
  const int64_t T = 700, D = 130, V = 5;
  const Buffer dy = random(DType::f32, {T, D}), ids = of(DType::i32, {T}, some_ids(T, V));
  expect_same_for_any_threads([&] {
    const Buffer dw = zeros(DType::f32, {V, D});
    embedding_backward(q_, dw, dy, ids);
    return values(dw);
  });
}

// A table whose rows are spread over ranks: every id is of one of them, and the others give 0.
TEST_P(Embedding, PartsOfATableAddUpToTheWhole) {
  const int64_t T = 67, V = 17, counts[] = {7, 4, 6};
  for (const DType dtype : kComputeTypes)
    for (const int64_t D : {1, 33, 288}) {
      const Buffer w = random(dtype, {V, D}), ids = of(DType::i32, {T}, some_ids(T, V));
      const Buffer dw = random(dtype, {V, D}), dy = random(dtype, {T, D});
      const Buffer whole = empty(dtype, {T, D}), part = empty(dtype, {T, D});
      const Buffer dw_parts = of(dtype, {V, D}, values(dw));
      embedding(q_, whole, w, ids);
      embedding_backward(q_, dw, dy, ids);
      Values sum(idx(T * D));
      int64_t first = 0, present = 0;
      for (const int64_t count : counts) {
        const EmbeddingRows rows{.first = first, .some = true};
        embedding(q_, part, w->rows(first, count), ids, rows);
        embedding_backward(q_, dw_parts->rows(first, count), dy, ids, rows);
        const Values found = values(part), all = values(ids);
        for (int64_t t = 0; t < T; ++t) {
          const bool here = all[idx(t)] >= double(first) && all[idx(t)] < double(first + count);
          present += here ? 1 : 0;
          for (int64_t d = 0; d < D; ++d) {
            const size_t i = idx(t * D + d);
            sum[i] += found[i];
            if (!here) {
              ASSERT_EQ(found[i], 0.0) << "t=" << t << " first=" << first;
            }
          }
        }
        first += count;
      }
      EXPECT_EQ(present, T);
      EXPECT_EQ(sum, values(whole)) << name_of(dtype) << " D=" << D;
      EXPECT_EQ(values(dw_parts), values(dw)) << name_of(dtype) << " D=" << D;
    }
}

TEST_P(Embedding, RefusesWrongOperands) {
  const Buffer w = random(DType::f32, {5, 8}), y = empty(DType::f32, {3, 8});
  const Buffer ids = of(DType::i32, {3}, {0, 1, 2}), four = of(DType::i32, {4}, {0, 1, 2, 3});
  expect_bug("embedding", [&] { embedding(q_, y, w, four); });
  expect_bug("embedding", [&] { embedding(q_, y->cols(0, 7), w, ids); });
  expect_bug("embedding", [&] { embedding(q_, y, w, y); });
  expect_bug("embedding_backward", [&] { embedding_backward(q_, w, y, four); });
  expect_bug("embedding", [&] { embedding(q_, y, w, ids, {.first = -1, .some = true}); });
}

TEST(EmbeddingOnSim, CostsAgree) {
  expect_same_on_sim([](Queue& q) {
    const Buffer w = buffer_of(q, DType::bf16, {5, 8}, Values(40));
    const Buffer y = buffer_of(q, DType::f32, {3, 8}, Values(24));
    const Buffer ids = buffer_of(q, DType::i32, {3}, {4, 0, 4});
    embedding(q, y, w, ids);
    embedding_backward(q, w, y, ids);
  });
}

// In bf16 a sum of ones would stop at 256: the next one is half a unit of the last place.
TEST_P(Embedding, ManyTokensOfOneIdAddUpInF32) {
  const int64_t T = 3000, D = 40;
  for (const DType dtype : kComputeTypes) {
    Values ids(idx(T));
    for (int64_t t = 0; t < T; ++t) ids[idx(t)] = t % 3 == 0 ? 2 : 1;
    const Buffer dw = zeros(dtype, {4, D}), dy = of(dtype, {T, D}, Values(idx(T * D), 1.0));
    embedding_backward(q_, dw, dy, of(DType::i32, {T}, ids));
    EXPECT_EQ(values(dw->rows(0, 1)), Values(idx(D), 0.0));
    EXPECT_EQ(values(dw->rows(1, 1)), Values(idx(D), 2000.0));
    EXPECT_EQ(values(dw->rows(2, 1)), Values(idx(D), 1000.0));
  }
}

}  // namespace
}  // namespace capstan::test
