#pragma once

namespace capstan::cli {

// Lets a process that mpirun started write to mpirun's own stdout and stderr, where these are
// pipes: Open MPI's mpirun passes output on and, when its reader goes away (`mpirun … | head`),
// ends all ranks, but a rank that writes by itself goes on. Does nothing if the parent process is
// not an mpirun, or one that changes what it passes on (--tag-output, --output-filename …).
void write_past_launcher();

}  // namespace capstan::cli
