#include "checkpoint/training_checkpoint.h"

#include <charconv>

#include "base/json_text.h"
#include "checkpoint/load_with_sums.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/stored_parts.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

std::string metadata(const SafetensorsFile& file, const char* key) {
  const auto it = file.header().metadata.find(key);
  require(it != file.header().metadata.end(), Fault::file,
          "{}: expected {} in the metadata, found none", file.path().string(), in_quotes(key));
  return it->second;
}

int64_t steps_of(const SafetensorsFile& file) {
  const std::string text = metadata(file, "steps");
  int64_t steps = -1;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), steps).ptr;
  require(end == text.data() + text.size() && steps >= 0, Fault::file,
          "{}: steps: expected a whole number, found {}", file.path().string(), in_quotes(text));
  return steps;
}

}  // namespace

TrainingState load_checkpoint(Queue& q, Parameters& params, Optimizer& optimizer,
                              const fs::path& dir) {
  return load_checkpoint(q, params, optimizer, dir, nullptr);
}

TrainingState load_checkpoint(Queue& q, Parameters& params, Optimizer& optimizer,
                              const fs::path& dir, WeightSums* sums) {
  const TrainingState state = read_state(dir);
  const Rows rows = saved_rows(params.spec());
  const ModelFolder folder =
      rows == Rows::adapters ? ModelFolder::of_adapter(dir) : ModelFolder(dir);
  if (rows == Rows::adapters) check_adapter_config(params, dir);
  check_weights(params, rows, folder, dir);
  const auto weights = stored_parts(params, rows);
  const std::string other =
      differences(weights, folder.tensors(),
                  {.same_type = true, .may_ignore = [](const auto&) { return true; }});
  require(other.empty(), Fault::file,
          "{}: was saved in another precision than {}: {}; resume with the precision of the run",
          dir.string(), name_of(params.precision()), other);

  std::error_code error;
  require(fs::exists(dir / kOptimizerFile, error), Fault::file,
          "{}: expected the moments of the optimizer, found none; a run cannot resume from this "
          "folder, but a new one can start from its weights",
          (dir / kOptimizerFile).string());
  const SafetensorsFile file(dir / kOptimizerFile);
  const std::string kind = metadata(file, "optimizer");
  require(kind == name_of(optimizer.options().kind), Fault::file,
          "{}: expected the moments of {}, found those of {}; resume with the optimizer of the run",
          file.path().string(), name_of(optimizer.options().kind), in_quotes(kind));
  TensorEntries found;
  for (const StoredTensor& t : file.tensors()) found[t.name] = {&file, &t};
  const auto moments = optimizer.state();
  const std::string problems = differences(moments, found, {.same_type = true, .may_ignore = {}});
  require(problems.empty(), Fault::file,
          "{}: the moments do not match this run's {}: {}; resume with the optimizer and the "
          "precision of the run",
          file.path().string(), kind, problems);
  const int64_t steps = steps_of(file);

  read_tensors(q, weights, folder.tensors(), sums);
  read_tensors(q, moments, found);
  if (q.device() != Device::sim) params.refresh_weights(q);
  optimizer.restore(steps);
  return state;
}

}  // namespace capstan
