// Which kernels of OpenBLAS the program takes: with a stand-in for it that does not know the
// processor, and whose kernels give different bits.
#ifdef CAPSTAN_FAKE_OPENBLAS_FOLDER

#include <string>

#include "ops/cpu/blas_kernels.h"
#include "program.h"
#include "support/sanitized.h"
#include "support/variable.h"

namespace capstan::cli_test {
namespace {

#if defined(__aarch64__)
constexpr const char* kOwn = "neoversen1";  // the stand-in's choice
constexpr const char* kOther = "armv8";     // that the user may make
#else
constexpr const char* kOwn = "Prescott";
constexpr const char* kOther = "Prescott";
#endif

class Kernels : public Cli {
 protected:
  static std::string best() {
    const std::string_view faster = cpu::faster_kernels(kOwn, cpu::vectors_here());
    return std::string(faster.empty() ? kOwn : faster);
  }
  Words run_in(const std::string& out) const {
    return tiny({"--resume=auto", "--accelerator=cpu", "--out_dir=" + out,
                 "--train.save_interval=2", "--train.max_steps=6"});
  }
  std::string state_of(const std::string& checkpoint) const {
    return slurp(at(checkpoint) / "training_state/state.json");
  }
  std::string weights_of(const std::string& out) const {
    return slurp(at(out) / "final/model.safetensors");
  }

  const Variable loaded{"LD_LIBRARY_PATH", CAPSTAN_FAKE_OPENBLAS_FOLDER};
  const Variable no_choice{"OPENBLAS_CORETYPE", nullptr};
};

TEST_F(Kernels, AreTheBestOfTheLibraryAndDoctorSaysWhoChose) {
  expect_holds(run({"doctor"}).out, {"OpenBLAS 0.0.1 FAKE " + best() + " THREADS=1"});
  if (best() == kOwn) return;
  expect_holds(run({"doctor"}).out, {"it does not know this processor, so capstan chose its "});
  const Variable choice("OPENBLAS_CORETYPE", kOwn);
  expect_holds(run({"doctor"}).out, {std::string("OpenBLAS 0.0.1 FAKE ") + kOwn,
                                     "OPENBLAS_CORETYPE", "unset it, or set it to " + best()});
}

TEST_F(Kernels, AreLeftWhereOtherCodeHasLoadedTheLibrary) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer must be the first library";
  const fs::path library = fs::directory_iterator(CAPSTAN_FAKE_OPENBLAS_FOLDER)->path();
  const Variable preload("LD_PRELOAD", library.c_str());
  const Outcome o = run({"doctor"});
  expect_holds(o.out, {std::string("OpenBLAS 0.0.1 FAKE ") + kOwn});
  if (best() == kOwn) return;
  expect_holds(o.out, {"it was loaded before capstan could choose its kernels",
                       "set OPENBLAS_CORETYPE=" + best()});
}

TEST_F(Kernels, OfARunStayWhenItResumes) {
  ASSERT_EQ(run(run_in("new")).code, 0);
  expect_holds(state_of("new/step-00000002"), {"OpenBLAS 0.0.1 " + best()});
  expect_holds(slurp(at("new/report.html")), {"OpenBLAS 0.0.1 " + best()});
  const std::string other = std::string("OpenBLAS 0.0.1 ") + kOther;
  {
    const Variable choice("OPENBLAS_CORETYPE", kOther);
    ASSERT_EQ(run(run_in("other")).code, 0);
  }
  expect_holds(state_of("other/step-00000002"), {other});
  const std::string whole = weights_of("other");
  fs::remove_all(at("other/step-00000004"));
  fs::remove_all(at("other/final"));
  const Outcome rest = run(run_in("other"));
  ASSERT_EQ(rest.code, 0) << rest.err;
  expect_holds(rest.out, {"resumed from other/step-00000002"});
  expect_holds(state_of("other/step-00000004"), {other});
  EXPECT_EQ(rest.err.find("bits may differ"), std::string::npos) << rest.err;
  EXPECT_TRUE(weights_of("other") == whole);
  if (best() == kOther) return;
  EXPECT_FALSE(weights_of("new") == whole) << "other kernels have other bits";
  if (!cpu::faster_kernels(kOther, cpu::vectors_here()).empty())
    expect_holds(rest.out + rest.err,
                 {std::string("the run goes on with OpenBLAS's ") + kOther + " kernels",
                  "set OPENBLAS_CORETYPE=" + best()});
}

}  // namespace
}  // namespace capstan::cli_test

#endif
