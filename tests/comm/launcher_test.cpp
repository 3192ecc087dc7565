#include "comm/launcher.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

namespace capstan::test {
namespace {

// As the launchers set them: Slurm 22.05, Open MPI 4.1, PyTorch's torchrun.
using Values = std::map<std::string, std::string>;
const Values kBatch = {{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_TASK_PID", "1"}};
const Values kAllocated = {{"SLURM_NTASKS", "4"}};

Values with(Values all, const Values& more) {
  for (const auto& [name, value] : more) all[name] = value;
  return all;
}
Values task_of_srun(int task, int tasks, const Values& more = {}) {
  return with({{"SLURM_NTASKS", std::to_string(tasks)},
               {"SLURM_PROCID", std::to_string(task)},
               {"SLURM_STEP_ID", "0"},
               {"SLURM_STEP_NUM_TASKS", std::to_string(tasks)},
               {"SLURM_TASK_PID", std::to_string(::getpid())}},
              more);
}
Values of_mpirun(int rank, int size) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"PMIX_RANK", std::to_string(rank)},
          {"PMIX_NAMESPACE", "1"}};
}

// What the process is, in a word and its numbers.
std::string found(const Values& values) {
  const Variables variables = [&](const char* name) -> const char* {
    const auto value = values.find(name);
    return value == values.end() ? nullptr : value->second.c_str();
  };
  const auto ranks = launched_ranks(variables);
  const auto copies = launched_copies(variables);
  const auto tasks = tasks_beside(variables);
  EXPECT_LE((ranks ? 1 : 0) + (copies ? 1 : 0) + (tasks ? 1 : 0), 1);
  if (ranks) return fmt::format("rank {} of {}", ranks->rank, ranks->size);
  if (copies)
    return fmt::format("copy {} of {} by {}", copies->number, copies->count, copies->launcher);
  if (tasks) return fmt::format("alone, {} {}", tasks->variable, tasks->count);
  return "alone";
}

TEST(Launcher, RanksOfMpiAreKnownWithAndWithoutSlurm) {
  EXPECT_EQ(found(of_mpirun(1, 2)), "rank 1 of 2");
  EXPECT_EQ(found(with(kBatch, of_mpirun(3, 4))), "rank 3 of 4");
  // On another machine of the job, mpirun's daemon is a task of srun.
  EXPECT_EQ(found(task_of_srun(1, 2, of_mpirun(3, 4))), "rank 3 of 4");
  EXPECT_EQ(found(task_of_srun(2, 4, {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}})), "rank 2 of 4");
  EXPECT_EQ(found(task_of_srun(2, 4, {{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "slurm.pmix.9.0"}})),
            "rank 2 of 4");
}

TEST(Launcher, OneProcessOfMpirunIsAlone) {
  EXPECT_EQ(found(of_mpirun(0, 1)), "alone");
  EXPECT_EQ(found(with(kBatch, of_mpirun(0, 1))), "alone");
  EXPECT_EQ(found(task_of_srun(1, 2, of_mpirun(0, 1))), "alone");
}

TEST(Launcher, TasksOfSrunWithoutPmiAreCopies) {
  for (const int task : {0, 1, 3})
    EXPECT_EQ(found(task_of_srun(task, 4)), fmt::format("copy {} of 4 by srun", task));
  // A script that srun started.
  EXPECT_EQ(found(task_of_srun(0, 4, {{"SLURM_TASK_PID", "1"}})), "copy 0 of 4 by srun");
  EXPECT_EQ(found(with(kBatch, {{"SLURM_PROCID", "2"}})), "copy 2 of 4 by srun");
}

TEST(Launcher, OneTaskAndShellsOfAJobAreNoCopies) {
  EXPECT_EQ(found(task_of_srun(0, 1)), "alone");
  EXPECT_EQ(found(kBatch), "alone, SLURM_NTASKS 4");
  EXPECT_EQ(found(kAllocated), "alone, SLURM_NTASKS 4");
  const Values terminal = {{"SLURM_PTY_PORT", "4711"}};
  EXPECT_EQ(found(task_of_srun(0, 4, with(terminal, {{"SLURM_TASK_PID", "1"}}))),
            "alone, SLURM_NTASKS 4");
  EXPECT_EQ(found(task_of_srun(0, 4, terminal)), "copy 0 of 4 by srun") << "no shell";
}

TEST(Launcher, RanksOfPyTorchAreCopies) {
  const Values ranks = {{"RANK", "1"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "2"}};
  EXPECT_EQ(found(ranks), "copy 1 of 2 by a launcher of PyTorch programs");
  EXPECT_EQ(found(with(ranks, {{"TORCHELASTIC_RUN_ID", "none"}})), "copy 1 of 2 by torchrun");
  EXPECT_EQ(found(with(ranks, {{"WORLD_SIZE", "1"}})), "alone");
  EXPECT_EQ(found({{"WORLD_SIZE", "2"}}), "alone, WORLD_SIZE 2");
  EXPECT_EQ(found({{"WORLD_SIZE", "two"}, {"RANK", "1"}}), "alone");
  EXPECT_EQ(found(with(ranks, of_mpirun(0, 2))), "rank 0 of 2");
}

}  // namespace
}  // namespace capstan::test
