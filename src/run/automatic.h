#pragma once

#include "comm/communicator.h"
#include "recipe/recipe.h"
#include "train/setup.h"

namespace capstan {

// The recipe with numbers for what it leaves to the program. All ranks of the group call it, and
// get the same.
//
// train.micro_batch_size auto: powers of two that divide train.global_batch_size are tried on
// `sim`, as `capstan plan` does. If this machine was measured (`capstan bench`), the one with the
// shortest step that fits is taken, else the largest that needs no more recomputation than one
// sample. A resumed run takes what its checkpoint was made with. matmul_precision null: as in the
// checkpoint that is resumed (f32, where that does not say), else high if 32-true can multiply in
// TF32 on the GPUs of all ranks, else highest. strategy auto of several ranks: the fastest of those
// that fit, if the machine was measured, or by the data sheets of GPUs that were not; else it
// stays, which is zero3. A run that is resumed keeps its bits, if it can: on devices like those of
// its checkpoint it has a strategy that adds gradients in the same order.
Recipe resolve_automatic(const Recipe& recipe, Task task, const RunInputs& inputs,
                         const Communicator& group);

}  // namespace capstan
