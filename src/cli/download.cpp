#include "hub/download.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

#include "base/log.h"
#include "base/shell_words.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/units.h"
#include "base/url.h"
#include "cli/command_line.h"
#include "model/known_models.h"
#include "model/spec.h"
#include "recipe/nearest.h"
#include "recipe/scalars.h"
#include "report/bar.h"
#include "report/progress.h"
#include "train/setup.h"

namespace capstan::cli {
namespace {

namespace fs = std::filesystem;

// Bytes of a GPU for the first step of a fine-tuning as it is without options.
int64_t memory_to_train(const ModelConfig& config, Task task, Quantize quantize) {
  Recipe r = defaults_of(task);
  r.precision = Precision::bf16_true;
  r.micro_batch_size = 1;
  r.max_seq_length = 512;
  if (quantize != Quantize::none) r.quantize = quantize;
  TrainOptions o = worst_case_options(r, task, config);
  o.device = Device::cuda;
  return Trainer::plan(o).device.total_bytes;
}

int list_models() {
  fmt::print("{:<52}{:>10}{:>12}{:>11}{:>11}{:>11}\n", "name", "parameters", "download", "full",
             "LoRA", "QLoRA");
  for (const KnownRepository& known : known_repositories()) {
    const ModelConfig config = *known_model(known.model);
    const int64_t parameters = make_spec(config).parameter_count();
    const auto memory = [&](Task task, Quantize quantize = Quantize::none) {
      return format_bytes(memory_to_train(config, task, quantize));
    };
    fmt::print("{:<52}{:>10}{:>12}{:>11}{:>11}{:>11}\n", known.repository,
               format_count(static_cast<double>(parameters)),
               format_bytes(parameters * size_of(known.dtype.value_or(config.dtype))),
               memory(Task::finetune_full), memory(Task::finetune_lora),
               memory(Task::finetune_lora, Quantize::nf4));
  }
  fmt::print(
      "\nThe last three columns are the GPU memory that fine-tuning takes: bf16-true, AdamW, one "
      "sample of\n512 tokens at a time. 'capstan plan' says it for a recipe of yours. Other "
      "models of these\narchitectures can be downloaded, too.\n");
  return 0;
}

// What a person sees of a download: a line for each file that is complete, and on a terminal a bar
// for all, with the files that are arriving.
class Display {
 public:
  explicit Display(const Download& download) : download_(download), terminal_(can_redraw()) {
    for (const Download::File& f : download.files())
      if (f.state == Download::File::State::complete) told_.insert(f.what.path);
  }
  ~Display() { log::clear_bar(); }

  void tick() {
    for (const Download::File& f : download_.files())
      if (f.state == Download::File::State::complete && told_.insert(f.what.path).second)
        log::say("  {:<44} {:>10}  verified", f.what.path, format_bytes(f.what.bytes));
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now - drawn_ < std::chrono::milliseconds(100)) return;
    drawn_ = now;
    log::draw_bar(bar());
  }

  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  double rate() const {
    const double seconds = this->seconds();
    const auto bytes = static_cast<double>(download_.have_bytes() - download_.earlier_bytes());
    return seconds > 0 ? std::max(0.0, bytes / seconds) : 0;
  }

 private:
  std::string bar() const {
    const auto have = static_cast<double>(download_.have_bytes());
    const auto total = static_cast<double>(download_.total_bytes());
    const double rate = this->rate();
    std::string text = fmt::format(
        "{:3.0f}%|{}| {} of {}, {}/s, {} left", 100 * have / std::max(1.0, total),
        block_bar(have / std::max(1.0, total), 16), format_bytes(have), format_bytes(total),
        format_bytes(rate), format_duration(rate > 0 ? (total - have) / rate : -1));
    const auto columns = static_cast<size_t>(std::max(20, terminal_columns()));
    size_t width = text.size() - 2 * 16;  // blocks have three bytes
    for (const Download::File& f : download_.files()) {
      if (f.state != Download::File::State::running) continue;
      const std::string one = fmt::format(
          "  {} {:.0f}%", f.what.path,
          100 * static_cast<double>(f.have) / std::max(1.0, static_cast<double>(f.what.bytes)));
      if (width + one.size() >= columns) break;
      width += one.size();
      text += one;
    }
    return text;
  }

  const Download& download_;
  bool terminal_;
  std::set<std::string> told_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), drawn_ = {};
};

// "TinyLlama-1.1B" -> "TinyLlama/TinyLlama-1.1B-…", as the list of known models has it.
std::string repository_of(std::string name) {
  while (name.ends_with('/')) name.pop_back();
  if (name.starts_with("checkpoints/")) name = name.substr(12);
  if (name.find('/') != std::string::npos) return name;
  for (const KnownRepository& known : known_repositories())
    if (name == known.model || known.repository.substr(known.repository.find('/') + 1) == name) {
      log::info("{} is {}", name, known.repository);
      return std::string(known.repository);
    }
  return name;
}

std::string suggestion(const std::string& repository) {
  std::vector<std::string_view> names;
  for (const KnownRepository& known : known_repositories()) names.push_back(known.repository);
  if (std::find(names.begin(), names.end(), repository) != names.end()) return "";
  return did_you_mean(repository, names);
}

void say_what_it_is(const fs::path& folder, bool has_weights) {
  const fs::path config = folder / "config.json";
  if (!fs::exists(config)) return;
  try {
    const ModelConfig model = read_config(folder);
    log::say("{}: {}, {} parameters", folder.string(), model.architecture,
             format_count(static_cast<double>(make_spec(model).parameter_count())));
    if (has_weights)
      log::say("next: capstan finetune {} --data JSON --data.json_path my_data.json",
               in_shell(folder.string()));
  } catch (const Error& e) {
    log::warn("Capstan cannot train this model: {}", e.what());
  }
}

// "name" or "owner/name", of the characters that the Hub allows: a folder gets this name.
bool is_repository(std::string_view name) {
  const size_t slash = name.find('/');
  const auto good = [](std::string_view part) {
    return !part.empty() && part.front() != '.' && part.find("..") == std::string_view::npos &&
           part.find_first_not_of(
               "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
               std::string_view::npos;
  };
  return slash == std::string_view::npos
             ? good(name)
             : good(name.substr(0, slash)) && good(name.substr(slash + 1));
}

}  // namespace

int download(const Arguments& arguments, const StopToken& stop) {
  CommandLine line("Downloads a model from the Hugging Face Hub into checkpoints/NAME.",
                   "capstan download NAME");
  double timeout = HubAccess().timeout;
  std::string name, folder = "checkpoints", token;
  DownloadOptions options;
  int64_t at_once = options.at_once;
  bool list = false;
  line.positional("name", name, "repository of the model, such as TinyLlama/TinyLlama_v1.1");
  line.flag("--list", list, "show the known models, and what each needs to train");
  line.option("--checkpoint_dir", folder, "folder in which checkpoints are");
  line.option("--revision", options.revision, "branch, tag or commit");
  line.truth("--tokenizer_only", options.tokenizer_only, "configuration and tokenizer, no weights");
  line.option("--access_token", token,
              "token of your account, for restricted models (without it: HF_TOKEN, or the file "
              "that 'hf auth login' wrote)");
  line.option("--at_once", at_once, "files that are downloaded at the same time",
              {.least = 1, .most = 64});
  line.option("--timeout", timeout,
              "seconds without a byte after which a connection is tried again",
              {.least = 1, .most = 3600});
  if (!line.parse(arguments)) return 0;
  if (list || name == "list") return list_models();
  require(!name.empty(), Fault::usage,
          "expected the name of a model, such as 'capstan download TinyLlama/TinyLlama_v1.1'; "
          "'capstan download --list' shows the known ones");
  HubAccess access = hub_access();
  access.timeout = timeout;
  if (!token.empty()) {
    access.token = token;
    log::info(
        "--access_token: shells keep a command line, and others on this machine could read it "
        "before the program hid it; set HF_TOKEN instead, or log in with 'hf auth login'");
  }
  if (!access.token.empty() && is_open_to_others(access.endpoint))
    log::warn(
        "{} is plain http: the token and what is downloaded can be read and changed on the way; "
        "use https",
        without_password(access.endpoint));
  options.repository = repository_of(name);
  require(is_repository(options.repository), Fault::usage,
          "{}: expected the name of a repository, such as TinyLlama/TinyLlama_v1.1", name);
  options.folder = fs::path(folder) / options.repository;
  options.at_once = static_cast<int>(at_once);
  const std::string offline = environment_value("HF_HUB_OFFLINE");
  require(offline.empty() || !truth_of(offline == "1" ? "true" : offline).value_or(false),
          Fault::usage, "HF_HUB_OFFLINE is {}, so nothing is downloaded; unset it", offline);

  const Note note = [](const std::string& text) { log::warn("{}", text); };
  try {
    Download download(access, options, note, stop);
    log::say("{} at {}: {}, {}{}", options.repository, download.commit().substr(0, 12),
             count(std::ssize(download.files()), "file"), format_bytes(download.total_bytes()),
             download.earlier_bytes() == 0
                 ? ""
                 : fmt::format(", {} of them here", format_bytes(download.earlier_bytes())));
    Display display(download);
    download.run([&] { display.tick(); });
    const int64_t arrived = download.have_bytes() - download.earlier_bytes();
    log::clear_bar();
    if (arrived > 0)
      log::say("downloaded {} in {} ({}/s)", format_bytes(arrived),
               format_duration(display.seconds()), format_bytes(display.rate()));
    else
      log::say("everything is here already");
  } catch (const Error& e) {
    if (const int signal = stop.signal(); signal != 0) {
      log::warn("interrupted; the same command goes on from here");
      return 128 + signal;
    }
    const bool unknown = std::string_view(e.what()).find(": not found at ") != std::string::npos;
    if (!unknown) throw;
    const std::string near = suggestion(options.repository);
    fail(e.fault(), "{}{}", e.what(),
         near.empty() ? "; 'capstan download --list' shows known models" : near);
  }
  say_what_it_is(options.folder, !options.tokenizer_only);
  return 0;
}

}  // namespace capstan::cli
