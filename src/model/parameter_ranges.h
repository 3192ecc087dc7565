#pragma once

#include <vector>

#include "model/units.h"

// Lists of ranges, as Parameters makes them.
namespace capstan {

// In the order of the parameters; ranges of one keep their order.
void sort_by_param(std::vector<Range>& ranges);
// Of ranks that share each layer: the same values in ranges that are within one part each.
std::vector<Range> cut_by_parts(const ModelSpec& spec, std::vector<Range> ranges);

}  // namespace capstan
