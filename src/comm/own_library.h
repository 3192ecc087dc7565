#pragma once

namespace capstan {

// A function of one of the program's own libraries, which use what the program itself does without:
// `library` is "mpi" for libcapstan_mpi.so. They are beside the program, or where it is installed.
// Null if the program was built without it. Throws Fault::device if it does not load.
void* function_of_library(const char* library, const char* function);

}  // namespace capstan
