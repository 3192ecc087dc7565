// save_under_fault DIR STEP MODE AT sync|async|check: saves the checkpoint of a small run, or
// checks that it could be saved, while the AT-th write fails. Prints how many calls could have
// failed, then the error if there is one; ends with the error's exit code.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "checkpoint/small_run.h"
#include "support/fail_writes.h"

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const std::string dir = argv[1];
  const int64_t step = std::atoll(argv[2]);
  capstan::SmallRun run;
  run.set(step);
  capstan::Snapshot snapshot(run.model.queue, run.model.params, run.optimizer);
  int code = 0;
  std::string message;
  {
    capstan::CheckpointSaver saver(run.model.queue, run.model.params, run.optimizer,
                                   std::string(argv[5]) == "async" ? &snapshot : nullptr);
    capstan::SaveRequest request = capstan::SmallRun::request(dir, step);
    request.keep = 1;
    fail_writes_arm(std::atoll(argv[4]), argv[3]);
    try {
      if (std::string(argv[5]) == "check") {
        capstan::check_can_save(dir, saver.bytes());
      } else {
        saver.save(std::move(request));
        run.set(step + 1000);  // what is saved was captured before
        saver.wait();
      }
    } catch (const capstan::Error& e) {
      code = e.exit_code();
      message = e.what();
    }
  }
  std::printf("%lld\n%s", static_cast<long long>(fail_writes_calls()), message.c_str());
  return code;
}
