#pragma once

#include <optional>
#include <string>
#include <string_view>

// Keys as LitGPT's recipes write them, and those of theirs that are not here.
namespace capstan {

// The short form of a key: LitGPT's recipes write classes as class_path and init_args
// ("optimizer.init_args.lr"), and a model's sizes under names of their own
// ("model_config.n_layer"). Other keys come back as they are.
std::string short_key(std::string_view key);

// The field of LitGPT's Config that a key means: "n_layer" of "model_config.n_layer"; nothing for
// other keys.
std::optional<std::string_view> model_field(std::string_view key);

// Whether the key is an argument of PyTorch's or LitGPT's that is not here, with the value by which
// it does nothing there ("optimizer.amsgrad", "false").
bool changes_nothing(std::string_view key, std::string_view value);

// Why an argument of bitsandbytes' optimizers cannot be set: "is always false". Empty for other
// keys.
std::string_view why_fixed(std::string_view key);

}  // namespace capstan
