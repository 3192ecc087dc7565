#include "comm/collective.h"

namespace capstan {

std::string_view name_of(Collective::Kind kind) {
  switch (kind) {
    case Collective::Kind::all_gather: return "all_gather";
    case Collective::Kind::reduce_scatter: return "reduce_scatter";
    case Collective::Kind::all_reduce: return "all_reduce";
    case Collective::Kind::all_to_all: return "all_to_all";
    case Collective::Kind::pass: return "pass";
  }
  return "?";
}

std::string Collective::describe() const {
  return fmt::format("{} of {} {} values{}", name_of(kind), whole.numel(), name_of(whole.dtype()),
                     unit < 0 ? "" : fmt::format(", unit {}", unit));
}

Tensor slice_of_rank(const Tensor& whole, int rank, int size) {
  const int64_t each = whole.numel() / size;
  return whole.reshape({whole.numel()}).rows(rank * each, each);
}

Tensor Collective::slice(int i) const {
  return slice_of_rank(whole, i, size());
}

Tensor Collective::given_to(int i) const {
  return kind == Kind::all_to_all ? slice_of_rank(mine, i, size()) : mine;
}

bool sums(const Collective& c) {
  return c.kind == Collective::Kind::reduce_scatter || c.kind == Collective::Kind::all_reduce;
}

uint64_t fingerprint(const Collective& c) {
  return static_cast<uint64_t>(c.size()) << 56 | static_cast<uint64_t>(c.whole.numel()) << 24 |
         static_cast<uint64_t>(c.unit + 1) << 12 | static_cast<uint64_t>(c.mode) << 8 |
         static_cast<uint64_t>(c.whole.dtype()) << 4 | static_cast<uint64_t>(c.kind);
}

}  // namespace capstan
