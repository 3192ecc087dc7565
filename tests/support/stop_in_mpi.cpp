// Loaded before a program that mpirun starts: the rank CAPSTAN_STOP_RANK stops in the function of
// MPI that CAPSTAN_STOP_IN names, as if it hung there.
#include <dlfcn.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

namespace {

bool has(const char* variable, const char* value) {
  const char* text = std::getenv(variable);
  return text != nullptr && value != nullptr && std::strcmp(text, value) == 0;
}

// The function itself.
template <class Function>
Function* reached(const char* name) {
  if (has("CAPSTAN_STOP_IN", name) && has("CAPSTAN_STOP_RANK", std::getenv("OMPI_COMM_WORLD_RANK")))
    std::raise(SIGSTOP);
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  return reached<int(int*, char***, int, int*)>("MPI_Init_thread")(argc, argv, required, provided);
}

extern "C" int MPI_Finalize() {
  return reached<int()>("MPI_Finalize")();
}
