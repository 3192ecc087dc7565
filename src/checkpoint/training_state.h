#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace capstan {

// The progress of a run, besides its weights and moments: training_state/state.json. Every number
// round-trips bit for bit.
struct TrainingState {
  int64_t step = 0;  // optimizer steps done
  uint64_t seed = 0;
  double epoch = 0;
  int64_t samples = 0;  // seen so far; so are the next three
  int64_t tokens = 0;   // without padding
  int64_t padding = 0;
  int64_t targets = 0;
  double seconds = 0;               // training time over all parts of the run; so are the next two
  double eval_seconds = 0;          // missing in earlier versions, like the next two
  double save_seconds = 0;          // without the save that writes this
  int64_t started = 0;              // seconds since 1970, of the first part; 0: unknown
  int64_t dataset_samples = 0;      // of the training set
  std::string dataset_fingerprint;  // any text; equal texts mean equal samples
  // For adapters: fingerprint of the frozen weights; missing in earlier versions.
  std::optional<std::string> base_fingerprint;
  // … and a checksum of all of their bytes, which is known if they were read by then; missing in
  // earlier versions.
  std::optional<std::string> base_checksum;
  // What else determines the bits of the results: the GPU, or the processor, its threads and BLAS
  // kernels. Missing in earlier versions.
  std::optional<std::string> computed_on;
  // … and the order in which ranks add their gradients. Earlier versions lack it, and have the
  // number of ranks in computed_on.
  std::optional<std::string> order_of_sums;
  std::optional<double> first_loss;  // absent also if not finite
  std::optional<double> last_loss;
  std::optional<double> val_loss;
  // The lowest, if the run looks for it; the step after which it was; and validations since then.
  std::optional<double> best_val_loss;
  int64_t best_step = 0, validations_since = 0;
  // In f16: the factor of the loss, and good steps since it changed (optim/loss_scale.h).
  std::optional<double> loss_scale;
  int64_t loss_scale_steps = 0;
  std::string recipe;  // its text

  bool operator==(const TrainingState&) const = default;
};

std::string state_json(const TrainingState& state);
// Throws Fault::file as "where:line:column: …" for anything that state_json does not write.
TrainingState parse_state(std::string_view text, std::string_view where);

inline constexpr std::string_view kStateFile = "training_state/state.json";
inline constexpr std::string_view kOptimizerFile = "training_state/optimizer.safetensors";

// The state in a checkpoint's folder. For a model without one (from Hugging Face) the error says
// so.
TrainingState read_state(const std::filesystem::path& dir);

}  // namespace capstan
