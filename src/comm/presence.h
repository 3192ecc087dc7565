#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/ranks.h"

namespace capstan {

// The job that a launcher started this process for, by a name that no other job on this machine
// has; none if the launcher does not tell.
std::optional<std::string> launched_job();
// How many of its ranks the launcher started on this machine; none if it does not tell.
std::optional<int> launched_here();

// How the ranks of a job find each other on one machine before MPI connects them: each opens a
// socket whose name is made of the job and the rank. The names are abstract: they leave no file,
// and go with the process. Of one thread.
class Presence {
 public:
  // Without effect where the system has no such sockets, or the name is taken.
  Presence(std::string job, const Ranks& own);
  ~Presence();
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

  // A descriptor that is readable while another rank asks; below 0: nobody can.
  int asked() const { return own_; }
  // Tells all who ask that this process runs.
  void answer();

  // Another rank of the job that has a Presence on this machine.
  struct Found {
    int rank = 0;
    int process = 0;  // its number
    bool answers = false;
  };
  // Asks all others, and waits up to 0.3 s for those that do not answer.
  std::vector<Found> others();

  // True for the first rank of this machine that calls it.
  bool speaks_first();

 private:
  int connected_to(int rank) const;

  std::string job_;
  Ranks ranks_;
  int own_ = -1, first_ = -1;
};

}  // namespace capstan
