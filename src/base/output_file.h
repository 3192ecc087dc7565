#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// What a command writes where its user says. Nothing that is there already is lost: a file is
// replaced only by one of its kind, and a model is moved aside.
namespace capstan {

// A kind of file that a command writes.
struct OutputKind {
  const char* name;         // in messages: "a plan's page"
  std::string_view begins;  // how every file of the kind begins, white space aside
};

// Throws, before the work whose result goes there, unless a file of this name can be written: it
// does not exist yet, or is empty, or is an earlier output of the kind. `option` is where the name
// came from: "--html".
void require_output(std::string_view option, const std::filesystem::path& file,
                    const OutputKind& kind);

// The same, without trying to write there.
void require_replaceable(std::string_view option, const std::filesystem::path& file,
                         const OutputKind& kind);

// Moves what is in a folder, or below, into its next previous-N, which is returned.
std::filesystem::path move_to_previous(const std::filesystem::path& folder,
                                       std::span<const std::filesystem::path> paths);

}  // namespace capstan
