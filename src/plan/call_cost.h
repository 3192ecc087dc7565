#pragma once

#include <span>

namespace capstan {

// What the calls of one kind of op did in a training step, and how long they took.
struct CallTotal {
  double calls = 0, flops = 0, bytes = 0, seconds = 0;
};

// What a call costs:  per_call + flops * per_flop + bytes * per_byte  seconds.
struct CallCost {
  double per_call = 0, per_flop = 0, per_byte = 0;

  double of(const CallTotal& t) const {
    return t.calls * per_call + t.flops * per_flop + t.bytes * per_byte;
  }
  bool operator==(const CallCost&) const = default;
};

// The costs, none of them negative, that come nearest to what was measured: least squares of the
// relative errors. Totals without time are passed over; without any, all costs are 0.
CallCost fit_call_cost(std::span<const CallTotal> measured);

}  // namespace capstan
