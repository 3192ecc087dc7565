#pragma once

#include <string>
#include <vector>

#include "cost/choice.h"
#include "cost/need.h"

// Why the first of the ranked choices is first, in sentences.
namespace capstan {

std::vector<std::string> reasons_for(const Where& ranked, const Need& need);
// "24 months", "6 weeks".
std::string length_of(const Need& need);
// Workstation, shared server or cluster, now and when growth makes it another.
std::string growth_of(const Need& need);

}  // namespace capstan
