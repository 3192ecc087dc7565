#pragma once

#include <utility>

#include "train/doctor.h"

namespace capstan {

// A list of them that grows.
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

// The part of judge() that is about drivers and cards.
void judge_gpus(const MachineFacts& facts, Findings& to);

}  // namespace capstan
