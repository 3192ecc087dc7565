#pragma once

#include <span>
#include <string>
#include <string_view>

// Commands that are shown to be copied: a POSIX shell must read them as the words that they are
// made of, whatever is in a path.
namespace capstan {

// A word as it is typed: in quotes unless every character stands for itself.
std::string in_shell(std::string_view word);
// A command of these words.
std::string in_shell(std::span<const std::string> words);

// A text as a literal of Python, in single quotes.
std::string in_python(std::string_view text);

}  // namespace capstan
