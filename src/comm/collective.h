#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "comm/ranks.h"
#include "ops/linear.h"
#include "tensor/queue.h"

namespace capstan {

// One collective operation, as one rank of a group calls it. `whole` has the slices of all its
// members one after the other, all of the same length.
struct Collective {
  enum class Kind : uint8_t {
    all_gather,      // whole = every rank's `mine`, in rank order
    reduce_scatter,  // mine = Σ over ranks of this rank's slice of their `whole`
    all_reduce,      // whole = Σ over ranks of their `whole`
    all_to_all,      // slice r of whole = this rank's slice of rank r's `mine`
    pass,            // of two ranks: the second one's whole = the first one's
  };
  Kind kind{};
  // Contiguous. all_to_all's `mine` is of the size of `whole`; all_reduce and pass have none.
  Tensor whole, mine;
  Write mode = Write::replace;
  int unit = -1;         // of the model that the values belong to; -1: none
  Members members = {};  // the ranks that take part, and…
  int index = 0;         // …which of them this one is
  int machines = 1;      // among which the members are divided: each one's are added first
  int size() const { return members.count; }
  // The slice of one of the members.
  Tensor slice(int i) const;
  // What this rank gives one of them for its `whole`, where nothing is summed.
  Tensor given_to(int i) const;

  // "all_gather of 512 bf16 values, unit 3"
  std::string describe() const;
};

std::string_view name_of(Collective::Kind kind);  // "all_gather"

// The slice of one rank among `size`, as one row.
Tensor slice_of_rank(const Tensor& whole, int rank, int size);

// Whether it adds the values of its ranks.
bool sums(const Collective& c);

// What all ranks must agree on: kind, type, size, mode and unit, but not addresses.
uint64_t fingerprint(const Collective& c);

}  // namespace capstan
