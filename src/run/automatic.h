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
// sample. A resumed run takes what its checkpoint was made with. strategy auto of several ranks:
// the fastest of those that fit, if the machine was measured, else it stays, which is zero3.
Recipe resolve_automatic(const Recipe& recipe, Task task, const RunInputs& inputs,
                         const Communicator& group);

}  // namespace capstan
