// A head whose rows are spread over several ranks.
#include <barrier>
#include <thread>

#include "ops/head_loss_reference.h"

namespace capstan::test {
namespace {

struct Sizes {
  int64_t T, D, R = 0;             // R: the rank of the term
  std::vector<int64_t> rows = {};  // of each rank
  int64_t largest = 0;             // 0: the most of them

  int64_t V() const { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); }
  int64_t chunk_vocabulary() const {
    return largest > 0 ? largest : *std::max_element(rows.begin(), rows.end());
  }
};

struct Types {
  DType x, w, dx, dw;
};

struct Operands {
  Values x, w, labels, term_x, term_w;
};

// What ranks got: sums of dx over them, and all their rows of dw.
struct Outcome {
  Values losses, dx, dw, term_dx, term_dw;
  std::vector<Values> shares;  // of dx
  std::vector<int> gathers;    // of each rank
};

// The ranks' exchange through host memory.
class Exchange {
 public:
  explicit Exchange(int ranks) : parts_(idx(ranks)), all_here_(ranks) {}

  void gather(Queue& q, int rank, const Tensor& all, const Tensor& mine) {
    EXPECT_EQ(all.shape(), (Shape{int64_t(parts_.size()), mine.dim(0), 3}));
    EXPECT_EQ(mine.raw(), all.rows(rank, 1).raw());
    std::vector<double>& part = parts_[idx(rank)];
    part.resize(idx(mine.numel()));
    q.download(part.data(), mine);
    all_here_.arrive_and_wait();
    std::vector<double> joined;
    for (const auto& p : parts_) joined.insert(joined.end(), p.begin(), p.end());
    ASSERT_EQ(int64_t(joined.size()), all.numel()) << "ranks differ in their chunks";
    q.upload(all, joined.data());
    all_here_.arrive_and_wait();
  }

 private:
  std::vector<std::vector<double>> parts_;
  std::barrier<> all_here_;
};

class HeadRowsTest : public HeadLossTest {
 protected:
  Operands operands(const Sizes& s, const Types& types) {
    Operands o{values(random(types.x, {s.T, s.D})),
               values(head(types.w, s.V(), s.D)),
               values(some_labels(s.T, s.V())),
               {},
               {}};
    // The first and last rows of each rank.
    int64_t first = 0;
    size_t t = 0;
    for (const int64_t count : s.rows) {
      for (const int64_t row : {first, first + count - 1})
        if (t < o.labels.size()) o.labels[t++] = double(row);
      first += count;
    }
    if (s.R > 0) o.term_x = values(random(types.x, {s.T, s.R}));
    if (s.R > 0) o.term_w = values(head(types.w, s.V(), s.R));
    return o;
  }

  // One thread and queue for each rank. `scale` 0: only the loss.
  Outcome run(const Sizes& s, const Types& types, const Operands& o, float scale,
              int64_t targets = -1, double loss_before = 0) {
    const int ranks = int(s.rows.size());
    Outcome all;
    all.losses.resize(idx(ranks)), all.gathers.resize(idx(ranks));
    std::vector<Values> dx(idx(ranks)), dw(dx), term_dx(dx), term_dw(dx);
    Exchange exchange(ranks);
    std::vector<std::thread> threads;
    int64_t first = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank, first] {
        Arena arena(Arena::Heap{}, GetParam());
        Queue q(GetParam(), arena);
        const auto part = [&](const Values& whole, int64_t columns) {
          return Values(whole.begin() + first * columns,
                        whole.begin() + (first + s.rows[idx(rank)]) * columns);
        };
        const int64_t V = s.rows[idx(rank)];
        const Buffer x = buffer_of(q, types.x, {s.T, s.D}, o.x);
        const Buffer w = buffer_of(q, types.w, {V, s.D}, part(o.w, s.D));
        const Buffer labels = buffer_of(q, DType::i32, {s.T}, o.labels);
        const Buffer loss = buffer_of(q, DType::f64, {1}, {loss_before});
        const Buffer d_x = buffer_of(q, types.dx, {s.T, s.D}, Values(idx(s.T * s.D), NAN));
        const Buffer d_w = buffer_of(q, types.dw, {V, s.D}, Values(idx(V * s.D)));
        Buffer term_x, term_w, d_term_x, d_term_w;
        if (s.R > 0) {
          term_x = buffer_of(q, types.x, {s.T, s.R}, o.term_x);
          term_w = buffer_of(q, types.w, {V, s.R}, part(o.term_w, s.R));
          d_term_x = buffer_of(q, types.dx, {s.T, s.R}, Values(idx(s.T * s.R), NAN));
          d_term_w = buffer_of(q, types.dw, {V, s.R}, Values(idx(V * s.R)));
        }
        HeadRows rows{
            .first = first, .largest = s.chunk_vocabulary(), .rank = rank, .ranks = ranks};
        rows.gather = [&](const Tensor& of_all, const Tensor& mine) {
          ++all.gathers[idx(rank)];
          exchange.gather(q, rank, of_all, mine);
        };
        if (scale == 0)
          head_loss(q, loss, x, w, labels, targets, {term_x, term_w}, rows);
        else
          head_loss_backward(q, loss, d_x, d_w, x, w, labels, scale, targets, {term_x, term_w},
                             {d_term_x, d_term_w}, rows);
        all.losses[idx(rank)] = values_of(q, loss)[0];
        dx[idx(rank)] = values_of(q, d_x), dw[idx(rank)] = values_of(q, d_w);
        if (s.R > 0)
          term_dx[idx(rank)] = values_of(q, d_term_x), term_dw[idx(rank)] = values_of(q, d_term_w);
      });
      first += s.rows[idx(rank)];
    }
    for (std::thread& thread : threads) thread.join();
    const auto sum = [](const std::vector<Values>& shares) {
      Values total(shares[0]);
      for (size_t r = 1; r < shares.size(); ++r)
        std::transform(total.begin(), total.end(), shares[r].begin(), total.begin(), std::plus());
      return total;
    };
    const auto joined = [](const std::vector<Values>& parts) {
      Values whole;
      for (const Values& part : parts) whole.insert(whole.end(), part.begin(), part.end());
      return whole;
    };
    all.dx = sum(dx), all.dw = joined(dw);
    all.term_dx = sum(term_dx), all.term_dw = joined(term_dw);
    all.shares = std::move(dx);
    return all;
  }
};

class HeadRowsOnRanks : public HeadRowsTest {};
INSTANTIATE_TEST_SUITE_P(Ops, HeadRowsOnRanks, testing::ValuesIn(devices_present()), device_name);

const std::vector<int64_t> kUneven = {341, 340, 340};

int64_t targets_of(const Values& labels) {
  return std::count_if(labels.begin(), labels.end(), [](double l) { return l != kIgnore; });
}

// Rows beside each other: [rows, a] and [rows, b] as [rows, a + b].
Values beside(const Values& a, const Values& b, int64_t rows) {
  Values both;
  const size_t wide = a.size() / idx(rows), thin = b.size() / idx(rows);
  for (size_t r = 0; r < idx(rows); ++r) {
    both.insert(both.end(), &a[r * wide], &a[r * wide] + wide);
    both.insert(both.end(), &b[r * thin], &b[r * thin] + thin);
  }
  return both;
}

// Each rank's share of dx is rounded, and no share is larger than the sum: each is of the size of a
// row of w for the tokens whose label the rank has, and small for the others.
double tolerance_of_sum(DType dx, int64_t terms, size_t ranks) {
  return double(ranks) * tolerance(dx, terms);
}

TEST_P(HeadRowsOnRanks, MatchF64AndOneRank) {
  const float scale = 0.37f;
  for (const DType x : kComputeTypes)
    for (const DType w : types_beside({x}))
      for (const auto& rows : {kUneven, {1, 1}, {8, 248}, {64, 64, 64, 32}})
        for (const int64_t T : {1, 33}) {
          const Sizes s{.T = T, .D = 33, .rows = rows};
          const Types types{x, w, x, DType::f32};
          const Operands o = operands(s, types);
          const Outcome found = run(s, types, o, scale), alone = run(s, types, o, 0);
          const HeadReference r = head_loss_f64(o.x, o.w, o.labels, s.D, true);
          const double logits = logit_error(GetParam(), x, w);
          const double near = (tolerance(DType::f32, s.D + s.V()) + logits) * double(T) *
                              (std::log(double(s.V())) + 1);
          EXPECT_NEAR(found.losses[0], r.loss, near);
          EXPECT_EQ(alone.losses, found.losses);
          Values dx(r.dx), dw(r.dw);
          for (Values* each : {&dx, &dw})
            for (double& g : *each) g *= double{scale};
          const double dx_tol = tolerance_of_sum(x, s.D + s.V(), rows.size()) + logits;
          const double dw_tol = tolerance(DType::f32, T + s.D + s.V()) + logits;
          EXPECT_LT(error(found.dx, dx), dx_tol) << name_of(x) << " V=" << s.V() << " T=" << T;
          EXPECT_LT(error(found.dw, dw), dw_tol) << name_of(x) << " V=" << s.V() << " T=" << T;

          Sizes whole = s;
          whole.rows = {s.V()};
          const Outcome one = run(whole, types, o, scale);
          EXPECT_EQ(one.gathers[0], 0);
          EXPECT_NEAR(found.losses[0], one.losses[0], 2 * near);
          EXPECT_LT(error(found.dx, one.dx), 2 * dx_tol);
          EXPECT_LT(error(found.dw, one.dw), 2 * dw_tol);
        }
}

// Also with the number of targets known, and without labels that are ignored.
TEST_P(HeadRowsOnRanks, ChunksAreTheSameOnAllRanks) {
  const bool on_cpu = GetParam() == Device::cpu;
  for (const bool ignored : {true, false}) {
    // So many rows that chunks have 16 tokens, and 128 on cuda.
    Sizes s{.T = on_cpu ? 75 : 300, .D = 5, .rows = kUneven, .largest = 400'000};
    const Types types{DType::f32, DType::bf16, DType::f32, DType::f32};
    Operands o = operands(s, types);
    for (size_t t = 0; t < o.labels.size(); ++t)
      if (ignored && t > o.labels.size() - 9)
        o.labels[t] = kIgnore;
      else if (!ignored && o.labels[t] == kIgnore)
        o.labels[t] = double(t);
    const int64_t targets = targets_of(o.labels);
    const Outcome found = run(s, types, o, 1), known = run(s, types, o, 1, targets);
    const HeadReference r = head_loss_f64(o.x, o.w, o.labels, s.D, true);
    for (const Outcome* each : {&found, &known}) {
      const double tol = tolerance(DType::f32, s.V());
      EXPECT_NEAR(each->losses[0], r.loss, tol * r.loss);
      EXPECT_LT(error(each->dx, r.dx), tolerance_of_sum(DType::f32, s.V(), 3));
      EXPECT_LT(error(each->dw, r.dw), tol);
      EXPECT_GE(each->gathers[0], on_cpu ? 4 : 2);
      EXPECT_EQ(each->gathers, std::vector<int>(3, each->gathers[0]));
    }
  }
}

TEST_P(HeadRowsOnRanks, AddATermToTheLogits) {
  for (const DType dtype : kComputeTypes) {
    const Sizes s{.T = 33, .D = 31, .R = 5, .rows = {40, 33, 27}};
    const Types types{dtype, dtype, dtype, DType::f32};
    const Operands o = operands(s, types);
    const Outcome found = run(s, types, o, 1);
    const HeadReference r = head_loss_f64(beside(o.x, o.term_x, s.T), beside(o.w, o.term_w, s.V()),
                                          o.labels, s.D + s.R, true);
    const double logits = logit_error(GetParam(), dtype, dtype);
    EXPECT_NEAR(found.losses[0], r.loss, (1e-5 + logits) * r.loss);
    EXPECT_LT(error(beside(found.dx, found.term_dx, s.T), r.dx),
              tolerance_of_sum(dtype, s.V() + s.D, 3) + logits);
    EXPECT_LT(error(beside(found.dw, found.term_dw, s.V()), r.dw),
              tolerance(DType::f32, s.T + s.V() + s.D) + logits);
  }
}

TEST_P(HeadRowsOnRanks, OnlyRankZeroAddsTheLoss) {
  const Sizes s{.T = 33, .D = 8, .rows = kUneven};
  const Types types{DType::f32, DType::f32, DType::f32, DType::f32};
  const Operands o = operands(s, types);
  const double loss = run(s, types, o, 0).losses[0];
  for (const float scale : {0.0f, 1.0f}) {
    const Outcome found = run(s, types, o, scale, -1, 1000);
    EXPECT_NEAR(found.losses[0], 1000 + loss, 1e-9);
    EXPECT_EQ(found.losses[1], 1000);
    EXPECT_EQ(found.losses[2], 1000);
  }
}

TEST_P(HeadRowsOnRanks, AllIgnored) {
  const Sizes s{.T = 9, .D = 8, .rows = {3, 4}};
  for (const DType dtype : kComputeTypes)
    for (const int64_t targets : {-1, 0}) {
      const Types types{dtype, dtype, dtype, DType::f32};
      Operands o = operands(s, types);
      o.labels.assign(idx(s.T), kIgnore);
      const Outcome found = run(s, types, o, 1, targets, 2.5);
      EXPECT_EQ(found.losses, (Values{2.5, 2.5}));
      EXPECT_EQ(found.dx, Values(idx(s.T * s.D), 0.0));
      EXPECT_EQ(found.dw, Values(idx(s.V() * s.D), 0.0));
    }
}

// The exponentials of a rank whose logits are far below the others' are of another size.
TEST_P(HeadRowsOnRanks, LargeLogitsDoNotOverflow) {
  const Sizes s{.T = 3, .D = 1, .rows = {2, 2}};
  const Types types{DType::f32, DType::f32, DType::f32, DType::f32};
  const Operands o{{100, 100, 100}, {100, -100, 99, 0}, {0, 1, 2}, {}, {}};
  const Outcome found = run(s, types, o, 1);
  EXPECT_EQ(found.losses[0], 0 + 2e4 + 100);
  EXPECT_LT(error(found.dx, {0, 200, 1}), 1e-30);
  EXPECT_EQ(found.dw, (Values{200, -100, -100, 0}));
}

// One row of one rank is damaged. Every rank must know: all add to the same gradients of x.
TEST_P(HeadRowsOnRanks, NanOfOneRankIsNotHidden) {
  for (const DType dtype : kComputeTypes)
    for (const auto& rows : {kUneven, {344, 344, 336}})
      for (const double bad : {double{NAN}, double{INFINITY}})
        for (const int64_t at : {0, 300, 343, 700, 1020}) {
          const Sizes s{.T = 4, .D = 16, .rows = rows};
          const Types types{dtype, dtype, dtype, DType::f32};
          Operands o = operands(s, types);
          o.labels = {1, 2, 3, 500};
          o.w[idx(at) * 16 + 5] = bad;
          for (size_t t = 0; t < idx(s.T); ++t) o.x[t * 16 + 5] = std::abs(o.x[t * 16 + 5]) + 1;
          EXPECT_FALSE(std::isfinite(run(s, types, o, 0).losses[0])) << bad << " at " << at;
          const Outcome found = run(s, types, o, 1);
          EXPECT_FALSE(std::isfinite(found.losses[0])) << bad << " at " << at;
          EXPECT_EQ(found.losses[1], 0);
          for (const Values& share : found.shares)
            for (size_t t = 0; t < idx(s.T); ++t)
              EXPECT_FALSE(std::isfinite(share[t * 16])) << bad << " at " << at;
          EXPECT_FALSE(std::isfinite(found.dw[0])) << bad << " at " << at;
          EXPECT_FALSE(std::isfinite(found.dw.back())) << bad << " at " << at;
        }
}

// Logits of -inf, all that a rank has: it has no largest one to subtract.
TEST_P(HeadRowsOnRanks, InfiniteLogitsOfOneRankAreNotHidden) {
  for (const double all : {-INFINITY, INFINITY, NAN})
    for (const auto& rows : {std::vector<int64_t>{8, 8}, {3, 5}})
      for (const int64_t label : {0, 15}) {
        const Sizes s{.T = 2, .D = 1, .rows = rows};
        const Types types{DType::f32, DType::f32, DType::f32, DType::f32};
        Operands o{{1, 1}, Values(idx(s.V()), 0.5), Values(2, double(label % s.V())), {}, {}};
        for (int64_t v = rows[0]; v < s.V(); ++v) o.w[idx(v)] = all;
        const Outcome found = run(s, types, o, 1);
        EXPECT_FALSE(std::isfinite(found.losses[0])) << all;
        for (const Values& share : found.shares) EXPECT_FALSE(std::isfinite(share[0])) << all;
      }
}

TEST_P(HeadRowsOnRanks, RefuseWhatDoesNotFit) {
  const Buffer x = random(DType::f32, {3, 8}), w = random(DType::f32, {6, 8}), loss = loss_of(0);
  const Buffer labels = of(DType::i32, {3}, {0, 1, 2});
  const auto gather = [](const Tensor&, const Tensor&) {};
  for (const HeadRows& rows : {HeadRows{.first = 1}, HeadRows{.largest = 6, .ranks = 2},
                               HeadRows{.largest = 5, .ranks = 2, .gather = gather},
                               HeadRows{.first = -1, .largest = 6, .ranks = 2, .gather = gather},
                               HeadRows{.largest = 6, .rank = 2, .ranks = 2, .gather = gather}}) {
    expect_bug("head_loss", [&] { head_loss(q_, loss, x, w, labels, -1, {}, rows); });
    expect_bug("head_loss_backward",
               [&] { head_loss_backward(q_, loss, {}, {}, x, w, labels, 1, -1, {}, {}, rows); });
  }
}

// A sim asks for the same memory, and exchanges as often, with as many tokens.
TEST(HeadRowsOnSim, CostsScratchAndExchangesAgree) {
  for (const int64_t ignored : {0, 20, 300})
    for (const bool known : {true, false}) {
      const int64_t T = 300, V = 7;
      if (!known && ignored > 0) continue;  // a sim takes all tokens for targets
      std::vector<Values> tokens;           // of each exchange, on each queue
      expect_same_on_sim([&](Queue& q) {
        const auto phase = q.arena().phase("ops");
        const auto make = [&](const Shape& s) {
          return buffer_of(q, DType::f32, s, Values(idx(s.numel())));
        };
        Values some(idx(T), 3.0);
        for (int64_t t = 0; t < ignored; ++t) some[idx(t)] = kIgnore;
        const Buffer x = make({T, 3}), w = make({V, 3}), dx = make({T, 3}), dw = make({V, 3});
        const Buffer loss = buffer_of(q, DType::f64, {1}, {0});
        const Buffer labels = buffer_of(q, DType::i32, {T}, some);
        HeadRows rows{.first = 3, .largest = 400'000, .rank = 1, .ranks = 3};
        Values& found = tokens.emplace_back();
        rows.gather = [&](const Tensor& all, const Tensor& mine) {
          EXPECT_EQ(all.shape(), (Shape{3, mine.dim(0), 3}));
          found.push_back(double(mine.dim(0)));
          const std::vector<double> ones(idx(all.numel()), 1.0);
          q.upload(all, ones.data());
        };
        const int64_t targets = known ? T - ignored : -1;
        head_loss(q, loss, x, w, labels, targets, {}, rows);
        head_loss_backward(q, loss, dx, dw, x, w, labels, 1, targets, {}, {}, rows);
      });
      for (size_t i = 0; i < tokens.size(); i += 2) {
        EXPECT_EQ(tokens[i], tokens[i + 1]);
        EXPECT_EQ(tokens[i].empty(), ignored == T);
      }
    }
}

}  // namespace
}  // namespace capstan::test
