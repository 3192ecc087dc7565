#pragma once

#include <string>
#include <string_view>

namespace capstan {

// A URL as it may be shown: "https://name:password@host/" becomes "https://***@host/". Takes any
// text.
std::string without_password(std::string_view url);

}  // namespace capstan
