#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace capstan {

// The shapes of published models, to plan a run without downloading anything.
//
// Looks up the last component of a folder or repository name, ignoring case: "Llama-3.2-1B",
// "checkpoints/meta-llama/Llama-3.2-1B-Instruct". Takes the longest name of the table that is a
// prefix of it and ends at its end or at a '-', '_' or '.': variants ("-Instruct", "-hf") share the
// shape of their base model.
std::optional<ModelConfig> known_model(std::string_view name);

std::vector<std::string_view> known_model_names();
// Where on the Hugging Face Hub a model is published, and a name by which known_model() finds it.
struct KnownRepository {
  std::string_view repository, model;
  std::optional<DType> dtype = {};  // if its files have another type than the model's first ones
};
std::span<const KnownRepository> known_repositories();
// The known families, for a message: "Llama 1 to 3.3, …".
std::string_view known_families();

}  // namespace capstan
