#include "cli/plan_machine.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/units.h"
#include "cli/launch.h"
#include "plan/data_sheet.h"

namespace capstan::cli {

int64_t require_ranks(const Recipe& recipe) {
  const int64_t devices = ranks_per_machine(recipe);
  const int64_t ranks = devices * recipe.num_nodes;
  require(ranks <= kMostPlannedRanks, Fault::usage,
          "devices: {} on {} are {} ranks; expected at most {}", devices,
          count(recipe.num_nodes, "machine"), ranks, kMostPlannedRanks);
  return ranks;
}

void warn_of_large_machines(const Recipe& recipe) {
  const int64_t devices = ranks_per_machine(recipe);
  if (devices <= kUsualGpus) return;
  const int64_t machines = devices * recipe.num_nodes / kUsualGpus;
  log::warn(
      "{} GPUs are planned as on one machine, joined by the link of one; most machines have "
      "{}{}",
      devices, kUsualGpus,
      devices % kUsualGpus == 0 ? fmt::format(": --gpus {} --nodes {}", kUsualGpus, machines) : "");
}

namespace {

// More GPUs on a machine than it holds are on several.
void spread(Recipe& recipe, const GpuModel& gpu) {
  const int64_t devices = ranks_per_machine(recipe);
  const auto [each, machines] = gpu.placed(devices, recipe.num_nodes);
  if (each == devices) return;
  log::warn("devices: {} on one machine, but machines with {} have {}: planned as {} of {}{}",
            devices, gpu.id, count(gpu.per_machine, "GPU"), count(machines, "machine"), each,
            gpu.joins_machines() ? fmt::format(", with NVLink between up to {} GPUs", gpu.bridged)
                                 : ", with a network between them");
  recipe.devices = {.count = each};
  recipe.num_nodes = machines;
}

}  // namespace

void take_gpu(Recipe& recipe, PlanOptions& o, const GpuModel& gpu) {
  require(recipe.accelerator != Accelerator::cpu, Fault::usage,
          "plan: --gpu {} and --accelerator cpu exclude each other", gpu.id);
  recipe.accelerator = Accelerator::cuda;
  spread(recipe, gpu);
  if (o.memory.empty()) o.memory = fmt::format("{}MiB", gpu.bytes >> 20);
  const bool bf16 = computes_bf16(gpu.capability);
  const Precision precision =
      recipe.precision.value_or(bf16 ? Precision::bf16_mixed : Precision::f16_mixed);
  require(bf16 || with_f16(precision) == precision, Fault::usage,
          "precision: {} needs a GPU that computes with bf16 (compute capability 8.0, Ampere, or "
          "newer), but {} does not; use {}",
          name_of(precision), gpu.id, name_of(with_f16(precision)));
  require(precision != Precision::fp8_mixed || multiplies_fp8(gpu.capability), Fault::usage,
          "precision: fp8-mixed needs a GPU with FP8 products (compute capability 8.9 or above), "
          "but {} has none; use bf16-mixed",
          gpu.id);
  recipe.precision = precision;
}

Available available_for(const PlanOptions& o, Device device, int64_t ranks_on_machine) {
  require(
      device != Device::cuda || !o.memory.empty() || cuda_present(), Fault::usage,
      "plan: there is no GPU here; name one of the catalogue, such as --gpu h100-sxm, or give the "
      "memory of yours, such as --memory 80GiB");
  require(device == Device::cuda || o.host_memory.empty(), Fault::usage,
          "plan: --host-memory is for a GPU; for a CPU use --memory");
  Available a{o.memory.empty() ? room_for(device) : Room{parse_bytes(o.memory)}, ""};
  if (device == Device::cuda && !o.memory.empty()) {
    const int64_t all = a.room.device, share = left_to_cuda();
    require(all > share, Fault::usage,
            "plan: --memory {} is less than CUDA itself takes on a GPU, about {}", o.memory,
            format_bytes(share));
    a.room.device = all - share;
    a.cuda_share = fmt::format("  CUDA itself takes about {1} of the GPU's {0}\n",
                               format_bytes(all), format_bytes(share));
  }
  if (!o.host_memory.empty()) a.room.host = parse_bytes(o.host_memory);
  // Ranks share the memory of their machine; each has a GPU of its own.
  int64_t& shared = device == Device::cuda ? a.room.host : a.room.device;
  if (shared != Room().host) shared /= ranks_on_machine;
  return a;
}

std::optional<Calibration> calibration_for(const PlanOptions& o, const TrainOptions& planned,
                                           const Recipe& recipe,
                                           const std::optional<GpuModel>& gpu) {
  const bool named = !o.calibration.empty();
  if (!named && gpu) {
    Calibration known = calibration_of(*gpu, static_cast<int>(require_ranks(recipe)));
    return known.types.contains(type_of_products(planned)) ? std::optional(known) : std::nullopt;
  }
  auto found =
      named ? std::optional(named_calibration(o.calibration)) : find_calibration(planned.device);
  // f16 is not measured on a CPU.
  const bool needed = named && !(planned.device == Device::cpu &&
                                 types_of(planned.precision).compute == DType::f16);
  if (!needed && found && !found->types.contains(type_of_products(planned))) found.reset();
  if (found) warn_of_other_kernels(*found);
  return found;
}

std::optional<Network> network_for(const PlanOptions& o, const std::optional<GpuModel>& gpu,
                                   const Calibration& calibration, const Recipe& recipe) {
  const auto devices = static_cast<int>(ranks_per_machine(recipe));
  const auto machines = static_cast<int>(recipe.num_nodes);
  if (o.network == 0)
    if (const auto measured = network_of(calibration, devices * machines, machines))
      return measured;
  const GpuCatalogue catalogue = gpu_catalogue();
  const GpuModel* model = gpu ? &*gpu : nullptr;
  // What connects the GPUs of this machine takes a minute to measure; other machines may be asleep.
  if (!gpu && machines > 1 && calibration.device == Device::cuda)
    model = catalogue.reported_as(calibration.name);
  if (model == nullptr) return std::nullopt;
  return links_of(*model, calibration, devices, machines,
                  o.network > 0 ? std::optional(1e9 * o.network) : std::nullopt);
}

Stated stated_by(const PlanOptions& o, const GpuModel& gpu) {
  Stated stated{.gpu = gpu.id};
  if (!o.memory.empty()) stated.bytes = available_for(o, Device::cuda, 1).room.device;
  if (!o.host_memory.empty()) stated.host_bytes = parse_bytes(o.host_memory);
  if (o.network > 0) stated.across = 1e9 * o.network;
  if (!o.calibration.empty()) stated.calibration = named_calibration(o.calibration);
  return stated;
}

std::string_view key_of_peak(const TrainOptions& options) {
  const std::string_view type = type_of_products(options);
  return type == "f16" || type == "bf16" ? "narrow" : type;
}

std::optional<double> peak_of(const std::optional<GpuModel>& gpu, const TrainOptions& options) {
  if (!gpu) return std::nullopt;
  const std::string_view key = key_of_peak(options);
  const double flops = key == "f32"    ? gpu->f32
                       : key == "tf32" ? gpu->tf32
                       : key == "fp8"  ? gpu->fp8
                                       : gpu->narrow;
  return flops > 0 ? std::optional(flops) : std::nullopt;
}

}  // namespace capstan::cli
