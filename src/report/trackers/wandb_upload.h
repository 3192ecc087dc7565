#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

// Uploads the files of W&B's offline runs with the program `wandb`, which must be on the PATH and
// have an account (`wandb login`).
namespace capstan {

// Runs below a folder, oldest first: folders "offline-run-…".
std::vector<std::filesystem::path> wandb_runs(const std::filesystem::path& folder);

// Whether the whole file of the run was uploaded: `wandb sync` leaves a mark beside it.
bool is_uploaded(const std::filesystem::path& run);

// Runs `wandb sync`, with its words in the run's logs/upload.log. Returns why it failed; nothing if
// the run is there. After `seconds`, or when `stopped` says so, the program is ended.
std::string upload_wandb(const std::filesystem::path& run, double seconds,
                         const std::function<bool()>& stopped = {});

}  // namespace capstan
