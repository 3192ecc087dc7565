#include "plan/data_sheet.h"

#include <fmt/format.h>

#include "tensor/device.h"

namespace capstan {
namespace {

// Of dense FLOP/s. Matrix products reach 690 of 989 TFLOP/s in a step, where the card is at its
// limit of power (alone and on a cool card 788). Attention over documents of 2048 tokens reaches
// 296 and 243 thousand FLOPs a cycle, forward and backward, of 541 thousand. Products in FP8 have
// their conversions with them: 1,040 of 1979 TFLOP/s.
constexpr double kProducts = 690.0 / 989, kForward = 296.0 / 541, kBackward = 243.0 / 541;
constexpr double kFp8 = 1040.0 / 1979;
// Of the bandwidth of memory, 4.8 TB/s: norms, SwiGLU and RoPE together reach 3.8 TB/s in a step,
// updates 4.2 TB/s, copies 3.86 TB/s.
constexpr double kElementwise = 3.8 / 4.8, kUpdates = 4.2 / 4.8, kCopies = 3.86 / 4.8;
constexpr double kSecondsPerCall = 3e-6;
// Of what a link has in one direction: all-reduce on 8 A100 has a bus bandwidth of 230 to 250 GB/s
// of 300. 8 H100 reach 460 to 480 of 450 where the switch adds, but Capstan's ranks add themselves.
constexpr double kLinks = 240.0 / 300;
// Of a message, by the model from which NCCL chooses among its own algorithms (its rings).
constexpr double kMessageWithin = 3.4e-6, kMessageAcross = 14e-6;
// Each way, of pinned memory: PCIe 5 as measured beside an H200, and half of it.
constexpr double kBus = 43e9;

bool is_hopper_or_newer(const GpuModel& gpu) {
  return gpu.capability >= std::pair(9, 0);
}

}  // namespace

Calibration data_sheet(const GpuModel& gpu) {
  const double bus = is_hopper_or_newer(gpu) ? kBus : kBus / 2;
  Calibration c;
  c.name = gpu.id;
  c.device = Device::cuda;
  c.date = gpu.date;
  c.from_data_sheet = true;
  c.seconds_per_call = kSecondsPerCall;
  c.bytes_per_second = kCopies * gpu.bytes_per_second;
  c.to_device_per_second = c.to_host_per_second = bus;
  const auto add = [&](const char* type, double flops, double fraction, double attention) {
    if (flops <= 0) return;
    TypeRates t;
    t.of(OpKind::product) = fraction * flops;
    t.of(OpKind::head) = kProducts * attention;
    t.of(OpKind::attention) = kForward * attention;
    t.of(OpKind::attention_backward) = kBackward * attention;
    t.of(OpKind::elementwise) = kElementwise * gpu.bytes_per_second;
    t.of(OpKind::optimizer) = kUpdates * gpu.bytes_per_second;
    c.types.emplace(type, t);
  };
  add("f32", gpu.f32, kProducts, gpu.f32);
  add("tf32", gpu.tf32, kProducts, gpu.tf32);
  add("f16", gpu.narrow, kProducts, gpu.narrow);
  if (computes_bf16(gpu.capability)) add("bf16", gpu.narrow, kProducts, gpu.narrow);
  add("fp8", gpu.fp8, kFp8, gpu.narrow);
  return c;
}

Network data_sheet_network(const GpuModel& gpu, int ranks_per_machine,
                           std::optional<double> across) {
  Network n{.seconds_per_message = kMessageWithin,
            .bytes_per_second = kLinks * gpu.link_bytes_per_second / 2};
  n.ranks_per_machine = ranks_per_machine;
  n.across = {.seconds_per_message = kMessageAcross,
              .bytes_per_second = across.value_or(is_hopper_or_newer(gpu) ? 50e9 : 25e9)};
  return n;
}

}  // namespace capstan
