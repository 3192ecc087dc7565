#include "train/inputs.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/files.h"
#include "base/log.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "data/records/named_sets.h"
#include "data/text_sets.h"
#include "data/tokenizer/rough_tokenizer.h"
#include "data/tokenizer/tokenizer_folder.h"
#include "data/tokenizer/tokenizer_json.h"
#include "model/known_models.h"
#include "recipe/nearest.h"
#include "recipe/recipe_yaml.h"
#include "train/watched_inputs.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

// The data uses the tokenizer's ids, so they override those of the config.
void take_special_ids(ModelConfig& config, const Tokenizer& tokenizer) {
  config.bos_id = tokenizer.bos().value_or(-1);
  config.eos_ids = {tokenizer.eos()};
}

void require_targets(const RunInputs& in) {
  const auto targets = [&](const Dataset& data) { return count(data, in.max_seq_length).targets; };
  require(targets(in.data.train) > 0, Fault::file,
          "training data: every token is masked or truncated, so there is nothing to learn; raise "
          "train.max_seq_length, or set data.mask_prompt false");
  if (in.data.validation.size() > 0 && targets(in.data.validation) == 0)
    log::warn("every token of the validation data ({}) is masked or truncated: validation is off",
              count(in.data.validation.size(), "sample"));
}

constexpr double kTextFraction = 0.05;  // default fraction of text held out

[[noreturn]] void not_known(const std::string& key, const std::string& name) {
  std::string lower = name, why = did_you_mean(name, known_model_names());
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto holds = [&](const char* word) { return lower.find(word) != std::string::npos; };
  if (why.empty() && !holds("llama") && !holds("mistral") && !holds("qwen"))
    why = "; Capstan does not train this family";
  fail(Fault::usage,
       "{}: unknown model '{}'{}. Known names: {}. For another model with one of the architectures "
       "{}, "
       "give the folder with its config.json",
       key, name, why, known_families(), fmt::join(known_architectures(), ", "));
}

void require_there(const std::optional<std::string>& path) {
  std::error_code error;
  require(
      !path || *path == "-" || path->find("://") != std::string::npos || fs::exists(*path, error),
      Fault::file, "{}: no such file or folder; give the path of the data", path.value_or(""));
}

NamedModel model_to_pretrain(const Recipe& r, const Tokenizer* tokenizer) {
  NamedModel m;
  if (r.initial_checkpoint_dir) {
    m.folder = find_checkpoint_dir(*r.initial_checkpoint_dir);
    m.config = read_config(m.folder);
    m.name = m.folder.filename().string();
  } else if (r.model_config) {
    m.config = parse_config(read_text(*r.model_config, 1 << 20), *r.model_config);
    m.name = *r.model_config;
  } else if (r.model_name) {
    const auto known = known_model(*r.model_name);
    if (!known) not_known("model_name", *r.model_name);
    m.config = *known;
    m.name = *r.model_name;
  } else {
    const ByteTokenizer bytes;
    m.config = model_by_sizes(r, tokenizer == nullptr ? bytes : *tokenizer);
    m.name = fmt::format("a Llama of {} and {}", count(r.num_hidden_layers, "layer"),
                         count(r.hidden_size, "channel"));
  }
  return m;
}

void require_checkpoint_dir(const Recipe& r) {
  require(r.checkpoint_dir.has_value(), Fault::usage,
          "checkpoint_dir: expected the folder of a model; give it after the command, or as "
          "--checkpoint_dir FOLDER");
}

NamedModel model_to_tune(const Recipe& r, bool known) {
  require_checkpoint_dir(r);
  NamedModel m;
  m.name = fs::path(*r.checkpoint_dir).lexically_normal().filename().string();
  if (m.name.empty()) m.name = fs::path(*r.checkpoint_dir).parent_path().filename().string();
  if (const auto folder = try_checkpoint_dir(*r.checkpoint_dir)) {
    m.folder = *folder;
    m.config = read_config(m.folder);
    return m;
  }
  if (!known) find_checkpoint_dir(*r.checkpoint_dir);  // throws, with the places searched
  const auto config = known_model(*r.checkpoint_dir);
  if (!config) not_known("checkpoint_dir", m.name);
  m.config = *config;
  return m;
}

// Reads at most a config.json. The vocabulary size does not matter here.
void look_at_model(const Recipe& r) {
  if (!by_sizes(r)) {
    model_to_pretrain(r, nullptr);
    return;
  }
  Recipe sizes = r;
  sizes.vocab_size.reset();
  model_by_sizes(sizes, ByteTokenizer());
}

// The files copied into every checkpoint. If only the folder's name shows that bos is used, the
// copy of tokenizer_config.json says so.
std::vector<ExtraFile> read_tokenizer_files(const fs::path& folder) {
  std::vector<ExtraFile> files;
  const std::string config = config_with_bos(folder);
  for (const fs::path& path : tokenizer_files(folder)) {
    files.push_back(read_extra(folder, path.filename().string()));
    if (files.back().name == kTokenizerConfig && !config.empty()) files.back().contents = config;
  }
  return files;
}

void read_tokenizer(RunInputs& in) {
  const fs::path& folder = in.tokenizer_dir;
  if (folder.empty()) {
    in.tokenizer = std::make_shared<ByteTokenizer>();
    return;
  }
  in.tokenizer_files = read_tokenizer_files(folder);
  in.tokenizer = load_tokenizer(folder);
  in.own_template = chat_template_of(folder);
  require(read_tokenizer_files(folder) == in.tokenizer_files, Fault::file,
          "{}: the tokenizer's files changed while they were read; retry when they are complete",
          folder.string());
}

fs::path tokenizer_folder(const Recipe& r, Task task) {
  if (task != Task::pretrain) {
    require_checkpoint_dir(r);
    const fs::path folder = find_checkpoint_dir(*r.checkpoint_dir);
    require(
        !is_adapter(folder) || fs::exists(folder / "config.json"), Fault::file,
        "{}: is an adapter, not a whole model; merge it with 'capstan merge_lora', then fine-tune "
        "the result",
        folder.string());
    return folder;
  }
  if (r.tokenizer_dir) return find_checkpoint_dir(*r.tokenizer_dir);
  if (r.initial_checkpoint_dir) return find_checkpoint_dir(*r.initial_checkpoint_dir);
  return {};
}

// Contents of prompt_style.yaml, which records how to prompt the model later; empty for plain text,
// and if the default is the same.
std::string prompting_to_record(const Recipe& r, const RunInputs& in) {
  if (in.data.style != nullptr) return prompt_style_yaml(*in.data.style);
  if (!in.data.chat_template) return "";
  if (in.own_template != in.data.chat_template) return prompt_style_yaml(*in.data.chat_template);
  return r.prompt_style ? own_template_yaml() : "";
}

}  // namespace

bool by_sizes(const Recipe& r) {
  return !r.initial_checkpoint_dir && !r.model_config && !r.model_name;
}

ModelConfig model_by_sizes(const Recipe& r, const Tokenizer& tokenizer) {
  require(r.head_dim || r.hidden_size % r.num_attention_heads == 0, Fault::usage,
          "model.hidden_size {} is not a multiple of model.num_attention_heads {}", r.hidden_size,
          r.num_attention_heads);
  ModelConfig c;
  c.vocab = r.vocab_size.value_or(tokenizer.vocab_size());
  c.hidden = r.hidden_size;
  c.intermediate = r.intermediate_size;
  c.layers = r.num_hidden_layers;
  c.heads = r.num_attention_heads;
  c.kv_heads = r.num_key_value_heads.value_or(c.heads);
  c.head_dim = r.head_dim.value_or(c.hidden / c.heads);
  c.max_positions = r.max_positions.value_or(r.max_seq_length.value_or(256));
  c.norm_eps = r.rms_norm_eps;
  c.rope_theta = r.rope_theta;
  take_special_ids(c, tokenizer);
  if (const auto problem = find_problem(c)) {
    const bool derived = problem->key == "head_dim" && !r.head_dim;
    fail(Fault::usage, "config: {}: {}{}", problem->key, problem->message,
         derived
             ? fmt::format(" (head_dim is model.hidden_size / model.num_attention_heads: {} / {})",
                           r.hidden_size, r.num_attention_heads)
             : "");
  }
  return c;
}

NamedModel model_of(const Recipe& r, Task task, const Tokenizer* tokenizer, bool known) {
  const bool pretrain = task == Task::pretrain;
  NamedModel m = pretrain ? model_to_pretrain(r, tokenizer) : model_to_tune(r, known);
  require(task != Task::finetune_lora || r.tie_embeddings.value_or(m.config.tied) == m.config.tied,
          Fault::usage,
          "train.tie_embeddings: {} has {}, and an adapter cannot change that; remove the key, or "
          "use finetune_full",
          m.name, m.config.tied ? "tied embeddings" : "a separate output head");
  if (r.tie_embeddings) m.config.tied = *r.tie_embeddings;
  require(
      task != Task::finetune_lora || !r.lora_head || !m.config.tied, Fault::usage,
      "lora_head: {} shares its output head with the embedding, so an adapter of the head cannot "
      "be merged; set lora_head false, or use finetune_full with train.tie_embeddings false",
      m.name);
  constexpr const char* kGeneration = "generation_config.json";
  std::error_code error;
  if (!m.folder.empty()) m.config_text = read_text(m.folder / "config.json");
  if (!m.folder.empty() && fs::exists(m.folder / kGeneration, error))
    m.generation_config = read_extra(m.folder, kGeneration);
  if (tokenizer == nullptr) return m;
  require_rows_for(*tokenizer, m.config);
  if (pretrain && m.folder.empty()) take_special_ids(m.config, *tokenizer);
  return m;
}

void warn_of_positions(const Recipe& r, const ModelConfig& model) {
  if (r.max_seq_length.value_or(0) > model.max_positions)
    log::warn("train.max_seq_length {}: the model has {}; longer samples are truncated",
              *r.max_seq_length, count(model.max_positions, "position"));
}

int64_t max_seq_length_of(const Recipe& r, const ModelConfig& model) {
  return std::min(r.max_seq_length.value_or(model.max_positions), model.max_positions);
}

namespace {

// Applies data.columns over the default column names of the set.
RecordFields with_columns(RecordFields f, const Recipe& r) {
  const auto put = [](std::string& to, const std::optional<std::string>& given) {
    if (given) to = *given;
    return given.has_value();
  };
  const bool instruction = put(f.instruction, r.column_instruction);
  const bool input = put(f.input, r.column_input);
  const bool output = put(f.output, r.column_output);
  put(f.system, r.column_system);
  const bool messages = put(f.messages, r.column_messages);
  const bool text = put(f.text, r.column_text);
  f.named = instruction || input || output;
  require(f.named + messages + text <= 1, Fault::usage,
          "data.columns: expected the columns of one record format, found several; give "
          "instruction and output, or messages, or text");
  // A column has one role: if another role uses the default input column, there is no input.
  if (!input && (f.input == f.instruction || f.input == f.output)) f.input.clear();
  return f;
}

}  // namespace

DataOptions data_options(const Recipe& r, int64_t max_seq_length) {
  DataOptions o;
  if (r.data == DataClass::text_files) {
    require(r.train_data_path.has_value(), Fault::usage,
            "data.train_data_path: expected a .txt or .jsonl file or a folder of them; give "
            "--data.train_data_path PATH");
    o.kind = DataOptions::Kind::text_files;
    o.path = *r.train_data_path;
    o.validation_path = r.val_data_path.value_or("");
  } else if (is_text_set(r.data)) {
    o = text_set_options(r.data, {r.data_path.value_or(""), r.split_names, r.use_starcoder});
  } else if (r.data == DataClass::json) {
    require(r.json_path.has_value(), Fault::usage,
            "data.json_path: expected a .json, .jsonl or .csv file, or a folder with train and "
            "val; give --data.json_path PATH");
    o.path = *r.json_path;
  } else {
    o = named_set_options(r.data, r.json_path.value_or(""), r.download_dir.value_or("data"));
  }
  o.fields = with_columns(std::move(o.fields), r);
  if (r.prompt_style) o.style = *r.prompt_style;
  if (r.val_split_fraction) o.validation_fraction = r.val_split_fraction;
  o.mask_prompt = r.mask_prompt;
  o.seed = static_cast<uint64_t>(r.data_seed);
  o.max_seq_length = max_seq_length;
  o.cache = r.data_cache;
  return o;
}

LoraOptions lora_options(const Recipe& r) {
  LoraOptions o{.r = r.lora_r,
                .alpha = static_cast<double>(r.lora_alpha),
                .dropout = r.lora_dropout,
                .rslora = r.lora_rslora,
                .query = r.lora_query,
                .key = r.lora_key,
                .value = r.lora_value,
                .projection = r.lora_projection,
                .mlp = r.lora_mlp,
                .head = r.lora_head};
  check_lora(o);
  return o;
}

std::vector<Error> input_errors(const Recipe& r, Task task, const InputCheck& check) {
  std::vector<Error> found;
  const auto look = [&](auto&& at) {
    try {
      at();
      return true;
    } catch (const Error& e) {
      found.push_back(e);
      return false;
    }
  };
  // The tokenizer is in the model's folder unless tokenizer_dir names another. Report a problem
  // with that folder only once.
  const bool own_folder = task == Task::pretrain && r.tokenizer_dir;
  const bool tokenizer = check.plan || look([&] { tokenizer_folder(r, task); });
  if (tokenizer || own_folder)
    look([&] {
      if (task == Task::pretrain)
        look_at_model(r);
      else
        model_to_tune(r, check.plan);
    });
  if (task == Task::finetune_lora) look([&] { lora_options(r); });
  if (!check.data) return found;
  const size_t before = found.size();
  for (const auto* path : {&r.json_path, &r.train_data_path, &r.val_data_path, &r.data_path})
    look([&] { require_there(*path); });
  // A plan does not need the files of named sets. Paths reported above need no second error.
  if (!check.plan && found.size() == before)
    look([&] { data_options(r, max_seq_length_of(r, ModelConfig())); });
  return found;
}

namespace {

// The tokenizer and the model are there.
void read_data(RunInputs& in, const Recipe& r, DataOptions options,
               const DataProgress& progress = {}) {
  in.is_text = options.kind == DataOptions::Kind::text_files;
  if (in.is_text && !options.validation_fraction && options.validation_path.empty())
    options.validation_fraction = kTextFraction;
  options.chat_template = in.own_template;
  in.data = load_data(options, *in.tokenizer, progress);
  for (const std::string& note : in.data.notes) log::info("{}", note);
  warn_of_positions(r, in.model.config);
  require_targets(in);
  if (in.is_text && !r.val_split_fraction && options.validation_path.empty())
    in.data.default_fraction = true;
}

}  // namespace

RunInputs find_inputs(const Recipe& r, Task task) {
  return find_inputs(r, task, {});
}

RunInputs find_inputs(const Recipe& r, Task task, const DataProgress& progress) {
  RunInputs in;
  in.tokenizer_dir = tokenizer_folder(r, task);
  read_tokenizer(in);
  in.model = model_of(r, task, in.tokenizer.get(), false);
  in.max_seq_length = max_seq_length_of(r, in.model.config);
  read_data(in, r, data_options(r, in.max_seq_length), progress);
  return in;
}

RunInputs rough_inputs(const Recipe& r, const NamedModel& model) {
  RunInputs in;
  in.tokenizer = std::make_shared<RoughTokenizer>();
  in.model = model;
  in.max_seq_length = max_seq_length_of(r, in.model.config);
  DataOptions options = data_options(r, in.max_seq_length);
  options.cache = false;
  read_data(in, r, std::move(options));
  return in;
}

std::vector<ExtraFile> extra_files(const Recipe& r, Task task, const RunInputs& in) {
  std::vector<ExtraFile> files;
  if (in.tokenizer_dir.empty()) {
    files.push_back(ExtraFile::text("tokenizer.json", byte_tokenizer_json()));
    files.push_back(ExtraFile::text("tokenizer_config.json", byte_tokenizer_config_json()));
  } else {
    files = in.tokenizer_files;
  }
  if (task != Task::finetune_lora && in.model.generation_config)
    files.push_back(*in.model.generation_config);
  Recipe record = r;
  record.resume = {};  // whether a run was resumed does not change what it computes
  files.push_back(ExtraFile::text("hyperparameters.yaml", recipe_yaml(record, task)));
  if (const std::string prompting = prompting_to_record(r, in); !prompting.empty())
    files.push_back(ExtraFile::text("prompt_style.yaml", prompting));
  return files;
}

}  // namespace capstan
