// How a group's thread moves the data of a collective.
#include <fmt/ranges.h>

#include <cstring>

#include "comm/mpi/mpi_member.h"
#include "ops/cpu/sum_slices.h"

namespace capstan {

using namespace mpi;
using Kind = Collective::Kind;

void MpiMember::greet(const Collective& c) {
  hello_ = fingerprint(c);
  for (int i = 0; i < c.size(); ++i) {
    const int r = c.members.at(i);
    if (r == rank()) continue;
    receive(&hellos_[static_cast<size_t>(r)], sizeof hello_, r, hello_tag());
    send(&hello_, sizeof hello_, r, hello_tag());
  }
  wait(c);
  for (int i = 0, r = c.members.first; i < c.size(); r = c.members.at(++i))
    require(r == rank() || hellos_[static_cast<size_t>(r)] == hello_, Fault::peer,
            "group {}, collective {}: rank {} called {}, rank {} something else", name(), complete_,
            among_all(rank()), c.describe(), among_all(r));
}

void MpiMember::move(const Collective& c) {
  if (c.kind == Kind::pass) return pass(c);
  if (sums(c)) sum(c);
  if (c.kind != Kind::reduce_scatter) exchange(c);
}

void MpiMember::pass(const Collective& c) {
  if (c.index == 0)
    send(c.whole.raw(), c.whole.nbytes(), c.members.at(1), data_tag());
  else
    receive(c.whole.raw(), c.whole.nbytes(), c.members.at(0), data_tag());
  wait(c);
}

void MpiMember::exchange(const Collective& c) {
  for (int i = 0; i < c.size(); ++i) {
    const Tensor to = c.slice(i), from = c.given_to(i);
    if (i == c.index) {
      if (to.raw() != from.raw())
        std::memcpy(to.raw(), from.raw(), static_cast<size_t>(to.nbytes()));
      continue;
    }
    send(from.raw(), from.nbytes(), c.members.at(i), data_tag());
    receive(to.raw(), to.nbytes(), c.members.at(i), data_tag());
  }
  wait(c);
}

void MpiMember::sum(const Collective& c) {
  const int64_t each = c.mine.nbytes();
  require(room_ && each * c.size() <= room_.nbytes(), Fault::bug,
          "group {}: {} needs more room than the {} bytes there are", name(), c.describe(),
          room_ ? room_.nbytes() : 0);
  terms_.assign(static_cast<size_t>(c.size()), c.slice(c.index));
  for (int i = 0; i < c.size(); ++i) {
    if (i == c.index) continue;
    Tensor& term = terms_[static_cast<size_t>(i)];
    term = room_.rows(i * each, each).viewed_as(c.whole.dtype());
    send(c.slice(i).raw(), each, c.members.at(i), data_tag());
    receive(term.raw(), each, c.members.at(i), data_tag());
  }
  wait(c);
  cpu::sum_slices(c.mine, terms_, c.mode, c.machines);
}

void MpiMember::send(const void* from, int64_t bytes, int to, int tag) {
  const int peer = among_all(to);
  each_message(bytes, [&](int64_t first, int count) {
    process_->call([&] {
      MPI_Isend(static_cast<const std::byte*>(from) + first, count, MPI_BYTE, peer, tag,
                MPI_COMM_WORLD, &requests_.emplace_back());
    });
    peers_.push_back(peer);
  });
}

void MpiMember::receive(void* to, int64_t bytes, int from, int tag) {
  const int peer = among_all(from);
  moving_ += bytes;
  each_message(bytes, [&](int64_t first, int count) {
    process_->call([&] {
      MPI_Irecv(static_cast<std::byte*>(to) + first, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                &requests_.emplace_back());
    });
    peers_.push_back(peer);
  });
}

void MpiMember::wait(const Collective& c) {
  constexpr int64_t kBytesPerMicrosecond = 1000, kLatency = 50;  // microseconds
  constexpr int kCalls = 8;
  constexpr auto kLongest = std::chrono::microseconds(500);  // the system buffers as much
  constexpr auto kMoment = std::chrono::milliseconds(20);
  const auto start = Clock::now(), deadline = start + process_->timeout(),
             through_memory =
                 start + std::chrono::microseconds(kLatency + std::exchange(moving_, 0) /
                                                                  kBytesPerMicrosecond);
  // Who is asked tells whom it waits for: known after a moment, and then from time to time.
  auto next_look = Clock::time_point(), next_ping = start + process_->timeout() / 8,
       next_missing = start + std::min<Clock::duration>(process_->timeout() / 16, kMoment);
  auto pause = std::chrono::microseconds(0);
  for (int done = 0;;) {
    for (int i = 0; done == 0 && i < kCalls; ++i)
      process_->call([&] {
        MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                    MPI_STATUSES_IGNORE);
      });
    if (done != 0) break;
    const auto now = Clock::now();
    if (now > next_look) {
      next_look = now + std::chrono::microseconds(200);
      look_around();
    }
    if (now > next_missing) {
      next_missing = now + process_->timeout() / 16;
      note_missing();
    }
    if (now > next_ping) {
      next_ping = now + process_->timeout() / 8;
      process_->ask(note_missing());
    }
    if (now > deadline) give_up(c);
    if (now < through_memory) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause + std::chrono::microseconds(5), kLongest);
  }
  requests_.clear();
  peers_.clear();
  if (missing_.empty()) return;
  const std::lock_guard lock(process_->mutex);
  missing_.clear();
}

std::vector<int> MpiMember::note_missing() {
  std::vector<int> missing;
  process_->call([&] {
    for (size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;
      if (requests_[i] != MPI_REQUEST_NULL) MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
      if (requests_[i] != MPI_REQUEST_NULL && done == 0 &&
          std::find(missing.begin(), missing.end(), peers_[i]) == missing.end())
        missing.push_back(peers_[i]);
    }
  });
  std::sort(missing.begin(), missing.end());
  const std::lock_guard lock(process_->mutex);
  missing_ = missing;
  return missing;
}

void MpiMember::look_around() {
  process_->check();
  process_->hear_failure();
  process_->answer_pings();
}

void MpiMember::give_up(const Collective& c) {
  process_->answer_pings();
  const WaitCause cause = cause_of_wait(process_->ranks().rank, note_missing(),
                                        [&](int r) { return process_->state_of(r); });
  require(cause.ranks.empty(), Fault::peer,
          "group {}, collective {}: rank {} waited {:g} s for rank {} in {}{}", name(), complete_,
          among_all(rank()), std::chrono::duration<double>(process_->timeout()).count(),
          fmt::join(cause.ranks, ", "), c.describe(), cause.how);
}

}  // namespace capstan
