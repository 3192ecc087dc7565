#pragma once

#include "comm/communicator.h"
#include "tensor/arena.h"

namespace capstan {

// The tokens of a micro-batch among the ranks that share each layer (tensor parallelism). Between
// the linear maps each rank has an equal share of the tokens, one after the other; within attention
// and feed-forward it has all of them, and its part of the channels. A product with rows of inputs
// spread over the ranks is a partial sum on each of them.
//
// For one rank nothing is moved, and no memory is requested. The number of tokens is a multiple of
// the ranks, except in decoding, where every rank has all tokens all the time (Form::whole).
// Collectives need room (Communicator::make_room) for all tokens of the largest micro-batch.
class SplitTokens {
 public:
  enum class Form : bool { shares, whole };

  SplitTokens() = default;  // one rank
  explicit SplitTokens(const Communicator& ranks) : ranks_(ranks) {}

  const Communicator& ranks() const { return ranks_; }
  int64_t share_of(int64_t tokens, Form form = Form::shares) const {
    return form == Form::whole ? tokens : tokens / ranks_.size();
  }

  bool splits() const { return ranks_.size() > 1; }
  // A gather that has begun, beside other work; of one rank there is nothing to gather.
  struct Gathering {
    Buffer all;
    Work work;
    // All tokens, when they are there: x itself, the share, if nothing was gathered.
    Tensor join(Queue& q, const Tensor& x) {
      work.join(q);
      return all ? *all : x;
    }
  };
  Gathering begin_gather(Queue& q, const Tensor& share, const char* name) const;

  // All ranks' tokens, from this rank's share; x itself if that has all. `room` is their memory.
  Tensor gather(Queue& q, Buffer& room, const Tensor& x, const char* name,
                Form form = Form::shares) const;
  // Where to write a partial sum for so many tokens, whose sum add() writes to y: y itself for one
  // rank, else `room`.
  Tensor partial(Queue& q, Buffer& room, int64_t tokens, const Tensor& y, const char* name) const;
  // y = this rank's share of the sum of all ranks' partial sums, or all of it.
  void add(Queue& q, const Tensor& y, const Tensor& partial, Form form = Form::shares) const;

 private:
  Communicator ranks_;
};

}  // namespace capstan
