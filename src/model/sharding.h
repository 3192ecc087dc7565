#pragma once

#include <cstdint>

namespace capstan {

// What each rank of a data-parallel group keeps of the model.
enum class Hold : uint8_t {
  whole,  // all of it
  shard,  // its slice of every unit
};

// Data parallelism with less and less redundancy. Whole gradients are summed once per step, sharded
// ones after every micro-batch. Sharded weights are gathered unit by unit, in both passes.
//
//             weights   gradients   state
//   ddp       whole     whole       whole
//   zero1     whole     whole       shard
//   zero2     whole     shard       shard
//   zero3     shard     shard       shard      (FSDP: full shard)
//   hybrid    as zero3 within each of `replicas` groups of neighbouring ranks, which all keep the
//             same: the sums of gradients go from group to group once per step. Each group is
//             the ranks of one machine
//
// Masters belong to the state. Sharded weights or gradients need a sharded state. On one rank a
// slice is the whole, and all of these are ddp.
struct Sharding {
  Hold weights = Hold::whole, gradients = Hold::whole, state = Hold::whole;
  int ahead = 1;  // units whose weights are gathered before they are used
  int replicas = 1;
  // On which neighbouring ranks are, as many on each: gradients of a machine are added first.
  int machines = 1;
  // Masters and moments are in host memory beside the device (Queue::host), which updates them over
  // the bus.
  bool offload = false;
};
inline constexpr Sharding kDdp{};
inline constexpr Sharding kZero1{.state = Hold::shard};
inline constexpr Sharding kZero2{.gradients = Hold::shard, .state = Hold::shard};
inline constexpr Sharding kZero3{Hold::shard, Hold::shard, Hold::shard};
constexpr Sharding hybrid(int replicas) {
  Sharding s = kZero3;
  s.replicas = s.machines = replicas;
  return s;
}

constexpr const char* strategy_name(const Sharding& s) {
  if (s.replicas > 1) return s.offload ? "hybrid_offload" : "hybrid";
  if (s.weights == Hold::shard) return s.offload ? "zero3_offload" : "zero3";
  if (s.gradients == Hold::shard) return s.offload ? "zero2_offload" : "zero2";
  if (s.state == Hold::shard) return s.offload ? "zero1_offload" : "zero1";
  return s.offload ? "offload" : "ddp";
}

}  // namespace capstan
