#include "comm/launcher.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace capstan {
namespace {

std::optional<int> number(const char* text) {
  if (text == nullptr) return std::nullopt;
  const std::string_view digits(text);
  int n = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return n;
}

// A task of a step of a Slurm job. The script of a batch job is task 0 of no step.
std::optional<Copies> tasks_of_srun(const Variables& variables) {
  const auto task = number(variables("SLURM_PROCID"));
  if (!task) return std::nullopt;
  auto tasks = number(variables("SLURM_STEP_NUM_TASKS"));
  if (!tasks && (*task > 0 || variables("SLURM_STEP_ID") != nullptr))
    tasks = number(variables("SLURM_NTASKS"));
  if (tasks.value_or(1) < 2) return std::nullopt;
  // A shell at a terminal, in which a user starts one process.
  const auto first = number(variables("SLURM_TASK_PID"));
  if (*task == 0 && variables("SLURM_PTY_PORT") != nullptr && first && *first != ::getpid())
    return std::nullopt;
  return Copies{"srun", *task, *tasks};
}

// torchrun, and other launchers of PyTorch programs.
std::optional<Copies> ranks_of_pytorch(const Variables& variables) {
  const auto rank = number(variables("RANK")), size = number(variables("WORLD_SIZE"));
  if (!rank || size.value_or(1) < 2) return std::nullopt;
  const bool elastic = variables("TORCHELASTIC_RUN_ID") != nullptr;
  return Copies{elastic ? "torchrun" : "a launcher of PyTorch programs", *rank, *size};
}

bool by_mpi(const Variables& variables) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"})
    if (variables(name) != nullptr) return true;
  return false;
}

}  // namespace

Variables environment() {
  return [](const char* name) -> const char* { return std::getenv(name); };
}

std::optional<Ranks> launched_ranks(const Variables& variables) {
  // Open MPI's names, those of MPICH and of Slurm's PMI-2, and of Slurm's PMIx, which has no name
  // for their number.
  constexpr const char* kNames[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                       {"PMI_RANK", "PMI_SIZE"},
                                       {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"}};
  for (const auto& [rank, size] : kNames) {
    const auto r = number(variables(rank)), s = number(variables(size));
    if (!r || !s) continue;
    if (*s > 1 && *r < *s) return Ranks{*r, *s};
    return std::nullopt;
  }
  return std::nullopt;
}

std::optional<Copies> launched_copies(const Variables& variables) {
  if (by_mpi(variables)) return std::nullopt;
  if (const auto copies = tasks_of_srun(variables)) return copies;
  return ranks_of_pytorch(variables);
}

std::optional<Tasks> tasks_beside(const Variables& variables) {
  if (by_mpi(variables) || launched_copies(variables)) return std::nullopt;
  for (const char* name : {"SLURM_NTASKS", "WORLD_SIZE"})
    if (const auto tasks = number(variables(name)); tasks.value_or(1) > 1)
      return Tasks{name, *tasks};
  return std::nullopt;
}

}  // namespace capstan
