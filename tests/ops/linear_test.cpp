#include "ops/linear.h"

#include <ostream>

#include "ops/reference.h"

namespace capstan::test {
namespace {

CAPSTAN_ON_EVERY_DEVICE(Linear);

struct Size {
  int64_t T, O, I;
};

std::ostream& operator<<(std::ostream& to, const Size& s) {
  return to << "T=" << s.T << " O=" << s.O << " I=" << s.I;
}

const std::vector<Size> kSizes = {{1, 1, 1},    {1, 257, 100}, {3, 31, 33},  {4, 100, 257},
                                  {5, 33, 600}, {31, 100, 3},  {33, 257, 1}, {100, 33, 257},
                                  {257, 3, 31}, {64, 1, 100},  {600, 264, 8}};

// An empty b is absent.
Values linear_f64(const Size& s, const Values& x, const Values& w, const Values& b = {}) {
  Values y;
  for (int64_t t = 0; t < s.T; ++t)
    for (int64_t o = 0; o < s.O; ++o) {
      y.push_back(dot(x.data() + t * s.I, w.data() + o * s.I, s.I, b.empty() ? 0 : b[idx(o)]));
    }
  return y;
}

void add(Values& to, const Values& more) {
  ASSERT_EQ(to.size(), more.size());
  for (size_t i = 0; i < to.size(); ++i) to[i] += more[i];
}

TEST_P(Linear, MatchesF64) {
  for (const DType dtype : kComputeTypes)
    for (const Size& s : kSizes)
      for (const bool bias : {false, true})
        for (const Write mode : {Write::replace, Write::add}) {
          const Buffer x = random(dtype, {s.T, s.I}), w = random(dtype, {s.O, s.I});
          const Buffer b = random(dtype, {s.O});
          const Buffer y =
              mode == Write::add ? random(dtype, {s.T, s.O}) : empty(dtype, {s.T, s.O});
          Values expected = linear_f64(s, values(x), values(w), bias ? values(b) : Values());
          if (mode == Write::add) add(expected, values(y));
          linear(q_, y, x, w, bias ? *b : Tensor(), mode);
          // bf16: what is there plus the bias is rounded, and the sum with the product again.
          const double roundings = bias && mode == Write::add ? 2 : 1;
          EXPECT_LT(error(values(y), expected), roundings * tolerance(dtype, s.I))
              << name_of(dtype) << ' ' << s << " bias " << bias << " add " << (mode == Write::add);
        }
}

// The product is multiplied, and neither the bias nor what is there.
TEST_P(Linear, TakesAFactorOfTheProduct) {
  constexpr float kFactor = -1.25f;
  for (const DType dtype : kComputeTypes)
    for (const Size& s : kSizes)
      for (const Write mode : {Write::replace, Write::add}) {
        const Buffer x = random(dtype, {s.T, s.I}), w = random(dtype, {s.O, s.I});
        const Buffer b = random(dtype, {s.O}), y = random(dtype, {s.T, s.O});
        const Buffer dx = random(dtype, {s.T, s.I});
        Values scaled = values(w);
        for (double& v : scaled) v *= kFactor;
        Values expected = linear_f64(s, values(x), scaled, values(b));
        if (mode == Write::add) add(expected, values(y));
        Values flipped;
        for (int64_t i = 0; i < s.I; ++i)
          for (int64_t o = 0; o < s.O; ++o) flipped.push_back(scaled[idx(o * s.I + i)]);
        linear(q_, y, x, w, b, mode, kFactor);
        EXPECT_LT(error(values(y), expected), 2 * tolerance(dtype, s.I)) << s;
        Values d_expected = linear_f64({s.T, s.I, s.O}, values(y), flipped);
        if (mode == Write::add) add(d_expected, values(dx));
        linear_backward_data(q_, dx, y, w, mode, kFactor);
        EXPECT_LT(error(values(dx), d_expected), 2 * tolerance(dtype, s.O)) << s;
      }
}

TEST_P(Linear, TakesEachTypeOnItsOwn) {
  const Size s{33, 20, 31};
  for (const int64_t T : {2, 33})  // few rows go another way
    for (const DType y_type : kComputeTypes)
      for (const DType x_type : types_beside({y_type}))
        for (const DType w_type : types_beside({y_type, x_type}))
          for (const DType b_type : types_beside({y_type, x_type, w_type})) {
            const Buffer x = random(x_type, {T, s.I}), w = random(w_type, {s.O, s.I});
            const Buffer b = random(b_type, {s.O}), y = empty(y_type, {T, s.O});
            linear(q_, y, x, w, b);
            EXPECT_LT(error(values(y), linear_f64({T, s.O, s.I}, values(x), values(w), values(b))),
                      tolerance(y_type, s.I));
          }
}

TEST_P(Linear, RowsMayHaveStrides) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t T : {3, 33}) {
      const Size s{T, 20, 31};
      const Buffer x = random(dtype, {T, 2 * s.I + 1}), w = random(dtype, {s.O, s.I});
      const Buffer y = random(dtype, {T, s.O + 7}), b = random(dtype, {s.O});
      const Tensor x_view = x->cols(s.I, s.I), y_view = y->cols(4, s.O);
      const Values left = values(y->cols(0, 4)), right = values(y->cols(4 + s.O, 3));
      linear(q_, y_view, x_view, w, b);
      const Values expected = linear_f64(s, values(x_view), values(w), values(b));
      EXPECT_LT(error(values(y_view), expected), tolerance(dtype, s.I));
      EXPECT_EQ(values(y->cols(0, 4)), left) << "wrote outside of the view";
      EXPECT_EQ(values(y->cols(4 + s.O, 3)), right) << "wrote outside of the view";
    }
}

// Terms for some of the columns, side by side or with a gap. On a Hopper GPU those of whole tiles
// of 256 columns are a part of the product, in all of its tiles and halves of tiles; for few rows,
// or with a bias, they come after it.
TEST_P(Linear, AddsThinTerms) {
  struct Case {
    int64_t T, O, I, R;
    std::vector<std::pair<int64_t, int64_t>> columns;  // first, end
  };
  const std::vector<Case> cases = {
      {5, 40, 33, 3, {{0, 10}, {10, 31}, {33, 40}}},
      {140, 512, 72, 8, {{256, 512}}},
      {300, 768, 200, 32, {{0, 256}, {512, 768}}},
      {130, 1000, 64, 96, {{0, 512}, {512, 768}, {768, 1000}}},
      {257, 264, 136, 64, {{0, 264}}},
      {200, 512, 64, 16, {{0, 200}, {200, 512}}},
      {150, 512, 64, 12, {{0, 512}}},
      {258, 9216, 64, 16, {{0, 4096}, {4096, 6144}, {7168, 9216}}},
  };
  for (const DType dtype : kComputeTypes)
    for (const Case& c : cases)
      for (const bool bias : {false, true}) {
        if (dtype == DType::f16 && c.O > 1000) continue;  // Hopper's kernel is for bf16
        const Size s{c.T, c.O, c.I};
        const auto terms = static_cast<int64_t>(c.columns.size());
        const Buffer x = random(dtype, {c.T, c.I}), w = random(dtype, {c.O, c.I});
        const Buffer b = random(dtype, {c.O}), y = empty(dtype, {c.T, c.O});
        const Buffer inner = random(dtype, {c.T, terms * c.R}), outer = random(dtype, {c.O, c.R});
        Values expected = linear_f64(s, values(x), values(w), bias ? values(b) : Values());
        ThinTerms added;
        for (int64_t i = 0; i < terms; ++i) {
          const auto [first, end] = c.columns[idx(i)];
          const Tensor x_i = inner->cols(i * c.R, c.R), w_i = outer->rows(first, end - first);
          added.add({x_i, w_i, first});
          const Values more = linear_f64({c.T, end - first, c.R}, values(x_i), values(w_i));
          for (int64_t t = 0; t < c.T; ++t)
            for (int64_t o = first; o < end; ++o)
              expected[idx(t * c.O + o)] += more[idx(t * (end - first) + o - first)];
        }
        linear(q_, y, x, w, bias ? *b : Tensor(), added);
        EXPECT_LT(error(values(y), expected), 2 * tolerance(dtype, c.I + c.R))
            << name_of(dtype) << ' ' << s << " R=" << c.R << " bias " << bias;
      }
}

TEST(ThinTerms, AreCutWithTheColumns) {
  float room[64] = {};
  const Tensor x(room, DType::f32, {2, 4}), w(room, DType::f32, {10, 4});
  ThinTerms terms;
  terms.add({x, w, 0});
  terms.add({x, w.rows(0, 6), 20});
  EXPECT_EQ(terms.within(10, 10).count(), 0);
  const ThinTerms found = terms.within(4, 18);
  ASSERT_EQ(found.count(), 2);
  EXPECT_EQ(found.begin()[0].first, 0);
  EXPECT_EQ(found.begin()[0].end(), 6);
  EXPECT_EQ(found.begin()[0].w_OR.raw(), w.rows(4, 6).raw());
  EXPECT_EQ(found.begin()[1].first, 16);
  EXPECT_EQ(found.begin()[1].end(), 18);
  EXPECT_EQ(found.begin()[1].w_OR.raw(), w.raw());
}

TEST(ThinTerms, RefuseWhatDoesNotFit) {
  float room[64] = {};
  const Tensor x(room, DType::f32, {2, 4}), w(room, DType::f32, {10, 4});
  const Tensor y(room, DType::f32, {2, 30});
  const auto cost = [&](const ThinTerms& terms) { terms.checked_cost("linear", y, {}); };
  ThinTerms terms;
  terms.add({x, w, 5});
  EXPECT_NO_THROW(cost(terms));
  expect_bug("thin terms", [&] { terms.add({x, w, 14}); });
  terms.add({x, w, 15});
  terms.add({x, w, 25});
  expect_bug("thin terms", [&] { terms.add({x, w, 40}); });
  expect_bug("linear", [&] { cost(terms); });
  ThinTerms narrow, short_x;
  narrow.add({x.cols(0, 3), w, 0});
  short_x.add({x.rows(0, 1), w, 0});
  expect_bug("linear", [&] { cost(narrow); });
  expect_bug("linear", [&] { cost(short_x); });
}

TEST_P(Linear, GradientsMatchFiniteDifferences) {
  for (const DType dtype : kComputeTypes)
    for (const Size& s : kSizes) {
      const Buffer x = random(dtype, {s.T, s.I}), w = random(dtype, {s.O, s.I});
      const Buffer dy = random(dtype, {s.T, s.O}), dx = empty(dtype, {s.T, s.I});
      const Buffer dw = zeros(DType::f32, {s.O, s.I}), db = zeros(DType::f32, {s.O});
      linear_backward_data(q_, dx, dy, w);
      linear_backward_weight(q_, dw, db, dy, x);
      const Values x64 = values(x), w64 = values(w), dy64 = values(dy);
      const auto of_x = [&](const Values& at) { return dot(dy64, linear_f64(s, at, w64)); };
      const auto of_w = [&](const Values& at) { return dot(dy64, linear_f64(s, x64, at)); };
      const auto of_b = [&](const Values& at) { return dot(dy64, linear_f64(s, x64, w64, at)); };
      EXPECT_LT(gradient_error(of_x, x64, values(dx), 2),
                4 * tolerance(dtype, s.O) + kDifferenceError)
          << name_of(dtype) << ' ' << s;
      EXPECT_LT(gradient_error(of_w, w64, values(dw), 2),
                4 * tolerance(DType::f32, s.T) + kDifferenceError)
          << name_of(dtype) << ' ' << s;
      EXPECT_LT(gradient_error(of_b, Values(idx(s.O), 0.5), values(db), 2),
                4 * tolerance(DType::f32, s.T) + kDifferenceError)
          << name_of(dtype) << ' ' << s;
    }
}

TEST_P(Linear, GradientsTakeEachTypeOnItsOwn) {
  const int64_t T = 33, O = 20, I = 31;
  for (const DType to : kComputeTypes)
    for (const DType dy_type : types_beside({to}))
      for (const DType other : types_beside({to, dy_type})) {
        const Buffer dy = random(dy_type, {T, O}), w = random(other, {O, I}),
                     x = random(other, {T, I});
        const Buffer dx = empty(to, {T, I}), dw = zeros(to, {O, I}), db = zeros(to, {O});
        const Buffer dy32 = of(DType::f32, {T, O}, values(dy));
        const Buffer dx32 = empty(DType::f32, {T, I}), dw32 = zeros(DType::f32, {O, I});
        const Buffer db32 = zeros(DType::f32, {O});
        linear_backward_data(q_, dx, dy, w);
        linear_backward_weight(q_, dw, db, dy, x);
        linear_backward_data(q_, dx32, dy32, of(DType::f32, {O, I}, values(w)));
        linear_backward_weight(q_, dw32, db32, dy32, of(DType::f32, {T, I}, values(x)));
        EXPECT_LT(error(values(dx), values(dx32)), 2 * tolerance(to, O));
        EXPECT_LT(error(values(dw), values(dw32)), 2 * tolerance(to, T));
        EXPECT_LT(error(values(db), values(db32)), 2 * tolerance(to, T));
      }
}

TEST_P(Linear, GradientsAreAdded) {
  const int64_t T = 33, O = 100, I = 31;
  for (const DType dtype : kComputeTypes) {
    const Buffer x = random(dtype, {T, I}), w = random(dtype, {O, I}), dy = random(dtype, {T, O});
    const Buffer dx = random(dtype, {T, I}), dw = random(dtype, {O, I}), db = random(dtype, {O});
    const Buffer dx1 = empty(DType::f32, {T, I}), dw1 = zeros(DType::f32, {O, I});
    const Buffer db1 = zeros(DType::f32, {O});
    linear_backward_data(q_, dx1, dy, w);
    linear_backward_weight(q_, dw1, db1, dy, x);
    Values dx_sum = values(dx), dw_sum = values(dw), db_sum = values(db);
    add(dx_sum, values(dx1));
    add(dw_sum, values(dw1));
    add(db_sum, values(db1));
    linear_backward_data(q_, dx, dy, w, Write::add);
    linear_backward_weight(q_, dw, db, dy, x);
    EXPECT_LT(error(values(dx), dx_sum), 2 * tolerance(dtype, O));
    EXPECT_LT(error(values(dw), dw_sum), 2 * tolerance(dtype, T));
    EXPECT_LT(error(values(db), db_sum), 2 * tolerance(dtype, T));
  }
}

TEST_P(Linear, TheGradientOfTheWeightMayBeReplaced) {
  const int64_t T = 33, O = 100, I = 31;
  for (const DType dtype : kComputeTypes) {
    const Buffer x = random(dtype, {T, I}), dy = random(dtype, {T, O});
    const Buffer dw = empty(dtype, {O, I}), db = random(dtype, {O});
    const Buffer added = zeros(dtype, {O, I}), db_added = of(dtype, {O}, values(db));
    linear_backward_weight(q_, dw, db, dy, x, Write::replace);
    linear_backward_weight(q_, added, db_added, dy, x);
    EXPECT_EQ(values(dw), values(added));
    EXPECT_EQ(values(db), values(db_added)) << "the bias is added to";
  }
}

// As for q, k and v: dy and x are columns of something wider, dx too.
TEST_P(Linear, GradientsOfStridedRows) {
  const int64_t T = 33, O = 20, I = 31;
  for (const DType dtype : kComputeTypes) {
    const Buffer dy = random(dtype, {T, 3 * O}), x = random(dtype, {T, I + 5}),
                 w = random(dtype, {O, I});
    const Buffer dx = random(dtype, {T, I + 9});
    const Tensor dy_view = dy->cols(O, O), x_view = x->cols(5, I), dx_view = dx->cols(3, I);
    const Buffer dy_dense = of(dtype, {T, O}, values(dy_view));
    const Buffer x_dense = of(dtype, {T, I}, values(x_view)), dx_dense = empty(dtype, {T, I});
    const Buffer dw = zeros(DType::f32, {O, I}), dw_dense = zeros(DType::f32, {O, I});
    const Buffer db = zeros(DType::f32, {O}), db_dense = zeros(DType::f32, {O});
    const Values left = values(dx->cols(0, 3)), right = values(dx->cols(3 + I, 6));
    linear_backward_data(q_, dx_view, dy_view, w);
    linear_backward_weight(q_, dw, db, dy_view, x_view);
    linear_backward_data(q_, dx_dense, dy_dense, w);
    linear_backward_weight(q_, dw_dense, db_dense, dy_dense, x_dense);
    EXPECT_LT(error(values(dx_view), values(dx_dense)), 2 * tolerance(dtype, O));
    EXPECT_LT(error(values(dw), values(dw_dense)), 2 * tolerance(DType::f32, T));
    EXPECT_EQ(values(db), values(db_dense));
    EXPECT_EQ(values(dx->cols(0, 3)), left) << "wrote outside of the view";
    EXPECT_EQ(values(dx->cols(3 + I, 6)), right) << "wrote outside of the view";
  }
}

TEST_P(Linear, ABiasGradientIsNotNeeded) {
  const Buffer dy = random(DType::f32, {33, 20}), x = random(DType::f32, {33, 31});
  const Buffer with = zeros(DType::f32, {20, 31}), without = zeros(DType::f32, {20, 31});
  linear_backward_weight(q_, with, zeros(DType::f32, {20}), dy, x);
  linear_backward_weight(q_, without, {}, dy, x);
  EXPECT_EQ(values(with), values(without));
}

// The tiles of the product follow the threads, so rounding may differ; sums of columns do not.
TEST_P(Linear, AnyNumberOfThreads) {
  const Size s{100, 257, 129};
  const Buffer x = random(DType::f32, {s.T, s.I}), w = random(DType::f32, {s.O, s.I});
  const Buffer y = empty(DType::f32, {s.T, s.O}), b = random(DType::f32, {s.O});
  const Values expected = linear_f64(s, values(x), values(w), values(b));
  const int usual = omp_get_max_threads();
  for (const int threads : {1, 2, 3}) {
    omp_set_num_threads(threads);
    linear(q_, y, x, w, b);
    EXPECT_LT(error(values(y), expected), tolerance(DType::f32, s.I)) << threads << " threads";
  }
  omp_set_num_threads(usual);
  expect_same_for_any_threads([&] {
    const Buffer db = zeros(DType::f32, {s.O}), dw = zeros(DType::f32, {s.O, s.I});
    linear_backward_weight(q_, dw, db, y, x);
    return values(db);
  });
}

TEST_P(Linear, NothingToDo) {
  for (const DType dtype : kComputeTypes) {
    const Buffer x = empty(dtype, {0, 8}), y = empty(dtype, {0, 6}), w = random(dtype, {6, 8});
    const Buffer b = random(dtype, {6}), dw = random(dtype, {6, 8}), db = random(dtype, {6});
    const Values dw_old = values(dw), db_old = values(db);
    linear(q_, y, x, w, b);
    linear_backward_data(q_, x, y, w);
    linear_backward_weight(q_, dw, db, y, x);
    EXPECT_EQ(values(dw), dw_old);
    EXPECT_EQ(values(db), db_old);
  }
}

TEST_P(Linear, NanIsNotHidden) {
  const Buffer x = of(DType::f32, {2, 2}, {1, NAN, 1, 2}), w = zeros(DType::f32, {1, 2});
  const Buffer y = zeros(DType::f32, {2, 1});
  linear(q_, y, x, w, {});
  EXPECT_TRUE(std::isnan(values(y)[0]));
  EXPECT_EQ(values(y)[1], 0);
}

TEST_P(Linear, RefusesWrongOperands) {
  const Buffer x = random(DType::f32, {3, 8}), w = random(DType::f32, {6, 8});
  const Buffer y = random(DType::f32, {3, 6}), b = random(DType::f32, {6});
  const Buffer other = zeros(DType::f64, {6}), wide = random(DType::f32, {6, 16});
  const Buffer ids = empty(DType::i32, {3, 8});
  expect_bug("linear", [&] { linear(q_, y, x, x, b); });
  expect_bug("linear", [&] { linear(q_, y->rows(0, 2), x, w, b); });
  expect_bug("linear", [&] { linear(q_, y, x->reshape({3, 2, 4}), w, b); });
  expect_bug("linear", [&] { linear(q_, y, x, w, x); });
  expect_bug("linear", [&] { linear(q_, y, x, w, b->cols(0, 5)); });
  expect_bug("linear", [&] { linear(q_, y, x, w, other); });
  expect_bug("linear", [&] { linear(q_, y, ids, w, b); });
  expect_bug("linear", [&] { linear(q_, y, x, wide->cols(0, 8), b); });
  expect_bug("linear_backward_data", [&] { linear_backward_data(q_, y, x, w); });
  expect_bug("linear_backward_data", [&] { linear_backward_data(q_, ids, y, w); });
  expect_bug("linear_backward_weight", [&] { linear_backward_weight(q_, w, {}, x, y); });
  expect_bug("linear_backward_weight", [&] { linear_backward_weight(q_, w, x, y, x); });
  expect_bug("linear_backward_weight", [&] { linear_backward_weight(q_, w, other, y, x); });
}

TEST(LinearOnSim, CostsAndScratchAgree) {
  for (const DType dtype : kComputeTypes)
    expect_same_on_sim([&](Queue& q) {
      const auto phase = q.arena().phase("ops");
      const auto make = [&](const Shape& s) { return buffer_of(q, dtype, s, Values(1000)); };
      const Buffer x = make({7, 9}), w = make({5, 9}), y = make({7, 5}), b = make({5});
      linear(q, y, x, w, b, Write::add);
      linear(q, y, x, w, {});
      linear_backward_data(q, x, y, w);
      linear_backward_weight(q, w, b, y, x);
    });
}

}  // namespace
}  // namespace capstan::test
