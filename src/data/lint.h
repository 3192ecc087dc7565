#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace capstan {

struct LintFinding {
  int64_t count = 0;
  std::vector<std::string> places;  // the first three
};

// Suspicious samples in tokenized data: none of them stops a run, all of them cost quality or time.
struct LintReport {
  int64_t samples = 0;
  LintFinding doubled_bos;     // the text itself begins with the bos token
  LintFinding missing_eos;     // the last target is not an end token, before truncation
  LintFinding all_masked;      // no targets after truncation
  LintFinding truncated;       // longer than max_seq_length
  LintFinding empty_response;  // teaches empty answers
  LintFinding duplicate;       // the same tokens as an earlier sample
  LintFinding joined_input;    // the style has no place for the input
  LintFinding joined_system;   // nor for the system message
  LintFinding first_turn;      // later turns were dropped

  bool clean() const;
};

struct LintOptions {
  int64_t max_seq_length = 0;
  // Chunks of documents (text files) need no end token; repeated chunks are not reported.
  bool documents = false;
  std::vector<int32_t> ends = {};  // end tokens besides eos
};

LintReport lint(const Dataset& dataset, const Tokenizer& tokenizer, const LintOptions& options);
// Merges the findings of two parts of the same source.
LintReport merge(LintReport a, const LintReport& b);

// One line for each kind found: its count, the first places, and advice.
std::vector<std::string> warnings(const LintReport& report);

}  // namespace capstan
