#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace capstan {

// The shapes of published models, so that a run can be planned with nothing downloaded.
//
// Found by the last part of a folder's or repository's name, whatever its case: "Llama-3.2-1B",
// "checkpoints/meta-llama/Llama-3.2-1B-Instruct". The longest name of the table that the given one
// begins with, up to the end or a '-', '_' or '.', is taken: variants ("-Instruct", "-hf") share
// their base's shape.
std::optional<ModelConfig> known_model(std::string_view name);

std::vector<std::string_view> known_model_names();
// Whose models these are, for a message: "Llama 1 to 3.3, …".
std::string_view known_families();

}  // namespace capstan
