#include "comm/nccl_library.h"

#include "base/error.h"
#include "comm/own_library.h"
#include "comm/transport.h"

namespace capstan {

Communicator over_nccl(const Communicator& processes, std::chrono::steady_clock::duration timeout) {
  if (processes.size() == 1) return processes;
  using Start = Transport* (*)(const Communicator&, double);
  const auto start = reinterpret_cast<Start>(function_of_library("nccl", "capstan_start_nccl"));
  require(start != nullptr, Fault::device,
          "processes that mpirun started train on GPUs with NCCL, but this program was built "
          "without it; install libnccl-dev and build again, or start one process with --devices");
  const double seconds = std::chrono::duration<double>(timeout).count();
  return Communicator(std::shared_ptr<Transport>(start(processes, seconds)));
}

}  // namespace capstan
