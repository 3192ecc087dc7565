// How long threads of the program wait for each other before they sleep.
#include "program.h"
#include "support/sanitized.h"
#include "support/variable.h"

namespace capstan::cli_test {
namespace {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

class Waiting : public Cli {
 protected:
  // What OpenMP says of itself when it is loaded.
  Outcome shown(const std::string& environment) {
    return in_environment("OMP_DISPLAY_ENV=verbose " + environment, {"--version"});
  }
  // With these variables alone, of which libraries must be found.
  Outcome in_environment(const std::string& environment, const Words& words) {
    std::string line = "exec env -i " + environment + " '" CAPSTAN_PROGRAM "'";
    for (const std::string& word : words) line += " '" + word + "'";
    return finish(start_program("/bin/sh", {"sh", "-c", line}));
  }
};

TEST_F(Waiting, ThreadsSleepSoonerThanOpenMpLetsThem) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer comes first";
  for (const char* environment : {"_=/bin/sh", "HOME=/tmp", "OMP_NUM_THREADS=2 PATH=/bin"})
    expect_holds(shown(environment).err, {"GOMP_SPINCOUNT = '3000'"});
}

TEST_F(Waiting, TheUsersOwnChoiceStays) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer comes first";
  expect_holds(shown("HOME=/tmp GOMP_SPINCOUNT=77").err, {"GOMP_SPINCOUNT = '77'"});
  expect_holds(shown("HOME=/tmp OMP_WAIT_POLICY=passive").err, {"GOMP_SPINCOUNT = '0'"});
}

TEST_F(Waiting, TheEnvironmentIsAsItWasInMain) {
  // The variable whose place was taken is read later: the cache is in this home.
  const Outcome o =
      in_environment("HOME=" + at("home").string(), {"plan", "pretrain", "--calibration=missing"});
  expect_holds(unwrapped(o.err), {at("home").string() + "/.cache/capstan/calibration"});
}

#endif

}  // namespace
}  // namespace capstan::cli_test
