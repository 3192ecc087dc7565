#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace capstan {

enum class Severity { ok, note, problem };
std::string_view name_of(Severity severity);

// One line: what was checked, what was found and, if it is not ok, what to do.
struct Finding {
  Severity severity = Severity::ok;
  std::string about, text, advice;
};

// A growing list of findings.
struct Findings {
  std::vector<Finding> found;

  void say(Severity severity, std::string about, std::string text, std::string advice) {
    found.push_back({severity, std::move(about), std::move(text), std::move(advice)});
  }
  void ok(std::string about, std::string text) {
    say(Severity::ok, std::move(about), std::move(text), "");
  }
  void note(std::string about, std::string text, std::string advice) {
    say(Severity::note, std::move(about), std::move(text), std::move(advice));
  }
  void problem(std::string about, std::string text, std::string advice) {
    say(Severity::problem, std::move(about), std::move(text), std::move(advice));
  }
};

}  // namespace capstan
