#pragma once

#include <span>
#include <string>
#include <string_view>

namespace capstan {

// " (did you mean train.max_steps?)": the one of `words` that is most like `word`; empty where none
// is near.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> words);

}  // namespace capstan
