#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/example.h"

namespace capstan {

// Small tasks on strings and numbers that a model of a million parameters learns in minutes on one
// core, with exact answers: "Reverse: cab\n" → "bac", "Add: 12+7\n" → "19".
//
// A function of the seed alone; a smaller count gives a prefix. All kinds are about equally
// frequent. Prompts are at most 16 bytes and end in a newline; responses are at most 7 bytes. A
// prompt may repeat: some kinds have few prompts (there are 1000 sums), and must not become rarer
// as count grows.
std::vector<Example> make_examples(uint64_t seed, int64_t count);

// A kind that is not among those, in the same form: "Mirror: cab\n" → "BAC". It combines two of
// them, "Reverse" and "Upper".
std::vector<Example> make_mirror_examples(uint64_t seed, int64_t count);

// Whether this prompt is held out for evaluation: about one in ten, by a hash of its text. So no
// training prompt is ever held out, for any seed and count.
bool held_out(std::string_view prompt);

// Splits into the examples whose prompt is held out, each once, and all others in their order.
struct ExampleSplit {
  std::vector<Example> train, held_out;
};
ExampleSplit split(std::vector<Example> examples);

}  // namespace capstan
