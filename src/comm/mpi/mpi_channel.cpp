#include "comm/mpi/mpi_member.h"

namespace capstan {

using namespace mpi;
using Clock = std::chrono::steady_clock;

// Messages of a channel, by the thread that calls.
class MpiChannel : public HostChannel {
 public:
  MpiChannel(std::shared_ptr<MpiMember> member, int index, std::string name)
      : HostChannel(member->rank(), member->size()),
        member_(std::move(member)),
        tag_(kFirstChannel + 2 * index),
        name_(std::move(name)) {}

  void send(std::span<const std::byte> bytes, int to) override {
    MpiMember::each_message(std::ssize(bytes), [&](int64_t first, int count) {
      MPI_Request request = MPI_REQUEST_NULL;
      {
        const std::lock_guard lock(member_->calls_);
        MPI_Issend(bytes.data() + first, count, MPI_BYTE, to, tag_, MPI_COMM_WORLD, &request);
      }
      wait(request, to);
    });
  }

  void receive(std::span<std::byte> bytes, int from) override {
    MpiMember::each_message(std::ssize(bytes), [&](int64_t first, int count) {
      MPI_Request request = MPI_REQUEST_NULL;
      {
        const std::lock_guard lock(member_->calls_);
        MPI_Irecv(bytes.data() + first, count, MPI_BYTE, from, tag_, MPI_COMM_WORLD, &request);
      }
      wait(request, from);
    });
  }

  void abort(std::string_view why) noexcept override {
    if (member_->broken_.exchange(true)) return;  // of this channel or of another
    member_->tell(std::string(why), tag_ + 1);
  }

 private:
  void wait(MPI_Request& request, int other) {
    const auto start = Clock::now();
    const MpiMember::Duration timeout = member_->timeout_;
    auto pause = std::chrono::microseconds(0);
    auto next_ping = start + timeout / 8;
    for (int done = 0;;) {
      {
        const std::lock_guard lock(member_->calls_);
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      }
      if (done != 0) return;
      try {
        hear();
        member_->answer_pings();
        const auto now = Clock::now();
        if (now > next_ping) {
          next_ping = now + timeout / 8;
          require_alive(std::max(start, now - 2 * timeout), other);
        }
      } catch (const Error&) {
        give_up(request);
        throw;
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause + std::chrono::microseconds(5), std::chrono::microseconds(200));
    }
  }

  // Asks, and throws if the last answer since `start` is too old.
  void require_alive(Clock::time_point start, int other) {
    const MpiMember::Duration timeout = member_->timeout_;
    const std::lock_guard lock(member_->calls_);
    const auto last = std::max(start, member_->heard_from_[static_cast<size_t>(other)]);
    require(Clock::now() - last < timeout, Fault::peer,
            "channel {}: rank {} waited {:g} s for rank {}", name_, rank(),
            std::chrono::duration<double>(timeout).count(), other);
    MpiMember::send_empty(other, kPing);
  }

  void hear() {
    {
      const std::lock_guard lock(member_->mutex_);
      member_->throw_error();
    }
    member_->hear_failure();
    if (const auto told = member_->told(tag_ + 1)) {
      member_->heard_ = true;
      fail(Fault::peer, "rank {}: {}", told->rank, told->text);
    }
  }

  // The memory belongs to the caller again; the group cannot end in order any more.
  void give_up(MPI_Request& request) {
    member_->broken_ = true;
    const std::lock_guard lock(member_->calls_);
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }

  std::shared_ptr<MpiMember> member_;
  int tag_;
  std::string name_;
};

std::unique_ptr<HostChannel> MpiMember::open_channel(std::string name) {
  return std::make_unique<MpiChannel>(shared_from_this(), opened_++, std::move(name));
}

}  // namespace capstan
