#pragma once

#include <array>
#include <functional>

#include "comm/communicator.h"
#include "tensor/arena.h"

namespace capstan {

// The tokens of a micro-batch among the ranks that share each layer (tensor parallelism). Between
// the linear maps each rank has an equal share of the tokens; within attention and feed-forward it
// has all of them, and its part of the channels. A product with rows of inputs spread over the
// ranks is a partial sum on each of them.
//
// The tokens are exchanged in parts: one, or, to overlap exchanges with products, two. Each part is
// consecutive tokens, of which each rank's share is consecutive again; what a rank has of the first
// part comes before what it has of the second.
//
// For one rank nothing is moved, and no memory is requested. The number of tokens is a multiple of
// the ranks (with two parts, of 16 tokens for each), except in decoding, where every rank has all
// tokens all the time (Form::whole). Collectives need room (Communicator::make_room) for all tokens
// of the largest micro-batch.
class SplitTokens {
 public:
  enum class Form : bool { shares, whole };

  SplitTokens() = default;  // one rank
  explicit SplitTokens(const Communicator& ranks, bool overlaps = false)
      : ranks_(ranks), overlaps_(overlaps && ranks.size() > 1) {}

  const Communicator& ranks() const { return ranks_; }
  int64_t share_of(int64_t tokens, Form form = Form::shares) const {
    return form == Form::whole ? tokens : tokens / ranks_.size();
  }
  bool splits() const { return ranks_.size() > 1; }
  // Whether exchanges are to run beside products.
  bool overlaps() const { return overlaps_; }

  // Tokens that are exchanged together: some rows of what a rank shares, and of what all have.
  struct Part {
    int64_t index = 0, of = 1;
    int64_t first_own = 0, own = 0, first = 0, count = 0;

    bool is_first() const { return index == 0; }
    bool is_last() const { return index + 1 == of; }
    Tensor of_share(const Tensor& x) const { return x.rows(first_own, own); }
    Tensor of_all(const Tensor& x) const { return x.rows(first, count); }
  };
  class Parts {
   public:
    const Part* begin() const { return parts_; }
    const Part* end() const { return parts_ + parts_[0].of; }

   private:
    friend class SplitTokens;
    Part parts_[2];
  };
  Parts parts(int64_t share, Form form = Form::shares) const;

  // Calls the segments of a schedule for each part: of two parts the first is a segment ahead, so
  // that one computes while the other's tokens are exchanged.
  template <class... Segments>
  static void in_turns(const Parts& parts, const Segments&... segments);

  // A gather that has begun, beside other work; of one rank there is nothing to gather.
  struct Gathering {
    Buffer all;
    Work work[2];  // by part
    // The part's tokens of all ranks, when they are there; those of x, the share, if nothing was
    // gathered.
    Tensor join(Queue& q, const Tensor& x, const Part& part) {
      work[part.index].join(q);
      return part.of_all(all ? *all : x);
    }
    // All tokens.
    Tensor join(Queue& q, const Tensor& x) {
      for (Work& each : work) each.join(q);
      return all ? *all : x;
    }
  };
  Gathering begin_gather(Queue& q, const Tensor& share, const char* name,
                         Form form = Form::shares) const;
  // The same, part by part: room for all, and the gather of a part.
  Gathering gathering(Queue& q, const Tensor& share, const char* name, Form form) const;
  void begin(Queue& q, Gathering& gathering, const Tensor& share, const Part& part) const;

  // All ranks' tokens, from this rank's share; x itself if that has all. `room` is their memory.
  Tensor gather(Queue& q, Buffer& room, const Tensor& x, const char* name,
                Form form = Form::shares) const;

  // Where to write a partial sum for so many tokens, whose sum add() writes to y: y itself for one
  // rank, else `room`.
  Tensor partial(Queue& q, Buffer& room, int64_t tokens, const Tensor& y, const char* name) const;
  // y = this rank's share of the sum of all ranks' partial sums, or all of it.
  void add(Queue& q, const Tensor& y, const Tensor& partial, Form form = Form::shares) const;
  // A sum that has begun, beside other work, all of it or part by part.
  struct Sum {
    Work work[2];  // by part
    void join(Queue& q, const Part& part) { work[part.index].join(q); }
    void join(Queue& q) {
      for (Work& each : work) each.join(q);
    }
  };
  [[nodiscard]] Sum begin_add(Queue& q, const Tensor& y, const Tensor& partial,
                              Form form = Form::shares) const;
  void begin(Queue& q, Sum& sum, const Tensor& y, const Tensor& partial, const Part& part,
             Form form = Form::shares) const;

 private:
  Communicator ranks_;
  bool overlaps_ = false;
};

template <class... Segments>
void SplitTokens::in_turns(const Parts& parts, const Segments&... segments) {
  const std::array<std::function<void(const Part&)>, sizeof...(Segments)> all{
      std::cref(segments)...};
  const Part* part = parts.begin();
  for (size_t i = 0; i <= all.size(); ++i) {
    if (i < all.size()) all[i](part[0]);
    if (i > 0 && part->of == 2) all[i - 1](part[1]);
  }
}

}  // namespace capstan
