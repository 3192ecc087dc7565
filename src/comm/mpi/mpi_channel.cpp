#include "comm/mpi/mpi_member.h"

namespace capstan {

using namespace mpi;
using Clock = std::chrono::steady_clock;

// Messages of a channel, by the thread that calls.
class MpiChannel : public HostChannel {
 public:
  // `tag`: the first of two, for data and for why the channel ended.
  MpiChannel(std::shared_ptr<MpiMember> member, int tag, std::string name)
      : HostChannel(member->rank(), member->size()),
        member_(std::move(member)),
        process_(*member_->process_),
        tag_(tag),
        name_(std::move(name)) {}

  void send(std::span<const std::byte> bytes, int to) override {
    const int peer = member_->among_all(to);
    each_message(std::ssize(bytes), [&](int64_t first, int count) {
      MPI_Request request = MPI_REQUEST_NULL;
      process_.call([&] {
        MPI_Issend(bytes.data() + first, count, MPI_BYTE, peer, tag_, MPI_COMM_WORLD, &request);
      });
      wait(request, peer);
    });
  }

  void receive(std::span<std::byte> bytes, int from) override {
    const int peer = member_->among_all(from);
    each_message(std::ssize(bytes), [&](int64_t first, int count) {
      MPI_Request request = MPI_REQUEST_NULL;
      process_.call([&] {
        MPI_Irecv(bytes.data() + first, count, MPI_BYTE, peer, tag_, MPI_COMM_WORLD, &request);
      });
      wait(request, peer);
    });
  }

  void abort(std::string_view why) noexcept override {
    if (process_.note_broken()) return;  // this channel or another one has ended
    process_.tell(std::string(why), tag_ + 1, member_->in_world());
  }

 private:
  // Tells those who ask that this rank waits for another one.
  class Waiting {
   public:
    Waiting(MpiProcess& process, int other) : process_(process), other_{other} {
      const std::lock_guard lock(process_.mutex);
      waits_.emplace(process_, other_);
    }
    ~Waiting() {
      const std::lock_guard lock(process_.mutex);
      waits_.reset();
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    MpiProcess& process_;
    const std::vector<int> other_;
    std::optional<MpiProcess::Waits> waits_;
  };

  // Ranks from here on are as MPI counts them.
  void wait(MPI_Request& request, int other) {
    std::optional<Waiting> waiting;
    const auto start = Clock::now();
    const MpiProcess::Duration timeout = process_.timeout();
    auto pause = std::chrono::microseconds(0);
    auto next_ping = start + timeout / 8;
    for (int done = 0;;) {
      process_.call([&] { MPI_Test(&request, &done, MPI_STATUS_IGNORE); });
      if (done != 0) return;
      try {
        hear();
        process_.answer_pings();
        const auto now = Clock::now();
        if (!waiting && now > start + std::chrono::milliseconds(20))
          waiting.emplace(process_, other);
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
    const MpiProcess::Duration timeout = process_.timeout();
    const auto last = std::max(start, process_.heard_from(other));
    require(Clock::now() - last < timeout, Fault::peer,
            "channel {}: rank {} waited {:g} s for rank {}", name_, process_.ranks().rank,
            std::chrono::duration<double>(timeout).count(), other);
    process_.ask({other});
  }

  void hear() {
    process_.check();
    process_.hear_failure();
    if (const auto told = process_.told(tag_ + 1)) {
      process_.note_heard();
      fail(Fault::peer, "rank {}: {}", told->rank, told->text);
    }
  }

  // The memory belongs to the caller again; the group cannot end in order any more.
  void give_up(MPI_Request& request) {
    process_.note_broken();
    process_.call([&] {
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    });
  }

  std::shared_ptr<MpiMember> member_;
  MpiProcess& process_;
  int tag_;
  std::string name_;
};

std::unique_ptr<HostChannel> MpiMember::open_channel(std::string name) {
  const int tag = kFirstChannel + 2 * opened_++;
  require(tag + 1 < tags(), Fault::bug, "channel {}: group {} has too many", name, this->name());
  return std::make_unique<MpiChannel>(shared_from_this(), first_tag() + tag, std::move(name));
}

}  // namespace capstan
