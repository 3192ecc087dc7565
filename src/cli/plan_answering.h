#pragma once

#include <string>
#include <vector>

#include "cli/plan_answers.h"
#include "cli/plan_question.h"

// From a question to its answers.
namespace capstan::cli {

// The question of these words, keys of a recipe and what stands for them, as far as it can be
// understood without a machine; false: --help or --print_config was printed.
bool take_words(Question& question, const Arguments& words);
// Plans the question's recipe.
void plan_recipe(Question& question);
// What a plan on the machine of the question says of it: the GPU, what it computes with.
void settle_machine(Question& question);

// `offers`: found already, or none.
Answers answer(Question& question, std::vector<RentedRun> offers);
// What takes longer to answer, for machines of the catalogue.
void answer_more(const Question& question, Answers& answers);

// Why nobody knows how long a step takes.
std::string why_unknown(const Question& question);

}  // namespace capstan::cli
