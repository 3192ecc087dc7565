#include <fmt/format.h>

#include "base/log.h"
#include "base/units.h"
#include "checkpoint/convert_model.h"
#include "cli/command_line.h"
#include "data/tokenizer/tokenizer_folder.h"
#include "train/setup.h"

namespace capstan::cli {

int convert(const Arguments& arguments) {
  CommandLine line("Writes a model as safetensors: in another type, in one file or in shards.",
                   "capstan convert");
  std::string from, to, dtype = "keep", shard = "5GB";
  line.required("from", from, "folder of the model (safetensors or PyTorch pickle)");
  line.required("to", to, "folder to write");
  line.choice("--dtype", dtype, {"keep", "f32", "bf16", "f16"}, "type of the weights");
  line.option("--max_shard_size", shard, "maximum size of a file, such as 5GB, or none");
  if (!line.parse(arguments)) return 0;
  ConvertOptions options;
  if (dtype == "f32") options.dtype = DType::f32;
  if (dtype == "bf16") options.dtype = DType::bf16;
  if (dtype == "f16") options.dtype = DType::f16;
  options.max_shard_bytes = shard == "none" ? INT64_MAX : parse_bytes(shard);
  require(options.max_shard_bytes > 0, Fault::usage,
          "--max_shard_size: expected a size above 0 such as 5GB, or none, found '{}'", shard);
  const std::filesystem::path folder = find_checkpoint_dir(from);
  if (const std::string config = config_with_bos(folder); !config.empty())
    options.replaced[std::string(kTokenizerConfig)] = config;
  convert_model(folder, to, options);
  log::info("written to {}", to);
  return 0;
}

}  // namespace capstan::cli
