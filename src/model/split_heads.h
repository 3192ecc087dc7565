#pragma once

#include <vector>

#include "comm/communicator.h"
#include "model/layer_share.h"
#include "tensor/arena.h"

namespace capstan {

// The heads of attention among the ranks that share each sequence (context parallelism). Elsewhere
// each rank has consecutive tokens of the sequence, an equal number on each, with all their
// channels; in attention it has all tokens, for some of the heads. So masks of documents are as on
// one rank, and the work is balanced, whatever the mask. With more ranks than key heads, several
// ranks attend to the same key head.
class SplitHeads {
 public:
  SplitHeads() = default;  // one rank
  // As many as require_shares allows: `heads` query heads for `kv_heads` key heads of `head_dim`
  // channels.
  SplitHeads(const Communicator& ranks, int64_t heads, int64_t kv_heads, int64_t head_dim);

  bool splits() const { return ranks_.size() > 1; }
  int64_t size() const { return ranks_.size(); }
  // Of this rank.
  int64_t heads() const { return own().heads.count; }
  int64_t kv_heads() const { return own().kv_heads.count; }

  // This rank's queries, keys and values of all tokens, as views of a buffer of one row for each.
  struct Heads {
    Tensor q_THD, k_TKD, v_TKD;
  };
  int64_t width() const { return (most_heads_ + 2 * most_kv_heads_) * head_dim_; }
  Heads views(const Tensor& buffer_TW) const;
  // The same of the heads' outputs.
  int64_t out_width() const { return most_heads_ * head_dim_; }
  Tensor out_view(const Tensor& buffer_TW) const;

  // From this rank's tokens to its heads: q [t, H d] and so on to a buffer [T, width()].
  Buffer to_heads(Queue& q, const Tensor& q_tH, const Tensor& k_tK, const Tensor& v_tK) const;
  // … and back. The gradients of a key head that several ranks have are added.
  void from_heads(Queue& q, const Tensor& buffer_TW, const Tensor& q_tH, const Tensor& k_tK,
                  const Tensor& v_tK) const;
  // The same for outputs, [t, H d] and [T, out_width()].
  Buffer outputs_to_heads(Queue& q, const Tensor& x_tH) const;
  void outputs_from_heads(Queue& q, const Tensor& buffer_TW, const Tensor& x_tH) const;

 private:
  const HeadShare& own() const { return shares_[static_cast<size_t>(ranks_.rank())]; }
  // The columns of some heads.
  Tensor columns(const Tensor& x, const Span& heads) const {
    return x.cols(heads.first * head_dim_, heads.count * head_dim_);
  }
  // [ranks, t, width]: the slice of each rank. And what is exchanged with them.
  Buffer make(Queue& q, int64_t tokens, int64_t width, DType type, const char* name) const;
  Buffer exchanged(Queue& q, const Buffer& from, const char* name) const;
  void add_copies(Queue& q, const Tensor& to, const std::vector<Tensor>& copies) const;

  Communicator ranks_;
  std::vector<HeadShare> shares_;  // by rank
  int64_t head_dim_ = 0, most_heads_ = 0, most_kv_heads_ = 0;
};

}  // namespace capstan
