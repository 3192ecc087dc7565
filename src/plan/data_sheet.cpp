#include "plan/data_sheet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "tensor/device.h"

namespace capstan {
namespace {

// What training steps reach on an H200, where the card is at its limit of power: 690 of 989
// TFLOP/s. A product that has the cool card to itself reaches 788.
constexpr double kInStep = 690.0, kAlone = 788.0, kPeak = 989.0;
// Products in the tensor cores of a GPU with more power than they take: 142 of 148 TFLOP/s of an
// H20, and more of GeForce cards, publicly measured.
constexpr double kFree = 142.0 / 148;
// Power, in parts of what a GPU takes with products at its full clock. Some it takes at any clock.
// The rest goes with the third power of the clock, as the voltage follows it, down to the clock
// below which the voltage falls no further.
constexpr double kStandingPower = 0.11, kLowestVoltage = 0.75;
// Attention in steps of OpenLLaMA-7B, over documents of 512 tokens: 188 and 157 TFLOP/s, forward
// and backward; of 2048: 383 and 309. So it has FLOPs at 583 and 456 TFLOP/s, and bytes of its
// operands at 2.17 and 1.49 of 4.8 TB/s. Products in FP8 have their conversions with them: 1,040 of
// 1979 TFLOP/s.
constexpr double kForward = 583.0 / kPeak, kBackward = 456.0 / kPeak, kFp8 = 1040.0 / 1979;
constexpr double kForwardBytes = 2.17 / 4.8, kBackwardBytes = 1.49 / 4.8;
// Of the bandwidth of memory, 4.8 TB/s: norms, SwiGLU and RoPE together reach 3.8 TB/s in a step,
// updates 4.2 TB/s, copies 3.86 TB/s.
constexpr double kElementwise = 3.8 / 4.8, kUpdates = 4.2 / 4.8, kCopies = 3.86 / 4.8;
constexpr double kSecondsPerCall = 3e-6;
// Cards are not alike. Of seven H200 the slowest took 1.8%, 1.4% and 3.0% longer than the fastest
// for three workloads; the largest and the smallest of seven normal numbers differ by 2.70 standard
// deviations on average.
constexpr double kSpread = (0.018 + 0.014 + 0.030) / 3 / 2.70;
// Of what a link has in one direction: all-reduce on 8 A100 has a bus bandwidth of 230 to 250 GB/s
// of 300. 8 H100 reach 460 to 480 of 450 where the switch adds, but Capstan's ranks add themselves.
constexpr double kLinks = 240.0 / 300;
// Of a message, by the model from which NCCL chooses among its own algorithms (its rings).
constexpr double kMessageWithin = 3.4e-6, kMessageAcross = 14e-6;
// 16 lanes of PCIe 5, 4 and 3, each way. Copies of pinned memory reach 43 GB/s beside an H200.
constexpr double kPcie[] = {63e9, 31e9, 16e9}, kOfPcie = 43.0 / 63;

bool is_hopper_or_newer(const GpuModel& gpu) {
  return gpu.capability >= std::pair(9, 0);
}

// PCIe bandwidth in each direction. A card whose link is slower has fewer lanes.
double lanes(const GpuModel& gpu) {
  const double all = kPcie[is_hopper_or_newer(gpu) ? 0 : gpu.capability.first == 8 ? 1 : 2];
  const double link = gpu.link_bytes_per_second / 2;
  return link > 0 ? std::min(all, link) : all;
}

// Of what connects so many GPUs of a machine, each way.
double reached(const GpuModel& gpu, int gpus) {
  const double link = gpu.link_bytes_per_second / 2;
  const bool joins_all = gpu.bridged == 0 || gpus <= gpu.bridged;
  return joins_all && link > lanes(gpu) ? kLinks * link : kOfPcie * lanes(gpu);
}

// A product on a GPU that its power limits: W, FLOP/s of the data sheet, FLOP/s reached.
struct LimitedProduct {
  double watts, peak, reached;

  // W for each FLOP/s of the data sheet at the full clock, at which products reach kAlone of kPeak.
  constexpr double watts_per_flop() const {
    const double clock = reached / (kAlone / kPeak * peak);
    const double with_voltage = std::max(clock, kLowestVoltage);
    return watts / peak / (kStandingPower + clock * with_voltage * with_voltage);
  }
};

// The measured product from which a generation's power curve starts (a generation shares a process
// and tensor cores). Returns nothing if power does not limit such GPUs, or if nobody knows. No
// measured step of an A40 or a B200 is known: their products are assumed to lose as much as an
// H200's do.
std::optional<LimitedProduct> limited_product(std::pair<int, int> capability) {
  constexpr double kAtLimit = kInStep / kPeak;
  if (capability.first < 7) return std::nullopt;
  if (capability.first == 7) return LimitedProduct{70, 65e12, 24e12};  // T4
  if (capability == std::pair(8, 0))  // A100 PCIe: 252.9 TFLOP/s alone
    return LimitedProduct{300, 312e12, kInStep / kAlone * 252.9e12};
  if (capability < std::pair(8, 9)) return LimitedProduct{300, 149.7e12, kAtLimit * 149.7e12};
  if (capability.first == 9) return LimitedProduct{700, 989e12, kInStep * 1e12};
  if (capability.first == 10) return LimitedProduct{1000, 2250e12, kAtLimit * 2250e12};
  return LimitedProduct{72, 121e12, 57e12};  // L4; Ada, and Blackwell of the same process
}

// The clock that a GPU's power allows products, as a part of that at which they reach kAlone of
// kPeak; a GPU with power to spare has more.
double clock_of(const GpuModel& gpu) {
  constexpr double kFastest = kFree / (kAlone / kPeak);
  const auto limited = limited_product(gpu.capability);
  if (!limited || gpu.narrow <= 0) return 1;
  const double power =
      std::max(0.0, gpu.watts / (limited->watts_per_flop() * gpu.narrow) - kStandingPower);
  const double by_voltage = std::cbrt(power);
  if (by_voltage >= kLowestVoltage) return std::min(kFastest, by_voltage);
  constexpr double kLeast = 0.05;  // some clock is left at any power
  return std::max(kLeast, power / (kLowestVoltage * kLowestVoltage));
}

// The part of its data sheet that matrix products reach in a step.
double products(const GpuModel& gpu) {
  if (gpu.narrow <= 0) return kInStep / kPeak;
  const double limited = kAlone / kPeak * clock_of(gpu);
  if (gpu.best_product <= 0) return limited;
  return std::min(limited, kInStep / kAlone * gpu.best_product / gpu.narrow);
}

// How much longer than one GPU the slowest of so many takes: the mean of the largest of as many
// normal numbers, by Blom's approximation.
double slowest(int gpus) {
  if (gpus < 2) return 1;
  const double p = (gpus - 0.375) / (gpus + 0.25);
  double low = 0, high = 8;  // the normal distribution reaches p between them
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return 1 + kSpread * low;
}

}  // namespace

Calibration data_sheet(const GpuModel& gpu, int gpus) {
  const double speed = 1 / slowest(gpus), part = products(gpu) * speed;
  // Attention and products in FP8 were measured at an H200's limit of power.
  const double slow = speed * std::min(1.0, clock_of(gpu) / (kInStep / kAlone));
  Calibration c;
  c.name = gpu.id;
  c.device = Device::cuda;
  c.date = gpu.date;
  c.from_data_sheet = true;
  c.seconds_per_call = kSecondsPerCall;
  c.bytes_per_second = kCopies * gpu.bytes_per_second;
  c.to_device_per_second = c.to_host_per_second = kOfPcie * lanes(gpu);
  // f32 has no tensor cores.
  const double plain = std::min(part, speed * kAlone / kPeak);
  const auto add = [&](const char* type, double flops, double fraction, double head,
                       double attention) {
    if (flops <= 0) return;
    TypeRates t;
    t.of(OpKind::product) = fraction * flops;
    t.of(OpKind::head) = head * attention;
    t.of(OpKind::attention) = slow * kForward * attention;
    t.of(OpKind::attention_backward) = slow * kBackward * attention;
    t.attention_bytes = speed * kForwardBytes * gpu.bytes_per_second;
    t.attention_backward_bytes = speed * kBackwardBytes * gpu.bytes_per_second;
    t.of(OpKind::elementwise) = speed * kElementwise * gpu.bytes_per_second;
    t.of(OpKind::optimizer) = speed * kUpdates * gpu.bytes_per_second;
    c.types.emplace(type, t);
  };
  if (gpu.bytes_per_second <= 0) return c;  // no type has all of its rates
  add("f32", gpu.f32, plain, plain, gpu.f32);
  add("tf32", gpu.tf32, part, part, gpu.tf32);
  add("f16", gpu.narrow, part, part, gpu.narrow);
  if (computes_bf16(gpu.capability)) add("bf16", gpu.narrow, part, part, gpu.narrow);
  add("fp8", gpu.fp8, kFp8 * slow, part, gpu.narrow);
  return c;
}

Calibration calibration_of(const GpuModel& gpu, int gpus) {
  std::optional<Calibration> newest;
  const GpuCatalogue catalogue = gpu_catalogue();
  for (Calibration& c : kept_calibrations()) {
    if (c.device != Device::cuda || (newest && newest->date >= c.date)) continue;
    const GpuModel* const measured = catalogue.reported_as(c.name);
    if (measured != nullptr && measured->id == gpu.id) newest = std::move(c);
  }
  Calibration sheet = data_sheet(gpu, gpus);
  if (!newest) return sheet;
  newest->networks.clear();
  newest->networks_across.clear();
  for (auto& [type, rates] : newest->types)
    for (size_t kind = 0; kind < kOpKinds; ++kind)
      rates.slow(static_cast<OpKind>(kind), slowest(gpus));
  newest->types.merge(sheet.types);  // what was not measured
  return *newest;
}

Network data_sheet_network(const GpuModel& gpu, int ranks_per_machine,
                           std::optional<double> across) {
  if (gpu.per_machine > 0 && !gpu.joins_machines())
    ranks_per_machine = std::min(ranks_per_machine, gpu.per_machine);
  Network n{.seconds_per_message = kMessageWithin,
            .bytes_per_second = reached(gpu, ranks_per_machine)};
  n.ranks_per_machine = ranks_per_machine;
  n.across = {.seconds_per_message = kMessageAcross,
              .bytes_per_second = across.value_or(1e9 / 8 * gpu.port_gigabits)};
  return n;
}

}  // namespace capstan
