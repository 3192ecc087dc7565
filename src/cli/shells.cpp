#include "cli/shells.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"
#include "cli/command_line.h"
#include "cli/version.h"

namespace capstan::cli {
namespace {

// What can be typed: "block[:N]" is "block".
std::vector<std::string> words_of(const OptionInfo& option) {
  std::vector<std::string> words;
  for (const std::string& choice : option.choices)
    if (choice != "N") words.push_back(choice.substr(0, choice.find('[')));
  return words;
}

bool is_argument(const OptionInfo& option) {
  return !option.name.starts_with("-");
}

std::string in_single_quotes(const std::string& text) {
  return "'" + replaced(text, "'", "'\\''") + "'";
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& c : commands()) names.emplace_back(c.name);
  return names;
}

std::string bash_script() {
  std::string cases;
  for (const Command& c : commands()) {
    const CommandInfo info = CommandLine::describe(c);
    std::vector<std::string> options = {"--help"};
    std::string values;
    for (const OptionInfo& o : info.options) {
      if (is_argument(o)) continue;
      options.push_back(o.name);
      if (const auto words = words_of(o); !words.empty())
        values += fmt::format("        {}) words={} ;;\n", o.name,
                              in_single_quotes(fmt::format("{}", fmt::join(words, " "))));
      else if (o.takes_value)
        values += fmt::format("        {}) words= ;;\n", o.name);
    }
    cases += fmt::format(
        "    {})\n      options={}\n      case $before in\n{}        *) words=$options ;;\n      "
        "esac ;;\n",
        c.name, in_single_quotes(fmt::format("{}", fmt::join(options, " "))), values);
  }
  return fmt::format(R"(# bash completion for capstan
_capstan() {{
  local here=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words= options=
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W {} -- "$here"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  [[ -n $words && ( $here == -* || $words != "$options" ) ]] && COMPREPLY=($(compgen -W "$words" -- "$here"))
  ((${{#COMPREPLY[@]}})) || COMPREPLY=($(compgen -f -- "$here"))
}}
complete -o filenames -F _capstan capstan
)",
                     in_single_quotes(fmt::format("{}", fmt::join(command_names(), " "))), cases);
}

std::string zsh_script() {
  const auto plain = [](const std::string& text) {
    return replaced(replaced(replaced(replaced(text, "\\", "\\\\"), "'", "'\\''"), "[", "\\["), "]",
                    "\\]");
  };
  const auto in_list = [&](const std::string& text) { return replaced(plain(text), ":", "\\:"); };
  std::string names, cases;
  for (const Command& c : commands()) {
    names += fmt::format("    '{}:{}'\n", c.name, in_list(c.summary));
    std::string options;
    for (const OptionInfo& o : CommandLine::describe(c).options) {
      if (is_argument(o)) continue;
      const auto words = words_of(o);
      options += fmt::format(" \\\n        '{}[{}]{}'", o.name, plain(o.help),
                             !words.empty()  ? fmt::format(":value:({})", fmt::join(words, " "))
                             : o.takes_value ? ":value:_files"
                                             : "");
    }
    cases +=
        fmt::format("    {})\n      _arguments '--help[show the options]'{} '*:file:_files' ;;\n",
                    c.name, options);
  }
  return fmt::format(R"(#compdef capstan
_capstan() {{
  local -a names
  names=(
{}  )
  if ((CURRENT == 2)); then
    _describe command names
    return
  fi
  local command=$words[2]
  shift words
  ((CURRENT--))
  case $command in
{}  esac
}}
_capstan "$@"
)",
                     names, cases);
}

std::string fish_script() {
  const auto quoted = [](const std::string& text) {
    return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
  };
  std::string s = "# fish completion for capstan\n";
  for (const Command& c : commands())
    s += fmt::format("complete -c capstan -n __fish_use_subcommand -a {} -d {}\n", c.name,
                     quoted(c.summary));
  for (const Command& c : commands())
    for (const OptionInfo& o : CommandLine::describe(c).options) {
      if (is_argument(o)) continue;
      s += fmt::format("complete -c capstan -n '__fish_seen_subcommand_from {}' -l {} -d {}",
                       c.name, o.name.substr(2), quoted(o.help));
      if (o.takes_value) s += " -r";
      if (const auto words = words_of(o); !words.empty())
        s += fmt::format(" -f -a {}", quoted(fmt::format("{}", fmt::join(words, " "))));
      s += "\n";
    }
  return s;
}

// A dash would become a hyphen, and a dot or quote that begins a line a request.
std::string roff(const std::string& text) {
  std::string s = replaced(replaced(replaced(text, "\\", "\\e"), "-", "\\-"), "|", "|\\:");
  if (s.starts_with('.') || s.starts_with('\'')) s = "\\&" + s;
  return s;
}

}  // namespace

std::string completion_script(const std::string& shell) {
  if (shell == "bash") return bash_script();
  return shell == "zsh" ? zsh_script() : fish_script();
}

std::string manual_page() {
  std::string s = fmt::format(
      ".TH CAPSTAN 1 \"\" \"capstan {}\" \"User Commands\"\n"
      ".ad l\n.SH NAME\ncapstan \\- train Llama\\-family language models\n"
      ".SH SYNOPSIS\n.B capstan\n.I COMMAND\n[options]\n"
      ".SH DESCRIPTION\n"
      "Capstan trains and fine\\-tunes language models on CPUs and GPUs. It reports before a run "
      "how "
      "much memory the run will need, and then allocates exactly that. Commands, keys and recipes "
      "are those of LitGPT; checkpoints are folders as Hugging Face programs write them.\n"
      ".SH COMMANDS\n",
      roff(CAPSTAN_BUILD));
  for (const Command& c : commands())
    s += fmt::format(".TP\n.B {}\n{}\n", roff(c.name), roff(c.summary));
  for (const Command& c : commands()) {
    const CommandInfo info = CommandLine::describe(c);
    std::string title = c.name;
    std::transform(title.begin(), title.end(), title.begin(),
                   [](unsigned char letter) { return std::toupper(letter); });
    s += fmt::format(".SH {}\n{}\n.PP\n.B {}\n", roff(title), roff(info.summary), roff(info.usage));
    for (const OptionInfo& o : info.options)
      s += fmt::format(".TP\n.B {}\n{}\n", roff(o.name), roff(o.help));
  }
  s += ".SH EXIT STATUS\n"
       "0 on success; 1 for a bug; 2 for a wrong command line or recipe; 3 if the run does not fit "
       "in memory; 4 for a missing, damaged or unwritable file; 5 for a device or library; 6 if "
       "another rank or a server is lost; 128 + N after signal N.\n"
       ".SH ENVIRONMENT\n"
       ".TP\n.B CAPSTAN_CACHE\nfolder for calibrations, the history of runs, tuned products and "
       "cached tokens\n"
       ".TP\n.B HF_TOKEN, HF_ENDPOINT, HF_HOME\nfor capstan download, as for hf download\n"
       ".TP\n.B MLFLOW_TRACKING_URI\nserver for \\-\\-logger_name mlflow\n"
       ".TP\n.B OMP_NUM_THREADS\nthreads that compute on a CPU\n"
       ".SH SEE ALSO\n.BR mpirun (1)\n";
  return s;
}

int completions(const Arguments& arguments) {
  CommandLine line("Prints a script that completes commands and options.",
                   "capstan completions SHELL");
  std::string shell;
  line.required("shell", shell, "bash, zsh or fish");
  if (!line.parse(arguments)) return 0;
  require(shell == "bash" || shell == "zsh" || shell == "fish", Fault::usage,
          "expected bash, zsh or fish, found '{}'", shell);
  fmt::print("{}", completion_script(shell));
  return 0;
}

int man(const Arguments& arguments) {
  CommandLine line("Prints the manual page, as in: capstan man | man -l -", "capstan man");
  if (!line.parse(arguments)) return 0;
  fmt::print("{}", manual_page());
  return 0;
}

}  // namespace capstan::cli
