#pragma once

namespace capstan::cli {

// Sets up the process before anything else runs. May re-execute it with the same arguments.
void prepare_process(char** argv);

}  // namespace capstan::cli
