#include "model/split_tokens.h"

#include <utility>

#include "ops/elementwise.h"

namespace capstan {
namespace {

// As many values as the ranks can share equally.
int64_t rounded_values(const Tensor& x, const Communicator& ranks) {
  return (x.numel() + ranks.size() - 1) / ranks.size() * ranks.size();
}

}  // namespace

SplitTokens::Gathering SplitTokens::begin_gather(Queue& q, const Tensor& share,
                                                 const char* name) const {
  if (!splits()) return {};
  Buffer all = q.arena().make(Category::activations, share.dtype(),
                              {share.dim(0) * ranks_.size(), share.dim(1)}, name);
  Work work = ranks_.all_gather(q, all, share);
  return {std::move(all), std::move(work)};
}

Tensor SplitTokens::gather(Queue& q, Buffer& room, const Tensor& x, const char* name,
                           Form form) const {
  if (form == Form::whole) return x;
  Gathering gathering = begin_gather(q, x, name);
  const Tensor all = gathering.join(q, x);
  room = std::move(gathering.all);
  return all;
}

Tensor SplitTokens::partial(Queue& q, Buffer& room, int64_t tokens, const Tensor& y,
                            const char* name) const {
  if (!splits()) return y;
  const Tensor whole(nullptr, y.dtype(), {tokens, y.dim(1)});
  room = q.arena().make(Category::activations, y.dtype(), {rounded_values(whole, ranks_)}, name);
  return room->rows(0, whole.numel()).reshape(whole.shape());
}

void SplitTokens::add(Queue& q, const Tensor& y, const Tensor& partial, Form form) const {
  if (!splits()) return;
  if (form == Form::shares) {
    Work work = ranks_.reduce_scatter(q, y, partial);
    return work.join(q);
  }
  // partial() has made room for a few values more.
  const Tensor all(partial.raw(), partial.dtype(), {rounded_values(partial, ranks_)});
  Work work = ranks_.all_reduce(q, all);
  work.join(q);
  copy(q, y, partial);
}

}  // namespace capstan
