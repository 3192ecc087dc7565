#pragma once

#include <string>

#include "cli/commands.h"
#include "cli/plan_variants.h"
#include "plan/mesh_search.h"

// What `capstan plan --search` prints.
namespace capstan::cli {

// The command that trains with this mesh: the words of the plan, without the keys that the search
// chose, and those.
std::string command_of(const MeshPlan& plan, const Arguments& words, Task task);
std::string command_of(const VariantPlan& plan, const Arguments& words);
// The words with these keys in the place of their own.
std::string command_of(const Arguments& words,
                       const std::vector<std::pair<std::string, std::string>>& keys, Task task,
                       const TrainOptions& options);

void print_search_text(const MeshQuestion& question, const MeshSearch& found,
                       const Planned& planned, const std::string& command);
void print_search_json(const MeshQuestion& question, const MeshSearch& found,
                       const Planned& planned, const std::string& command, const Arguments& words,
                       const std::vector<VariantPlan>& others);

}  // namespace capstan::cli
