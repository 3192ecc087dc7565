// Writes the batches that a fine-tuning run takes, so that another program can train on the same:
//
// usage: dump_batches MODEL DATA.json STEPS BATCH LENGTH HELD_OUT_FRACTION > batches.jsonl
//
// with the recipe's other settings as they are by default. One line of JSON per step, with `ids`
// and `labels` of each sample; the last line, `held_out`, has those of the validation set.

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "data/dataset/sampler.h"
#include "recipe/recipe_input.h"
#include "train/setup.h"

namespace {

using namespace capstan;

nlohmann::json samples_of(const HostBatch& batch) {
  auto ids = nlohmann::json::array(), labels = nlohmann::json::array();
  for (size_t d = 0; d + 1 < batch.starts.size(); ++d) {
    const auto from = batch.starts[d], to = batch.starts[d + 1];
    ids.push_back(std::vector<int32_t>(batch.ids.begin() + from, batch.ids.begin() + to));
    labels.push_back(std::vector<int32_t>(batch.labels.begin() + from, batch.labels.begin() + to));
  }
  return {{"ids", ids}, {"labels", labels}};
}

void dump(const std::vector<std::string>& arguments) {
  require(arguments.size() == 6, Fault::usage,
          "expected MODEL DATA.json STEPS BATCH LENGTH HELD_OUT_FRACTION");
  Recipe r = defaults_of(Task::finetune_full);
  r.checkpoint_dir = arguments[0];
  r.data = DataClass::json;
  r.json_path = arguments[1];
  r.global_batch_size = r.micro_batch_size.size = std::stoll(arguments[3]);
  r.max_seq_length = std::stoll(arguments[4]);
  r.val_split_fraction = std::stod(arguments[5]);
  const RunInputs inputs = find_inputs(r, Task::finetune_full);
  const Dataset &train = inputs.data.train, &held = inputs.data.validation;
  const BatchOptions options = batch_options(r, inputs);
  Sampler sampler(train.size(), r.global_batch_size, static_cast<uint64_t>(r.seed));
  MicroBatches batches(train, r.micro_batch_size.size, options);
  for (int64_t step = 0; step < std::stoll(arguments[2]); ++step) {
    batches.start(sampler.ids(step));
    std::cout << samples_of(*batches.next()).dump() << '\n';
  }
  std::vector<int64_t> all(static_cast<size_t>(held.size()));
  std::iota(all.begin(), all.end(), 0);
  HostBatch batch(largest_batch(held, held.size(), options), held.size());
  pack(batch, held, all, options);
  std::cout << nlohmann::json{{"held_out", samples_of(batch)}}.dump() << '\n';
}

}  // namespace

int main(int count, char** arguments) {
  try {
    dump({arguments + 1, arguments + count});
  } catch (const std::exception& e) {
    std::cerr << "dump_batches: " << e.what() << '\n';
    return 1;
  }
  return 0;
}
