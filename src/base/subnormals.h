#pragma once

namespace capstan {

// From here on, in the calling thread and in those of parallel_for: a number nearer to 0 than the
// least normal one (1.2e-38 for f32) is taken for 0, and a result that would be one is 0. x86
// processors take a hundred times as long for such numbers, and no result depends on them.
// Threads that these start later inherit it.
void flush_subnormals();

}  // namespace capstan
