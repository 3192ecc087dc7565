#include "cli/command_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/wrapped.h"
#include "recipe/choices.h"
#include "recipe/nearest.h"
#include "tensor/accelerator.h"

namespace capstan::cli {
namespace {

CLI::Validator within(Range range) {
  return {[range](const std::string& text) -> std::string {
            char* end = nullptr;
            const double value = std::strtod(text.c_str(), &end);
            if (!text.empty() && *end == 0 && std::isfinite(value) && value >= range.least &&
                value <= range.most)
              return "";
            const std::string expected = std::isfinite(range.most)
                                             ? fmt::format("from {} to {}", range.least, range.most)
                                             : fmt::format("of {} or more", range.least);
            return fmt::format("expected a number {}, found '{}'", expected, text);
          },
          ""};
}

template <class Number>
void add_number(CLI::App& app, const char* name, Number& value, const char* help, Range range) {
  CLI::Option* const option = app.add_option(name, value, help)->check(within(range));
  if (range.shows_default) option->capture_default_str();
}

// Columns for --help: those of a terminal, within reason, else as many as our sources have.
int64_t help_columns() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? std::clamp<int64_t>(size.ws_col, 60, 120) : 100;
}

// With spaces in lists of choices ("(a|b|c)") that are too long for a line, so that each part fits.
std::string with_short_words(std::string_view text, size_t most) {
  std::string out;
  size_t column = 0;
  while (!text.empty()) {
    const size_t length = std::min(text.find_first_of(" |"), text.size() - 1) + 1;
    const std::string_view part = text.substr(0, length);
    if (column > 0 && column + length > most) {
      out += ' ';
      column = 0;
    }
    out += part;
    column = part.ends_with(' ') ? 0 : column + length;
    text.remove_prefix(length);
  }
  return out;
}

// Breaks long lines of CLI11's help between words. Descriptions continue in their own column, which
// begins after two spaces or more.
std::string wrapped_help(const std::string& help, int64_t columns) {
  std::string out;
  for (size_t at = 0; at < help.size();) {
    const size_t end = std::min(help.find('\n', at), help.size());
    const std::string line = help.substr(at, end - at);
    at = end + 1;
    const size_t name = std::min(line.find_first_not_of(' '), line.size());
    const size_t gap = name > 2 ? 0 : line.find("  ", name);
    const size_t text = name == 0 ? 0 : line.find_first_not_of(' ', gap);
    if (columns_of(line) <= columns || text == std::string::npos)
      out += line + "\n";
    else
      out += wrapped(with_short_words(std::string_view(line).substr(text),
                                      static_cast<size_t>(columns) - text),
                     line.substr(0, text), columns);
  }
  return out;
}

// Where a command being described puts what it has.
CommandInfo*& described() {
  static thread_local CommandInfo* info = nullptr;
  return info;
}

}  // namespace

CommandInfo CommandLine::describe(const Command& command) {
  CommandInfo info;
  described() = &info;
  command.start({});
  described() = nullptr;
  return info;
}

void CommandLine::note(const char* name, const std::string& help, bool takes_value,
                       const std::vector<std::string>& choices) {
  std::string_view names = name;  // "--batch_size,--train.micro_batch_size"
  for (bool more = true; more;) {
    const size_t comma = names.find(',');
    info_.options.push_back({std::string(names.substr(0, comma)), help, takes_value, choices});
    more = comma != std::string_view::npos;
    if (more) names.remove_prefix(comma + 1);
  }
}

CommandLine::CommandLine(std::string summary, std::string usage)
    : info_{usage, summary, {}},
      app_(std::make_unique<CLI::App>(std::move(summary), std::move(usage))) {
  app_->allow_extras();
}
CommandLine::~CommandLine() = default;

void CommandLine::required(const char* name, std::string& value, const char* help) {
  note(name, help);
  app_->add_option(name, value, help)->required();
}
void CommandLine::positional(const char* name, std::string& value, const char* help) {
  note(name, help);
  app_->add_option(name, value, help);
}
void CommandLine::option(const char* name, std::string& value, const char* help) {
  note(name, help);
  app_->add_option(name, value, help)->capture_default_str();
}
void CommandLine::option(const char* name, std::optional<std::string>& value, const char* help) {
  note(name, help);
  app_->add_option(name, value, help);
}
void CommandLine::option(const char* name, int64_t& value, const char* help, Range range) {
  note(name, help);
  add_number(*app_, name, value, help, range);
}
void CommandLine::option(const char* name, uint64_t& value, const char* help, Range range) {
  note(name, help);
  add_number(*app_, name, value, help, range);
}
void CommandLine::option(const char* name, double& value, const char* help, Range range) {
  note(name, help);
  add_number(*app_, name, value, help, range);
}
void CommandLine::choice(const char* name, std::string& value,
                         const std::vector<std::string_view>& choices, const char* help) {
  note(name, help, true, {choices.begin(), choices.end()});
  app_->add_option(name, value, help)
      ->capture_default_str()
      ->check(CLI::IsMember(std::vector<std::string>(choices.begin(), choices.end())));
}
void CommandLine::list(const char* name, std::vector<std::string>& values, const char* help,
                       const char* group) {
  note(name, help);
  CLI::Option* const option = app_->add_option(name, values, help)->allow_extra_args(false);
  if (group != nullptr) option->group(group);
}
void CommandLine::flag(const char* name, bool& value, const char* help, const char* group) {
  note(name, help, false);
  CLI::Option* const option = app_->add_flag(name, value, help);
  if (group != nullptr) option->group(group);
}

void CommandLine::truth(const char* name, bool& value, const char* help) {
  note(name, help, true, {"true", "false"});
  const auto set = [&value](const CLI::results_t& words) {
    const std::string word = words.empty() || words.back() == "{}" ? "" : words.back();
    value = word != "false";
    return word.empty() || word == "true" || word == "false";
  };
  app_->add_option(name, set, help)->expected(0, 1)->type_name("[true|false]");
}

void CommandLine::key(const std::string& name, std::function<void(const std::string&)> set,
                      const std::string& help, const std::string& group,
                      const std::vector<std::string>& choices) {
  note(name.c_str(), help, true, choices);
  app_->get_formatter()->column_width(36);
  const auto note = [set = std::move(set)](const CLI::results_t& values) {
    set(values.empty() ? "" : values.back());
    return true;
  };
  app_->add_option(name, note, help)
      ->group(group)
      ->type_name("")
      ->expected(0, 1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

CommandLine::Known CommandLine::parse_known(const Arguments& arguments) {
  Known known;
  if (described() != nullptr) {
    *described() = info_;
    known.help = true;
    return known;
  }
  try {
    app_->parse(
        Arguments(arguments.rbegin(), arguments.rend()));  // CLI11 takes arguments from the back
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", wrapped_help(app_->help(), help_columns()));
    known.help = true;
  } catch (const CLI::ParseError& e) {
    known.error = e.what();
  }
  known.rest = app_->remaining();
  return known;
}

bool CommandLine::parse(const Arguments& arguments) {
  const Known known = parse_known(arguments);
  if (known.help) return false;
  require(known.error.empty(), Fault::usage, "{}; '{} --help' lists the options", known.error,
          app_->get_name());
  refuse(known.rest);
  return true;
}

// Reports the words that CLI11 could not match.
void CommandLine::refuse(const std::vector<std::string>& words) const {
  if (words.empty()) return;
  const std::string& word = words.front();
  if (!word.starts_with("-"))
    fail(Fault::usage, "'{}': unexpected argument; put a text of several words in quotes", word);
  std::vector<std::string> names;
  for (const CLI::Option* option : std::as_const(*app_).get_options())
    if (!option->get_lnames().empty()) names.push_back("--" + option->get_lnames().front());
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string given = word.substr(0, word.find('='));
  fail(Fault::usage, "{}: no such option{}; '{} --help' lists the options", given,
       did_you_mean(given, views), app_->get_name());
}

void add_sampling(CommandLine& line, GenerateOptions& g) {
  line.option("--max_new_tokens", g.max_new_tokens, "maximum length of each answer", {1});
  line.option("--top_k", g.sampling.top_k, "sample from the k most likely tokens; 0: from all",
              {0});
  line.option("--top_p", g.sampling.top_p,
              "sample from the most likely tokens whose probabilities add up to this", {0, 1});
  line.option("--temperature", g.sampling.temperature,
              "sampling temperature; 0: always the most likely token", {0});
  line.option("--seed", g.seed, "seed for sampling", {0});
}

void add_precision(CommandLine& line, PrecisionWords& words) {
  line.option("--precision", words.precision,
              "32-true, bf16-true or 16-true (default: bf16-true on a GPU that has bf16, else "
              "16-true; on a "
              "CPU bf16-true for a bf16 checkpoint, else 32-true)");
  line.choice("--matmul_precision", words.matmul, names_of<MatmulPrecision>(),
              "matrix products of 32-true on a GPU: high multiplies in TF32, if the GPU has it, "
              "highest in f32");
}

void add_accelerator(CommandLine& line, std::string& accelerator, const char* help) {
  line.choice("--accelerator", accelerator, names_of<Accelerator>(), help);
}

void print_json(const nlohmann::ordered_json& value) {
  fmt::print("{}\n", value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace capstan::cli
