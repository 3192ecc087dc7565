#pragma once

#include "cli/commands.h"

namespace capstan::cli {

// Sets up the process before anything else runs.
void prepare_process();

// The words after the program's name. Secrets among them are overwritten in argv, where other users
// of the machine can read them (/proc/PID/cmdline).
Arguments take_arguments(int argc, char** argv);

}  // namespace capstan::cli
