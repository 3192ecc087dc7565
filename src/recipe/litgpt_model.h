#pragma once

#include <optional>
#include <string_view>

namespace capstan {

// The field of LitGPT's Config that a key means: "n_layer" of "model_config.n_layer"; nothing for
// other keys.
std::optional<std::string_view> model_field(std::string_view key);

}  // namespace capstan
