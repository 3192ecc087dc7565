#pragma once

#include <functional>
#include <optional>
#include <string>

#include "comm/ranks.h"

namespace capstan {

// What the environment says of who started this process. The value of a variable; null: not set.
using Variables = std::function<const char*(const char* name)>;
Variables environment();

// The ranks that a launcher of MPI programs started: mpirun of Open MPI or MPICH, or srun with
// PMI-2 or PMIx. None for a process that was started alone.
std::optional<Ranks> launched_ranks(const Variables& variables);

// Copies of a program that a launcher started without connecting them: each would do all of the
// work.
struct Copies {
  std::string launcher;  // "srun"
  int number = 0, count = 0;
};
// Whether this process is one of several copies. It is not if a launcher of MPI programs set its
// variables: processes inherit Slurm's, too, where mpirun starts them in a job. The script of a
// batch job is none, nor a shell of salloc or srun --pty: there SLURM_NTASKS counts the tasks that
// the job may start.
std::optional<Copies> launched_copies(const Variables& variables);

// For a process that is no copy: the variable with the number of tasks that the job of Slurm or
// the script around it has room for, if there are several.
struct Tasks {
  const char* variable;
  int count;
};
std::optional<Tasks> tasks_beside(const Variables& variables);

}  // namespace capstan
