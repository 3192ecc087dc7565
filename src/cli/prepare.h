#pragma once

namespace capstan::cli {

// What a process must settle before it does anything. May start it anew, with the same arguments.
void prepare_process(char** argv);

}  // namespace capstan::cli
