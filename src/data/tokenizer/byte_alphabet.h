#pragma once

#include <optional>
#include <string>
#include <string_view>

// GPT-2's names for bytes, used by byte-level vocabularies: printable Latin-1 characters are
// themselves, the others map to U+0100, U+0101 … in order. A space is "Ġ".
namespace capstan {

// One character, in UTF-8.
const std::string& name_of_byte(unsigned char byte);

void append_byte_names(std::string& names, std::string_view bytes);

// The bytes that a text in this alphabet encodes; nothing if it has any other character.
std::optional<std::string> bytes_of_names(std::string_view names);

}  // namespace capstan
