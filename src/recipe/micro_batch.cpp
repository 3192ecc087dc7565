#include "recipe/micro_batch.h"

#include "recipe/scalars.h"

namespace capstan {

std::optional<MicroBatch> MicroBatch::parse(std::string_view text) {
  MicroBatch batch;
  batch.automatic = text == "auto";
  if (batch.automatic) return batch;
  const auto samples = whole_number_of(text);
  if (!samples || *samples < 1) return std::nullopt;
  return MicroBatch(*samples);
}

}  // namespace capstan
