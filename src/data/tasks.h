#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/example.h"

namespace capstan {

// Small tasks on strings and numbers that a model of a million parameters learns in minutes on one
// core, and whose answers are right or wrong: "Reverse: cab\n" → "bac", "Add: 12+7\n" → "19".
//
// A function of the seed alone, of which a smaller count gives the beginning; all kinds in about
// equal parts. Prompts are at most 16 bytes and end in a newline; responses are at most 7. A prompt
// may come again: some kinds have few (there are 1000 sums), and must not thin out as count grows.
std::vector<Example> make_examples(uint64_t seed, int64_t count);

// A kind that is not among those, of the same form: "Mirror: cab\n" → "BAC". What it asks for they
// ask for one at a time: "Reverse" and "Upper".
std::vector<Example> make_mirror_examples(uint64_t seed, int64_t count);

// Whether this prompt is kept for evaluation: about one in ten, by a hash of its text. So nothing
// that is trained on can be among them, whatever the seed and the count.
bool held_out(std::string_view prompt);

// The examples whose prompt is held out, each once, and all others as they came.
struct ExampleSplit {
  std::vector<Example> train, held_out;
};
ExampleSplit split(std::vector<Example> examples);

}  // namespace capstan
