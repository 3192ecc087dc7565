#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "base/parallel.h"
#include "base/units.h"
#include "cli/command_line.h"
#include "cli/launch.h"
#include "cli/plan_report.h"
#include "cli/plan_search.h"
#include "cli/recipe_arguments.h"
#include "model/known_models.h"
#include "plan/alike.h"
#include "plan/data_sheet.h"
#include "plan/fit.h"
#include "plan/gpu_catalogue.h"
#include "plan/predict.h"
#include "recipe/nearest.h"
#include "run/run.h"
#include "train/balance.h"
#include "train/setup.h"

namespace capstan::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string gpu, memory, host_memory, command, calibration;
  double network = 0;  // GB/s of each GPU between machines; 0: not given
  bool json = false, search = false;
};

bool names_data(const Recipe& recipe) {
  if (recipe.data == DataClass::text_files) return recipe.train_data_path.has_value();
  return recipe.data != DataClass::json || recipe.json_path.has_value();
}

// Records that will come from standard input: the run reads them, not the plan.
bool comes_later(const Recipe& recipe) {
  return recipe.data == DataClass::json && recipe.json_path == "-";
}

bool tokenizer_exists(const Recipe& recipe, const NamedModel& model) {
  const auto named = try_checkpoint_dir(recipe.tokenizer_dir.value_or(""));
  if (!named && recipe.tokenizer_dir) return false;
  const fs::path folder = named.value_or(model.folder);
  std::error_code error;
  return folder.empty() || fs::exists(folder / "tokenizer.json", error) ||
         fs::exists(folder / "tokenizer.model", error);
}

Planned plan_for(const Recipe& recipe, Task task) {
  Planned p;
  const NamedModel model = model_of(recipe, task, nullptr, true);
  p.model = model.name;
  std::string missing = "the checkpoint is not on this disk";
  if (comes_later(recipe)) {
    missing = "the data come from standard input, which the run reads";
  } else if (!model.folder.empty() || task == Task::pretrain) {
    try {
      p.inputs = find_inputs(recipe, task);
      const RunInputs& inputs = *p.inputs;
      p.options = run_options(recipe, task, inputs);
      const RunLength length(recipe, inputs.data.train, inputs.max_seq_length);
      if (length.limited()) p.steps = length.steps();
      p.basis = fmt::format("for the {} of the data, the longest of {}",
                            count(inputs.data.train.size(), "sample"),
                            count(inputs.data.train.longest(), "token"));
      return p;
    } catch (const Error& e) {
      if (e.fault() != Fault::file && e.fault() != Fault::usage) throw;
      const bool tokenizer = tokenizer_exists(recipe, model);
      if (names_data(recipe) && tokenizer) throw;
      // A model given by its sizes takes its vocabulary from the tokenizer, unless vocab_size is
      // set.
      if (!tokenizer && task == Task::pretrain && by_sizes(recipe) && !recipe.vocab_size) throw;
      p.inputs.reset();
      missing = e.what();
      missing.resize(std::min(missing.find('\n'), missing.size()));
    }
  }
  p.options = worst_case_options(recipe, task, model.config);
  p.basis = fmt::format(
      "for the largest batch that the recipe allows: {} of {}{} ({})",
      count(p.options.limits.documents, "sample"), count(p.options.limits.longest, "token"),
      recipe.max_seq_length
          ? ""
          : ", the model's maximum; set --train.max_seq_length to plan for shorter ones",
      missing);
  return p;
}

// Plans the ranks that differ, and makes the options those of the rank that needs most.
RankBytes choose_rank(TrainOptions& options) {
  RankBytes bytes;
  if (options.ranks.size == 1) return bytes;
  int chosen = 0;
  TrainOptions one = options;
  one.pipeline.cuts = cuts_of(options);
  for (const int rank : ranks_that_differ(one)) {
    one.ranks.rank = rank;
    const int64_t needed = Trainer::plan(one).device.total_bytes;
    if (needed > bytes.most) chosen = rank;
    bytes.most = std::max(bytes.most, needed);
    bytes.least = bytes.least == 0 ? needed : std::min(bytes.least, needed);
  }
  options.ranks.rank = chosen;
  return bytes;
}

int64_t require_ranks(const Recipe& recipe) {
  const int64_t devices = ranks_per_machine(recipe);
  const int64_t ranks = devices * recipe.num_nodes;
  require(ranks <= kMostPlannedRanks, Fault::usage,
          "devices: {} on {} are {} ranks; expected at most {}", devices,
          count(recipe.num_nodes, "machine"), ranks, kMostPlannedRanks);
  return ranks;
}

void set_ranks_of(TrainOptions& options, const Recipe& recipe) {
  const int64_t ranks = require_ranks(recipe);
  // Threads read each other's memory where it lies; others need room to sum in.
  const bool room = recipe.num_nodes > 1;
  set_ranks(options, recipe, {0, static_cast<int>(ranks)}, {.room = room});
}

// What connects the ranks: as measured, or by the data sheet of their GPUs.
std::optional<Network> network_for(const Options& o, const std::optional<GpuModel>& gpu,
                                   const Calibration& calibration, const Recipe& recipe) {
  const auto devices = static_cast<int>(ranks_per_machine(recipe));
  const int ranks = devices * static_cast<int>(recipe.num_nodes);
  if (const auto measured = network_of(calibration, ranks)) return measured;
  if (!gpu) return std::nullopt;
  return data_sheet_network(*gpu, devices,
                            o.network > 0 ? std::optional(1e9 * o.network) : std::nullopt);
}

TrainOptions connected(TrainOptions options, const std::optional<Network>& network) {
  if (options.ranks.size == 1) return options;
  const bool room = options.network.room;
  options.network = *network;
  options.network.room = room;
  return options;
}

std::optional<Time> time_of(const Planned& p, const TrainOptions& options, const Recipe& recipe,
                            const std::optional<Calibration>& calibration,
                            const std::optional<Network>& network) {
  if (!calibration) return std::nullopt;
  if (options.ranks.size > 1 && !network) return std::nullopt;
  const TrainOptions o = connected(options, network);
  const CostModel machine = cost_model(*calibration, o);
  Time t{*calibration, {}, {}};
  const int64_t micro = std::min(recipe.micro_batch_size, recipe.global_batch_size) *
                        batch_ranks(o.ranks, o.mesh).size;
  t.step = p.inputs ? estimate_run(o, machine, recipe, *p.inputs)
                    : estimate_largest(o, machine, (recipe.global_batch_size - 1) / micro + 1);
  if (p.steps) t.run_seconds = t.step.seconds * static_cast<double>(*p.steps);
  return t;
}

constexpr std::pair<const char*, Task> kCommands[] = {{"pretrain", Task::pretrain},
                                                      {"finetune_full", Task::finetune_full},
                                                      {"finetune", Task::finetune_lora},
                                                      {"finetune_lora", Task::finetune_lora}};

std::optional<Task> command_named(const std::string& word) {
  for (const auto& [name, task] : kCommands)
    if (word == name) return task;
  return std::nullopt;
}

std::string suggestion_for(std::string_view word) {
  std::vector<std::string_view> names = known_model_names();
  for (const char* command : {"pretrain", "finetune", "finetune_full", "finetune_lora"})
    names.emplace_back(command);
  return did_you_mean(word, names);
}

// Handles the positional arguments: a command, a model's folder or known name, or a recipe.
Arguments with_keys(const Arguments& words, std::optional<Task>& task) {
  Arguments out;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    std::error_code error;
    if (word.starts_with("--")) {
      out.push_back(word);
      const bool has_value = word.find('=') != std::string::npos;
      if (!has_value && i + 1 < words.size() && !words[i + 1].starts_with("--"))
        out.push_back(words[++i]);
    } else if (const auto named = command_named(word)) {
      task = named;
    } else {
      const bool there = fs::exists(word, error);
      const bool model = fs::is_directory(word, error) || (!there && known_model(word));
      require(there || model, Fault::file,
              "{}: cannot open: there is no such recipe or folder, and no known model of that "
              "name{}. Known models are {}",
              word, suggestion_for(word), known_families());
      out.push_back(model ? "--checkpoint_dir" : "--config");
      out.push_back(word);
    }
  }
  return out;
}

// The options of `plan` itself; what is left are keys of the recipe. Nothing: help was printed.
std::optional<Arguments> parse_options(Options& o, const Arguments& arguments) {
  CommandLine line(
      "Checks what a run needs before it starts, by running the recipe on a simulated device. Exit "
      "code 0: it fits; 3: it does not. RECIPE may also be a model's folder or the name of a known "
      "model (Llama-3.2-1B). Any key of the recipe can follow.",
      "capstan plan [pretrain|finetune_full|finetune] [RECIPE.yaml]");
  line.option("--gpu", o.gpu,
              "plan for a GPU that is not here, by its data sheet: v100-32, rtx4090, h100-sxm …");
  line.option("--memory", o.memory,
              "total memory of the device, such as 80GiB (default: the --gpu's, or what is free "
              "here)");
  line.option("--host-memory", o.host_memory,
              "memory of the GPU's host, such as 128GiB (default: what is free here, or, with "
              "--memory, unlimited)");
  line.option("--calibration", o.calibration,
              "calibration that 'capstan bench' wrote, here or on the target machine (default: "
              "this machine's, if it was measured)");
  line.option(
      "--network", o.network,
      "with --gpu: GB/s of each GPU between machines, each way (default: what machines with "
      "such GPUs usually have, 25 or 50)",
      {1e-3, 1e6, false});
  line.choice(
      "--command", o.command, {"pretrain", "finetune_full", "finetune", "finetune_lora"},
      "command that the recipe is for (default: guessed from LoRA keys and checkpoint_dir)");
  line.flag(
      "--search", o.search,
      "find how the GPUs (devices × num_nodes) best share the work of the recipe's global batch: "
      "tensor, pipeline and context parallelism, strategy, micro-batch and recomputation");
  line.flag("--json", o.json, "print JSON");
  CommandLine::Known known = line.parse_known(arguments);
  if (known.help) return std::nullopt;
  require(known.error.empty(), Fault::usage, "{}; 'capstan plan --help' lists the options",
          known.error);
  require(
      o.network == 0 || !o.gpu.empty(), Fault::usage,
      "plan: --network says what connects machines with GPUs of the catalogue; also give --gpu");
  return std::move(known.rest);
}

// A calibration file that the user names must be valid; an unsuitable one in the cache is ignored.
std::optional<Calibration> calibration_for(const Options& o, const TrainOptions& planned,
                                           const std::optional<GpuModel>& gpu) {
  const bool named = !o.calibration.empty();
  if (!named && gpu) {  // this machine's is of another GPU
    Calibration sheet = data_sheet(*gpu);
    return sheet.types.contains(type_of_products(planned)) ? std::optional(sheet) : std::nullopt;
  }
  auto found =
      named ? std::optional(read_calibration(o.calibration)) : find_calibration(planned.device);
  // f16 is not measured on a CPU.
  const bool needed = named && !(planned.device == Device::cpu &&
                                 types_of(planned.precision).compute == DType::f16);
  if (!needed && found && !found->types.contains(type_of_products(planned))) found.reset();
  return found;
}

// The memory that a run may take, and a line about what CUDA takes of it.
struct Available {
  Room room;
  std::string cuda_share;
};
// The recipe for a GPU of the catalogue. Without bf16 it takes f16, as a run there does.
void take_gpu(Recipe& recipe, Options& o, const GpuModel& gpu) {
  require(recipe.accelerator != Accelerator::cpu, Fault::usage,
          "plan: --gpu {} and --accelerator cpu exclude each other", gpu.id);
  recipe.accelerator = Accelerator::cuda;
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

Available available_for(const Options& o, Device device, int64_t ranks_on_machine) {
  require(device != Device::cuda || !o.memory.empty() || cuda_present(), Fault::usage,
          "plan: there is no GPU here; give its memory, such as --memory 80GiB");
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

int search(const Options& o, const Planned& planned, const Arguments& words, Task task,
           const Recipe& recipe, const std::optional<GpuModel>& gpu,
           const std::optional<Calibration>& calibration) {
  require(
      calibration.has_value(), Fault::usage,
      "plan: --search compares times, and those of this machine are unknown; run 'capstan bench', "
      "or name a GPU of the catalogue (--gpu)");
  const int64_t devices = ranks_per_machine(recipe), ranks = require_ranks(recipe);
  const auto network = network_for(o, gpu, *calibration, recipe);
  require(
      network || ranks == 1, Fault::usage,
      "plan: --search needs to know what connects the ranks; run 'capstan bench comm', or name a "
      "GPU of the catalogue (--gpu)");
  const Device device = planned.options.device;
  MeshQuestion question{.recipe = recipe,
                        .options = planned.options,
                        .devices = static_cast<int>(devices),
                        .machines = static_cast<int>(recipe.num_nodes),
                        .network = network.value_or(Network()),
                        .calibration = *calibration,
                        .available = available_for(o, device, devices).room};
  question.network.room = recipe.num_nodes > 1;
  const MeshSearch found = search_meshes(question);
  const std::string command = found.best.empty() ? "" : command_of(found.best[0], words, task);
  if (o.json)
    print_search_json(question, found, planned, command);
  else
    print_search_text(question, found, planned, command);
  return found.best.empty() ? static_cast<int>(Fault::does_not_fit) : 0;
}

}  // namespace

int plan(const Arguments& arguments) {
  Options o;
  const auto keys = parse_options(o, arguments);
  if (!keys) return 0;
  std::optional<Task> given = command_named(o.command);
  const Arguments rest = with_keys(*keys, given);
  const Task task = given ? *given : task_of(rest);
  Recipe defaults = defaults_of(task);
  if (o.search) defaults.micro_batch_size = 1;  // the search chooses it
  auto recipe = recipe_from(rest, task, "", defaults, Inputs::of_plan);
  if (!recipe) return 0;
  std::optional<GpuModel> gpu;
  if (!o.gpu.empty()) {
    gpu = gpu_catalogue().named(o.gpu);
    take_gpu(*recipe, o, *gpu);
  }
  Planned planned = plan_for(*recipe, task);
  planned.elsewhere = gpu.has_value();
  if (gpu) {
    planned.options.has_bf16 = computes_bf16(gpu->capability);
    planned.basis += fmt::format(", on a {} ({}) by the catalogue of {}", gpu->id,
                                 format_bytes(gpu->bytes), gpu->date);
  } else {
    require_precision(planned.options.precision, planned.options.device);
  }
  // Ranks on a CPU share its cores: each needs memory for its own threads alone.
  if (const auto ranks = static_cast<int>(ranks_per_machine(*recipe));
      ranks > 1 && planned.options.device == Device::cpu)
    omp_set_num_threads(std::max(1, (num_threads() + ranks - 1) / ranks));
  const auto calibration = calibration_for(o, planned.options, gpu);
  if (o.search) return search(o, planned, rest, task, *recipe, gpu, calibration);
  set_ranks_of(planned.options, *recipe);
  const auto network =
      calibration ? network_for(o, gpu, *calibration, *recipe) : std::optional<Network>();
  const auto [available, cuda_share] =
      available_for(o, planned.options.device, planned.options.ranks.size / recipe->num_nodes);
  if (planned.options.choose_overlap && network)
    planned.options.mesh.overlap = overlap_pays(
        connected(planned.options, network), cost_model(*calibration, planned.options), available);
  choose_rank(planned.options);
  const Fit fit = fit_of(planned.options, recipe->micro_batch_size, available);
  TrainOptions fitted = fit.options;
  planned.ranks = choose_rank(fitted);
  TrainOptions bare = planned.options;
  bare.staging = false;
  // The largest is at least what fits, however the search went.
  const BatchLimits& planned_for = planned.options.limits;
  const auto at_least = [&](int64_t n) { return fit.fits() ? n : 0; };
  const int64_t micro_batch =
      std::max(at_least(planned_for.documents), largest_micro_batch(bare, available));
  const int64_t sequence =
      std::max(at_least(planned_for.longest),
               largest_sequence(bare, available,
                                planned.inputs ? std::nullopt : recipe->eval_max_new_tokens));
  const auto time =
      fit.fits() ? time_of(planned, fit.options, *recipe, calibration, network) : std::nullopt;
  if (o.json)
    print_plan_json(planned, fit, {micro_batch, sequence}, time);
  else
    print_plan_text(planned, fit, {micro_batch, sequence}, time, cuda_share);
  return fit.fits() ? 0 : static_cast<int>(Fault::does_not_fit);
}

}  // namespace capstan::cli
