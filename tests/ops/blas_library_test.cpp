#include "ops/cpu/blas_library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "ops/cpu/blas.h"
#include "support/message_of.h"
#include "support/variable.h"

namespace capstan::cpu {
namespace {

using ChosenBy = BlasLibrary::ChosenBy;

constexpr Vectors kOld{.avx = true};
constexpr Vectors kAvx2{.avx = true, .avx2 = true};
constexpr Vectors kAvx512{.avx = true, .avx2 = true, .avx512 = true};

TEST(BlasKernels, AreTheWidestForAProcessorThatOpenBlasDoesNotKnow) {
  EXPECT_EQ(faster_kernels("Prescott", kAvx512), "SkylakeX");
  EXPECT_EQ(faster_kernels("Prescott", kAvx2), "Haswell");
  EXPECT_EQ(faster_kernels("Sandybridge", kAvx2), "Haswell");
  EXPECT_EQ(faster_kernels("Prescott", kOld), "");
  EXPECT_EQ(faster_kernels("armv8", {.armv82 = true}), "");
}

TEST(BlasKernels, AreOpenBlassOwnForAProcessorThatItKnows) {
  for (const char* known : {"Haswell", "Zen", "SkylakeX", "Cooperlake", "SapphireRapids"})
    for (const Vectors& vectors : {kAvx2, kAvx512}) EXPECT_EQ(faster_kernels(known, vectors), "");
}

TEST(BlasKernels, RunWhereTheirVectorsAre) {
#if defined(__aarch64__)
  EXPECT_TRUE(can_run("armv8", {}));
  EXPECT_FALSE(can_run("neoversen1", {}));
  EXPECT_TRUE(can_run("neoversen1", {.armv82 = true}));
  EXPECT_FALSE(can_run("Prescott", kAvx512));
#else
  EXPECT_TRUE(can_run("Prescott", {}));
  EXPECT_FALSE(can_run("Sandybridge", {}));
  EXPECT_TRUE(can_run("Zen", kAvx2));
  EXPECT_FALSE(can_run("Haswell", kOld));
  EXPECT_FALSE(can_run("SkylakeX", kAvx2));
  EXPECT_TRUE(can_run("SkylakeX", kAvx512));
  EXPECT_FALSE(can_run("neoversen1", kAvx512));
#endif
  EXPECT_FALSE(can_run("Bulldozer", kAvx512)) << "has instructions of its maker's alone";
  EXPECT_FALSE(can_run("", kAvx512));
}

// Before every test: the user has chosen nothing.
class FakeOpenBlas : public testing::Test {
 protected:
  const Variable no_choice{"OPENBLAS_CORETYPE", nullptr};
  const Variable threads{"OPENBLAS_NUM_THREADS", "3"};
};

#if defined(__x86_64__)

TEST_F(FakeOpenBlas, TakesTheWidestKernelsThatItHas) {
  const BlasLibrary wide(CAPSTAN_FAKE_OPENBLAS, kAvx512);
  EXPECT_EQ(wide.name(), "OpenBLAS 0.0.1 SkylakeX");
  EXPECT_EQ(wide.chosen_by(), ChosenBy::us);
  EXPECT_EQ(wide.faster(), "");
}

TEST_F(FakeOpenBlas, IsLoadedWithoutThreadsAndTheEnvironmentIsAsItWas) {
  const BlasLibrary library(CAPSTAN_FAKE_OPENBLAS, kAvx2);
  EXPECT_EQ(library.description(), "OpenBLAS 0.0.1 FAKE Haswell THREADS=1");
  EXPECT_STREQ(std::getenv("OPENBLAS_NUM_THREADS"), "3");
  EXPECT_EQ(std::getenv("OPENBLAS_CORETYPE"), nullptr);
}

TEST_F(FakeOpenBlas, KeepsItsChoiceForAProcessorThatItKnows) {
  const Variable knows("FAKE_OPENBLAS_KNOWS", "Haswell");
  const BlasLibrary library(CAPSTAN_FAKE_OPENBLAS, kAvx512);
  EXPECT_EQ(library.kernels(), "Haswell");
  EXPECT_EQ(library.chosen_by(), ChosenBy::library);
}

TEST_F(FakeOpenBlas, KeepsTheUsersChoice) {
  const Variable choice("OPENBLAS_CORETYPE", "Prescott");
  const BlasLibrary library(CAPSTAN_FAKE_OPENBLAS, kAvx512, "OpenBLAS 0.0.1 Haswell");
  EXPECT_EQ(library.kernels(), "Prescott");
  EXPECT_EQ(library.chosen_by(), ChosenBy::user);
  EXPECT_EQ(library.faster(), "SkylakeX");
}

TEST_F(FakeOpenBlas, GoesOnWithTheKernelsOfARun) {
  for (const char* recorded : {"Prescott", "Haswell", "SkylakeX"}) {
    const BlasLibrary library(CAPSTAN_FAKE_OPENBLAS, kAvx512,
                              std::string("OpenBLAS 0.0.1 ") + recorded);
    EXPECT_EQ(library.kernels(), recorded);
    EXPECT_EQ(library.chosen_by(), ChosenBy::record);
  }
}

TEST_F(FakeOpenBlas, HasNoKernelsOfARunElsewhere) {
  const Vectors avx2 = kAvx2;
  for (const char* recorded :
       {"OpenBLAS 0.0.2 Prescott", "OpenBLAS 0.0.1 SkylakeX", "OpenBLAS 0.0.1 Zen",
        "OpenBLAS 0.0.1 Bulldozer", "OpenBLAS 0.0.1 ", "OpenBLAS", "something else"}) {
    const BlasLibrary library(CAPSTAN_FAKE_OPENBLAS, avx2, recorded);
    EXPECT_EQ(library.kernels(), "Haswell") << recorded;
    EXPECT_EQ(library.chosen_by(), ChosenBy::us) << recorded;
  }
}

TEST_F(FakeOpenBlas, IsLeftAsOtherCodeOfTheProcessHasLoadedIt) {
  void* const first = dlopen(CAPSTAN_FAKE_OPENBLAS, RTLD_NOW);
  ASSERT_NE(first, nullptr) << dlerror();
  {
    const BlasLibrary library(CAPSTAN_FAKE_OPENBLAS, kAvx512, "OpenBLAS 0.0.1 Haswell");
    EXPECT_EQ(library.kernels(), "Prescott");
    EXPECT_EQ(library.chosen_by(), ChosenBy::process);
    EXPECT_EQ(library.faster(), "SkylakeX");
  }
  dlclose(first);
}

TEST_F(FakeOpenBlas, MayStayLoadedWithItsOwnChoice) {
  const BlasLibrary library(CAPSTAN_FAKE_OPENBLAS_STAYS, kAvx512);
  EXPECT_EQ(library.kernels(), "Prescott");
  EXPECT_EQ(library.chosen_by(), ChosenBy::library);
  EXPECT_EQ(library.faster(), "SkylakeX");
}

#endif

TEST_F(FakeOpenBlas, IsMissedByName) {
  EXPECT_NE(message_of(Fault::device, [] { BlasLibrary("libmissing.so.0", {}); })
                .find("cannot load OpenBLAS, which multiplies matrices: libmissing.so.0: "),
            std::string::npos);
}

// Each set of kernels that runs here multiplies, after the others were unloaded.
TEST(OpenBlas, HasAllKernelsOneAfterTheOther) {
  const Variable no_choice("OPENBLAS_CORETYPE", nullptr);
  if (void* const there = dlopen(CAPSTAN_OPENBLAS, RTLD_LAZY | RTLD_NOLOAD)) {
    dlclose(there);
    GTEST_SKIP() << "an earlier test of this process has loaded it";
  }
  const std::string usual = BlasLibrary(CAPSTAN_OPENBLAS, {}).name();
  const std::string version = usual.substr(0, usual.rfind(' ') + 1);
  constexpr int kN = 65;
  std::vector<float> a(kN * kN), c(kN * kN);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7) - 3;
  int seen = 0;
  for (const char* kernels : {"Prescott", "Nehalem", "Sandybridge", "Haswell", "Zen", "SkylakeX",
                              "armv8", "cortexa57", "neoversen1"}) {
    if (!can_run(kernels, vectors_here())) continue;
    const BlasLibrary library(CAPSTAN_OPENBLAS, vectors_here(), version + kernels);
    if (library.kernels() != kernels) continue;  // was built without
    ++seen;
    library.sgemm()(CblasRowMajor, CblasNoTrans, CblasNoTrans, kN, kN, kN, 1, a.data(), kN,
                    a.data(), kN, 0, c.data(), kN);
    for (int i = 0; i < kN; ++i)
      for (int j = 0; j < kN; ++j) {
        float sum = 0;  // of whole numbers: exact in any order
        for (int k = 0; k < kN; ++k)
          sum += a[static_cast<size_t>(i * kN + k)] * a[static_cast<size_t>(k * kN + j)];
        ASSERT_EQ(c[static_cast<size_t>(i * kN + j)], sum) << kernels;
      }
  }
  EXPECT_GE(seen, 1);
}

}  // namespace
}  // namespace capstan::cpu
