#include "model/split_tokens.h"

#include <utility>

#include "base/error.h"
#include "ops/elementwise.h"

namespace capstan {
namespace {

// A part begins at a multiple of so many tokens on each rank: products want their operands aligned.
constexpr int64_t kGrain = 8;

// As many values as the ranks can share equally.
int64_t rounded_values(const Tensor& x, const Communicator& ranks) {
  return (x.numel() + ranks.size() - 1) / ranks.size() * ranks.size();
}

}  // namespace

SplitTokens::Parts SplitTokens::parts(int64_t share, Form form) const {
  const bool halves = overlaps_ && form == Form::shares;
  const int64_t half = halves ? share / 2 / kGrain * kGrain : 0;
  require(!halves || half > 0, Fault::bug, "a share of {} tokens cannot be halved", share);
  const int64_t ranks = form == Form::shares ? ranks_.size() : 1;
  Parts parts;
  if (half == 0) {
    parts.parts_[0] = {.own = share, .count = share * ranks};
    return parts;
  }
  parts.parts_[0] = {.of = 2, .own = half, .count = half * ranks};
  parts.parts_[1] = {.index = 1,
                     .of = 2,
                     .first_own = half,
                     .own = share - half,
                     .first = half * ranks,
                     .count = (share - half) * ranks};
  return parts;
}

SplitTokens::Gathering SplitTokens::gathering(Queue& q, const Tensor& share, const char* name,
                                              Form form) const {
  if (!splits() || form == Form::whole) return {};
  return {q.arena().make(Category::activations, share.dtype(),
                         {share.dim(0) * ranks_.size(), share.dim(1)}, name),
          {}};
}

void SplitTokens::begin(Queue& q, Gathering& g, const Tensor& share, const Part& part) const {
  if (g.all) g.work[part.index] = ranks_.all_gather(q, part.of_all(g.all), part.of_share(share));
}

SplitTokens::Gathering SplitTokens::begin_gather(Queue& q, const Tensor& share, const char* name,
                                                 Form form) const {
  Gathering g = gathering(q, share, name, form);
  for (const Part& part : parts(share.dim(0), form)) begin(q, g, share, part);
  return g;
}

Tensor SplitTokens::gather(Queue& q, Buffer& room, const Tensor& x, const char* name,
                           Form form) const {
  Gathering g = begin_gather(q, x, name, form);
  const Tensor all = g.join(q, x);
  room = std::move(g.all);
  return all;
}

Tensor SplitTokens::partial(Queue& q, Buffer& room, int64_t tokens, const Tensor& y,
                            const char* name) const {
  if (!splits()) return y;
  const Tensor whole(nullptr, y.dtype(), {tokens, y.dim(1)});
  room = q.arena().make(Category::activations, y.dtype(), {rounded_values(whole, ranks_)}, name);
  return room->rows(0, whole.numel()).reshape(whole.shape());
}

void SplitTokens::begin(Queue& q, Sum& sum, const Tensor& y, const Tensor& partial,
                        const Part& part, Form form) const {
  if (!splits()) return;
  if (form == Form::shares) {
    sum.work[part.index] = ranks_.reduce_scatter(q, part.of_share(y), part.of_all(partial));
    return;
  }
  // partial() has made room for a few values more.
  const Tensor all(partial.raw(), partial.dtype(), {rounded_values(partial, ranks_)});
  Work work = ranks_.all_reduce(q, all);
  work.join(q);
  copy(q, y, partial);
}

SplitTokens::Sum SplitTokens::begin_add(Queue& q, const Tensor& y, const Tensor& partial,
                                        Form form) const {
  Sum sum;
  for (const Part& part : parts(y.dim(0), form)) begin(q, sum, y, partial, part, form);
  return sum;
}

void SplitTokens::add(Queue& q, const Tensor& y, const Tensor& partial, Form form) const {
  Sum sum = begin_add(q, y, partial, form);
  sum.join(q);
}

}  // namespace capstan
