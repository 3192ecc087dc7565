#pragma once

namespace capstan::cli {

// Sets up the process before anything else runs.
void prepare_process();

}  // namespace capstan::cli
