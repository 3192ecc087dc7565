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

TEST(Accelerators, AThreadChoosesAGpuThatIsThere) {
  if (!cuda_present()) {
    EXPECT_EQ(gpu_count(), 0);
    EXPECT_THROW(use_gpu(0), Error);
    return;
  }
  ASSERT_GT(gpu_count(), 0);
  EXPECT_EQ(gpu_index(), 0);
  use_gpu(gpu_count() - 1);
  EXPECT_EQ(gpu_index(), gpu_count() - 1);
  use_gpu(0);
  for (const int none : {-1, gpu_count()}) {
    const std::string said = message_of(Fault::device, [&] { use_gpu(none); });
    EXPECT_NE(said.find("CUDA_VISIBLE_DEVICES"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace capstan
