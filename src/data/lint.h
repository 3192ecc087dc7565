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

// What looks wrong in tokenized data: none of it stops a run, all of it costs quality or time.
struct LintReport {
  int64_t samples = 0;
  LintFinding doubled_bos;     // the text itself begins with the bos token
  LintFinding missing_eos;     // the last token is not learned to be an end, before any cut
  LintFinding all_masked;      // nothing counts for the loss, after the cut
  LintFinding truncated;       // longer than max_seq_length
  LintFinding empty_response;  // teaches to say nothing
  LintFinding duplicate;       // the same tokens as a sample before
  LintFinding joined_input;    // the style has no place for the input
  LintFinding joined_system;   // nor for the system text
  LintFinding first_turn;      // later turns were left out

  bool clean() const;
};

struct LintOptions {
  int64_t max_seq_length = 0;
  // Documents in pieces (text files) need no end each; their repeated pieces are not told.
  bool documents = false;
  std::vector<int32_t> ends = {};  // ids that end an answer, besides eos
};

LintReport lint(const Dataset& dataset, const Tokenizer& tokenizer, const LintOptions& options);
// Of two parts of the same source.
LintReport merge(LintReport a, const LintReport& b);

// One line for each kind that was found, with its count, the first places and what to do.
std::vector<std::string> warnings(const LintReport& report);

}  // namespace capstan
