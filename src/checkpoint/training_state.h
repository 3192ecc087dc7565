#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace capstan {

// Where a run is, beyond its weights and moments: training_state/state.json. Every number comes
// back bit for bit.
struct TrainingState {
  int64_t step = 0;  // optimizer steps done
  uint64_t seed = 0;
  double epoch = 0;
  int64_t samples = 0;  // seen so far, as are the next three
  int64_t tokens = 0;   // without padding
  int64_t padding = 0;
  int64_t targets = 0;
  double seconds = 0;               // of training, over all parts of the run, as are the next two
  double eval_seconds = 0;          // earlier versions have none of these three
  double save_seconds = 0;          // without the save that writes this
  int64_t started = 0;              // seconds since 1970, of the first part; 0: not known
  int64_t dataset_samples = 0;      // of the training set
  std::string dataset_fingerprint;  // any text; equal text means equal samples
  // Beside adapters, of the frozen weights; earlier versions have none.
  std::optional<std::string> base_fingerprint;
  // What decides the bits of the results beside all this: the GPU, or the processor, its threads
  // and the kernels of its BLAS. Earlier versions have none.
  std::optional<std::string> computed_on;
  std::optional<double> first_loss;  // absent, too, where they are not finite
  std::optional<double> last_loss;
  std::optional<double> val_loss;
  std::string recipe;  // its text

  bool operator==(const TrainingState&) const = default;
};

std::string state_json(const TrainingState& state);
// Throws Fault::file as "where:line:column: …" for anything that state_json does not write.
TrainingState parse_state(std::string_view text, std::string_view where);

inline constexpr std::string_view kStateFile = "training_state/state.json";
inline constexpr std::string_view kOptimizerFile = "training_state/optimizer.safetensors";

// The state of a checkpoint's folder. A model without one (from Hugging Face) is an error that says
// so.
TrainingState read_state(const std::filesystem::path& dir);

}  // namespace capstan
