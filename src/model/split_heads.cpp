#include "model/split_heads.h"

#include <algorithm>

#include "ops/elementwise.h"

namespace capstan {

SplitHeads::SplitHeads(const Communicator& ranks, int64_t heads, int64_t kv_heads, int64_t head_dim)
    : ranks_(ranks), head_dim_(head_dim) {
  for (int rank = 0; rank < ranks.size(); ++rank) {
    shares_.push_back(share_heads(heads, kv_heads, {rank, ranks.size()}));
    most_heads_ = std::max(most_heads_, shares_.back().heads.count);
    most_kv_heads_ = std::max(most_kv_heads_, shares_.back().kv_heads.count);
  }
}

SplitHeads::Heads SplitHeads::views(const Tensor& buffer) const {
  const int64_t q = most_heads_ * head_dim_, kv = most_kv_heads_ * head_dim_;
  return {buffer.cols(0, heads() * head_dim_).heads(heads()),
          buffer.cols(q, kv_heads() * head_dim_).heads(kv_heads()),
          buffer.cols(q + kv, kv_heads() * head_dim_).heads(kv_heads())};
}

Tensor SplitHeads::out_view(const Tensor& buffer) const {
  return buffer.cols(0, heads() * head_dim_).heads(heads());
}

Buffer SplitHeads::make(Queue& q, int64_t tokens, int64_t width, DType type,
                        const char* name) const {
  return q.arena().make(Category::activations, type, {tokens, width}, name);
}

Buffer SplitHeads::exchanged(Queue& q, const Buffer& from, const char* name) const {
  Buffer to = make(q, from->dim(0), from->dim(1), from->dtype(), name);
  Work work = ranks_.all_to_all(q, to, from);
  work.join(q);
  return to;
}

Buffer SplitHeads::to_heads(Queue& q, const Tensor& q_tH, const Tensor& k_tK,
                            const Tensor& v_tK) const {
  const int64_t t = q_tH.dim(0), most_q = most_heads_ * head_dim_;
  const int64_t most_kv = most_kv_heads_ * head_dim_;
  const Buffer room = make(q, t * size(), width(), q_tH.dtype(), "heads for other ranks");
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const HeadShare& share = shares_[static_cast<size_t>(rank)];
    const Tensor to = room->rows(rank * t, t);
    const auto put = [&](int64_t first, const Tensor& from) {
      cast(q, to.cols(first, from.dim(1)), from);
    };
    put(0, columns(q_tH, share.heads));
    put(most_q, columns(k_tK, share.kv_heads));
    put(most_q + most_kv, columns(v_tK, share.kv_heads));
  }
  return exchanged(q, room, "heads of all tokens");
}

void SplitHeads::from_heads(Queue& q, const Tensor& buffer, const Tensor& q_tH, const Tensor& k_tK,
                            const Tensor& v_tK) const {
  const int64_t t = q_tH.dim(0), most_q = most_heads_ * head_dim_;
  const int64_t most_kv = most_kv_heads_ * head_dim_;
  const Buffer all = make(q, buffer.dim(0), buffer.dim(1), buffer.dtype(), "heads of own tokens");
  Work work = ranks_.all_to_all(q, all, buffer);
  work.join(q);
  const auto of_rank = [&](int rank, int64_t first, int64_t heads) {
    return all->rows(rank * t, t).cols(first, heads * head_dim_);
  };
  for (int rank = 0; rank < ranks_.size();) {
    const HeadShare& share = shares_[static_cast<size_t>(rank)];
    const auto copies = static_cast<int>(share.copies.count);
    std::vector<Tensor> k, v;
    for (int i = rank; i < rank + copies; ++i) {
      const Span& own = shares_[static_cast<size_t>(i)].heads;
      cast(q, columns(q_tH, own), of_rank(i, 0, own.count));
      k.push_back(of_rank(i, most_q, share.kv_heads.count));
      v.push_back(of_rank(i, most_q + most_kv, share.kv_heads.count));
    }
    add_copies(q, columns(k_tK, share.kv_heads), k);
    add_copies(q, columns(v_tK, share.kv_heads), v);
    rank += copies;
  }
}

void SplitHeads::add_copies(Queue& q, const Tensor& to, const std::vector<Tensor>& copies) const {
  if (copies.size() == 1) return cast(q, to, copies[0]);
  const Shape shape{to.dim(0), to.dim(1)};
  const Buffer sum = q.arena().make(Category::activations, DType::f32, shape, "sum of copies");
  const Buffer next = q.arena().make(Category::activations, DType::f32, shape, "a copy");
  cast(q, sum, copies[0]);
  for (size_t i = 1; i < copies.size(); ++i) {
    cast(q, next, copies[i]);
    add(q, sum, sum, next);
  }
  cast(q, to, sum);
}

Buffer SplitHeads::outputs_to_heads(Queue& q, const Tensor& x) const {
  const int64_t t = x.dim(0);
  const Buffer room = make(q, t * size(), out_width(), x.dtype(), "outputs for other ranks");
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const Span& own = shares_[static_cast<size_t>(rank)].heads;
    cast(q, room->rows(rank * t, t).cols(0, own.count * head_dim_), columns(x, own));
  }
  return exchanged(q, room, "outputs of all tokens");
}

void SplitHeads::outputs_from_heads(Queue& q, const Tensor& buffer, const Tensor& x) const {
  const int64_t t = x.dim(0);
  const Buffer all = make(q, buffer.dim(0), buffer.dim(1), buffer.dtype(), "outputs of own tokens");
  Work work = ranks_.all_to_all(q, all, buffer);
  work.join(q);
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const Span& own = shares_[static_cast<size_t>(rank)].heads;
    cast(q, columns(x, own), all->rows(rank * t, t).cols(0, own.count * head_dim_));
  }
}

}  // namespace capstan
