#pragma once

#include <string>

// Completions and the manual, made from the options that the commands have.
namespace capstan::cli {

// "bash", "zsh" or "fish".
std::string completion_script(const std::string& shell);
// The page capstan(1), in the form that `man` reads.
std::string manual_page();

}  // namespace capstan::cli
