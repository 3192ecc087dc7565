#include "tensor/device.h"

#include <gtest/gtest.h>

#include "support/message_of.h"

namespace capstan {
namespace {

TEST(Accelerators, AreNamedAsInLitGpt) {
  EXPECT_EQ(parse_accelerator("cpu"), Device::cpu);
  EXPECT_EQ(parse_accelerator("cuda"), Device::cuda);
  EXPECT_EQ(parse_accelerator("gpu"), Device::cuda);
  EXPECT_EQ(parse_accelerator("auto"), cuda_present() ? Device::cuda : Device::cpu);
  EXPECT_EQ(message_of(Fault::usage, [] { parse_accelerator("tpu"); }),
            "accelerator: 'tpu' is not one of auto, cpu, cuda, gpu");
}

TEST(Accelerators, OneThatIsNotThereIsRefusedWithTheReason) {
  EXPECT_NO_THROW(require_present(Device::cpu));
  std::string_view why;
  if (cuda_present(&why)) {
    EXPECT_NO_THROW(require_present(Device::cuda));
    EXPECT_TRUE(cuda_facts());
    return;
  }
  EXPECT_FALSE(cuda_facts());
  const std::string said = message_of(Fault::device, [] { require_present(Device::cuda); });
  EXPECT_NE(said.find(why), std::string::npos) << said;
  EXPECT_NE(said.find("use --accelerator cpu"), std::string::npos) << said;
}

}  // namespace
}  // namespace capstan
