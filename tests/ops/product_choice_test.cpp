// The choice between our kernel for products of bf16 matrices and cuBLASLt's.
#if CAPSTAN_WITH_CUDA
#include <chrono>
#include <filesystem>

#include "ops/cuda/product/product.h"
#include "ops/reference.h"
#include "support/temp_folder.h"
#include "support/variable.h"
#include "tensor/cuda/calls.h"

namespace capstan::test {
namespace {

namespace fs = std::filesystem;
using cuda::ProductMethod;
using cuda::WgmmaKernel;

bool is_ours(const ProductMethod& method) {
  return std::holds_alternative<WgmmaKernel>(method);
}

std::byte* bytes_of(const Buffer& buffer) {
  return static_cast<std::byte*>(buffer->raw());
}

// Large enough to be measured. Every queue stands for a run of the program.
class ChosenProducts : public testing::TestWithParam<Device> {
 protected:
  static constexpr int64_t M = 256, N = 2048, K = 4096;

  void SetUp() override {
    if (GetParam() != Device::cuda || !Run().context().wgmma()) GTEST_SKIP() << "a Hopper GPU";
  }

  struct Run {
    Arena arena{Arena::Heap{}, Device::cuda};
    Queue q{Device::cuda, arena};
    Buffer x = q.arena().make(Category::data, DType::bf16, {M, K}, "x");
    Buffer w = q.arena().make(Category::data, DType::bf16, {N, K}, "w");
    Buffer y = q.arena().make(Category::data, DType::bf16, {M, N}, "y");
    Buffer workspace = q.scratch(DType::u8, {cuda::kGemmWorkspace}, "workspace");

    cuda::Context& context() { return q.cuda(); }
    // What y = x wᵀ is computed with, of so many rows and sums.
    ProductMethod method(int64_t rows = M, int64_t sums = K) {
      const cuda::Product product(y->rows(0, rows), {x->rows(0, rows).cols(0, sums)},
                                  {w->cols(0, sums), true}, {}, false, false);
      return cuda::method_for(context(), product, bytes_of(workspace));
    }
  };

  TempFolder folder_;
  Variable cache_{"CAPSTAN_CACHE", folder_.path().c_str()};
  Variable on_{"CAPSTAN_MEASURE_PRODUCTS", nullptr};
};
INSTANTIATE_TEST_SUITE_P(Ops, ChosenProducts, testing::ValuesIn(devices_present()), device_name);

TEST(ProductMethods, WhatIsKeptReadsAsItWas) {
  EXPECT_TRUE(is_ours(cuda::method_of(cuda::kept(WgmmaKernel{}))));
  cublasLtMatmulAlgo_t algorithm{};
  algorithm.data[0] = 66;
  const ProductMethod back = cuda::method_of(cuda::kept(algorithm));
  ASSERT_FALSE(is_ours(back));
  EXPECT_EQ(std::get<cublasLtMatmulAlgo_t>(back).data[0], 66u);
}

TEST_P(ChosenProducts, OursIsKeptAndReadBack) {
  Run first, second;
  first.context().favour_wgmma(true);
  EXPECT_TRUE(is_ours(first.method()));
  Run next;
  EXPECT_TRUE(is_ours(next.method())) << "what the first run has kept";
  EXPECT_TRUE(is_ours(next.method(M - 6))) << "lengths that differ by little share it";
  EXPECT_FALSE(is_ours(next.method(M, K - 4))) << "it does not take that";
  EXPECT_TRUE(is_ours(second.method())) << "the file decides, also for who began before";
  const Variable off("CAPSTAN_MEASURE_PRODUCTS", "0");
  EXPECT_FALSE(is_ours(Run().method())) << "the library's first proposal";
}

TEST_P(ChosenProducts, OursIsMeasuredWithTheLibrarysAndTheWinnerStays) {
  bool ours = false;
  fs::path file;
  {
    Run run;
    ours = is_ours(run.method());
    file = run.context().product_cache()->path();
  }
  // What is found is not measured, and not kept, again.
  const auto then = fs::last_write_time(file) - std::chrono::hours(1);
  fs::last_write_time(file, then);
  EXPECT_EQ(is_ours(Run().method()), ours);
  EXPECT_EQ(is_ours(Run().method()), ours);
  EXPECT_EQ(fs::last_write_time(file) == then, true);
}

TEST_P(ChosenProducts, OursCanBeAvoided) {
  Run run;
  run.context().favour_wgmma(true);
  EXPECT_TRUE(is_ours(run.method()));
  run.context().avoid_wgmma(true);
  EXPECT_FALSE(is_ours(run.method()));
  run.context().avoid_wgmma(false);
  EXPECT_TRUE(is_ours(run.method()));
}

TEST_P(ChosenProducts, ADamagedFileIsMeasuredAgain) {
  fs::path file;
  {
    Run run;
    run.context().favour_wgmma(true);
    EXPECT_TRUE(is_ours(run.method()));
    file = run.context().product_cache()->path();
  }
  fs::resize_file(file, fs::file_size(file) - 1);
  Run run;
  run.context().avoid_wgmma(true);
  EXPECT_FALSE(is_ours(run.method()));
  EXPECT_FALSE(is_ours(Run().method())) << "the file has the library's now";
}

// Without our kernel other things were measured, and what we keep would be no algorithm there.
TEST_P(ChosenProducts, ProgramsWithoutOursHaveAnotherFile) {
  Run run;
  const std::string machine =
      fmt::format("{}, {} multiprocessors, cuBLASLt {}", cuda::device_name(),
                  run.context().multiprocessors(), cublasLtGetVersion());
  EXPECT_NE(run.context().product_cache()->path().filename(),
            ProductCache(folder_.path(), machine).path().filename());
}

}  // namespace
}  // namespace capstan::test
#endif
