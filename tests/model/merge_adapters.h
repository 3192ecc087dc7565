#pragma once

#include "model/adapter.h"
#include "ops/elementwise.h"

namespace capstan::test {

// Folds the adapters into the stored weights, rounded once, and sets their B to zero: the model
// computes the same.
inline void merge_adapters(Queue& q, Parameters& params) {
  MergedWeights merged(q, params);
  const ModelSpec& spec = params.spec();
  for (int i = 0; i < params.count(); ++i)
    for (int k = 0; merged.differs(i) && k < int(spec.params[size_t(i)].parts.size()); ++k) {
      const Part& part = spec.params[size_t(i)].parts[size_t(k)];
      cast(q, params.stored(i).rows(part.first_row, part.rows), merged.part(i, k));
    }
  for (int i = 0; i < params.count(); ++i)
    if (const Param& p = spec.params[size_t(i)]; p.adapter && p.init == Init::zeros)
      fill(q, params.stored(i), 0);
  params.refresh_weights(q);
}

}  // namespace capstan::test
