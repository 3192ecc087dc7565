#include "optim/stage_squares.h"

#include <algorithm>

#include "ops/elementwise.h"
#include "ops/optimizer.h"

namespace capstan {
namespace {

// The partial sums of one range of values, and where they are among those of its stage.
struct Partials {
  Range range;
  int stage;
  int64_t first, count;
};

}  // namespace

StageSquares::StageSquares(Queue& q, const Parameters& params)
    : stages_(params.mesh().pipe().all()) {
  const Mesh& mesh = params.mesh();
  std::vector<Partials> all;
  int64_t most = 0, total = 0;
  for (int stage = 0; stage < stages_.size(); ++stage) {
    int64_t count = 0;
    for (const Range& r : params.owned_by(mesh.rank_of(stage, mesh.data().rank()))) {
      const int64_t n = square_partials(q.target(), r.count);
      all.push_back({r, stage, count, n});
      count += n;
    }
    if (stage == stages_.rank()) own_ = count;
    most = std::max(most, count);
    total += count;
  }
  std::stable_sort(all.begin(), all.end(), [](const Partials& a, const Partials& b) {
    return a.range.param < b.range.param;
  });
  int64_t to = 0;
  for (const Partials& p : all) {
    const int64_t from = p.stage * most + p.first;
    if (!runs_.empty() && runs_.back().from + runs_.back().count == from)
      runs_.back().count += p.count;
    else
      runs_.push_back({from, to, p.count});
    to += p.count;
  }
  gathered_ = q.arena().make(Category::communication, DType::f64, {stages_.size() * most},
                             "squares of all stages");
  ordered_ = q.arena().make(Category::communication, DType::f64, {total}, "squares in order");
}

void StageSquares::add(Queue& q, Tensor sum, std::span<const Tensor> gradients) const {
  const Tensor mine = stages_.slice_of(gathered_);
  partial_squares(q, mine.rows(0, own_), gradients);
  Work work = stages_.all_gather(q, gathered_, mine);
  work.join(q);
  for (const Run& run : runs_)
    copy(q, ordered_->rows(run.to, run.count), gathered_->rows(run.from, run.count));
  add_partials(q, sum, ordered_);
}

}  // namespace capstan
