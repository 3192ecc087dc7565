#pragma once

#include <span>

namespace capstan {

// Totals over the calls of one kind of op in a training step, with their time.
struct CallTotal {
  double calls = 0, flops = 0, bytes = 0, seconds = 0;
};

// Cost of a call:  per_call + flops * per_flop + bytes * per_byte  seconds.
struct CallCost {
  double per_call = 0, per_flop = 0, per_byte = 0;

  double of(const CallTotal& t) const {
    return t.calls * per_call + t.flops * per_flop + t.bytes * per_byte;
  }
  bool operator==(const CallCost&) const = default;
};

// Non-negative costs that fit the measurements best: least squares of the relative errors. Ignores
// totals without time; without any, all costs are 0.
CallCost fit_call_cost(std::span<const CallTotal> measured);

}  // namespace capstan
