#include "comm/mpi/mpi_process.h"

#include <thread>

#include "base/error.h"

namespace capstan {

using namespace mpi;

namespace {

Ranks started() {
  int before = 0, provided = 0;
  MPI_Initialized(&before);
  require(before == 0, Fault::bug, "MPI was started twice");
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  require(provided >= MPI_THREAD_SERIALIZED, Fault::device,
          "MPI: this library does not allow calls from several threads; use one that was built "
          "with thread support");
  Ranks ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &ranks.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks.size);
  return ranks;
}

}  // namespace

MpiProcess::MpiProcess(Duration timeout)
    : ranks_(started()), timeout_(timeout), peers_(static_cast<size_t>(ranks_.size)) {}

MpiProcess::~MpiProcess() {
  // The others were told why; they end with it, if they hear it before this ends them.
  if (error_) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (error_ || broken_)
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(Fault::peer));
  else
    MPI_Finalize();
}

void MpiProcess::throw_error() const {
  if (error_) std::rethrow_exception(error_);
}

void MpiProcess::end(std::exception_ptr why, std::string_view failure) {
  if (error_) return;
  error_ = std::move(why);
  failure_ = failure;
  for (std::condition_variable* thread : threads_) thread->notify_all();
}

void MpiProcess::enter(std::condition_variable& changed) {
  const std::lock_guard lock(mutex);
  threads_.push_back(&changed);
}

void MpiProcess::leave(std::condition_variable& changed) {
  tell_failure();
  const std::lock_guard lock(mutex);
  std::erase(threads_, &changed);
  left_.notify_all();
}

void MpiProcess::check() {
  const std::lock_guard lock(mutex);
  throw_error();
}

void MpiProcess::abort(std::string_view why) noexcept {
  std::unique_lock lock(mutex);
  end(std::make_exception_ptr(Error(Fault::peer, std::string(why))), why);
  left_.wait(lock, [&] { return threads_.empty(); });
}

bool MpiProcess::report(std::string_view why, bool consequence) noexcept {
  abort(why);
  const int rank = ranks_.rank;
  const auto start = Clock::now();
  bool others_do = (consequence && heard_) || failed_ < rank;
  while (!others_do && rank > 0 && Clock::now() - start < std::chrono::milliseconds(300)) {
    const auto failure = told(kFailure);
    others_do = failure && failure->rank < rank;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (others_do) std::this_thread::sleep_for(std::chrono::milliseconds(800));
  return !others_do;
}

void MpiProcess::hear_failure() {
  const auto failure = told(kFailure);
  if (!failure) return;
  const std::lock_guard lock(mutex);
  heard_ = true;
  failed_ = failure->rank;
  const std::string why = fmt::format("rank {}: {}", failure->rank, failure->text);
  end(std::make_exception_ptr(Error(Fault::peer, why)), "");
  throw_error();
}

MpiProcess::Waits::Waits(MpiProcess& process, const std::vector<int>& ranks)
    : process_(std::this_thread::get_id() == process.own_thread_ ? &process : nullptr) {
  if (process_ != nullptr) process_->waits_ = &ranks;
}

MpiProcess::Waits::~Waits() {
  if (process_ != nullptr) process_->waits_ = nullptr;
}

std::vector<int> MpiProcess::own_pong() {
  const std::lock_guard lock(mutex);
  if (waits_ == nullptr) return {0};
  std::vector<int> text = {1};
  text.insert(text.end(), waits_->begin(), waits_->end());
  return text;
}

void MpiProcess::answer_pings() {
  std::optional<std::vector<int>> own;
  const std::lock_guard lock(calls_);
  for (const int tag : {kPing, kPong})
    for (int there = 1; there != 0;) {
      MPI_Status status;
      MPI_Iprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &there, &status);
      if (there == 0) continue;
      int size = 0;
      MPI_Get_count(&status, MPI_INT, &size);
      std::vector<int> text(static_cast<size_t>(size));
      MPI_Recv(text.data(), size, MPI_INT, status.MPI_SOURCE, tag, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
      Peer& peer = peers_[static_cast<size_t>(status.MPI_SOURCE)];
      peer.heard = Clock::now();
      peer.asked.reset();
      if (tag == kPong) {
        hear_pong(peer, text);
        continue;
      }
      if (!own) own = own_pong();
      send_pong(status.MPI_SOURCE, *own);
    }
}

void MpiProcess::hear_pong(Peer& peer, const std::vector<int>& text) {
  const bool waits = !text.empty() && text[0] == 1;
  peer.state = {waits ? RankState::Kind::waits : RankState::Kind::busy,
                waits ? std::vector<int>(text.begin() + 1, text.end()) : std::vector<int>()};
  for (const int r : peer.state.waits_for) send_ping(r);
}

void MpiProcess::ask(const std::vector<int>& ranks) {
  const std::lock_guard lock(calls_);
  ++round_;
  for (const int r : ranks) send_ping(r);
}

RankState MpiProcess::state_of(int rank) {
  const auto patience = std::min<Duration>(timeout() / 4, std::chrono::seconds(5));
  const std::lock_guard lock(calls_);
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.asked && Clock::now() - *peer.asked > patience) return {RankState::Kind::silent};
  return peer.state;
}

std::vector<int> MpiProcess::silent_since(Clock::time_point then, const Members& others) {
  std::vector<int> silent, all;
  for (int i = 0; i < others.count; ++i)
    if (const int r = others.at(i); r != ranks_.rank) {
      all.push_back(r);
      if (heard_from(r) < then) silent.push_back(r);
    }
  ask(all);
  return silent;
}

MpiProcess::Clock::time_point MpiProcess::heard_from(int rank) {
  const std::lock_guard lock(calls_);
  return peers_[static_cast<size_t>(rank)].heard;
}

void MpiProcess::send_ping(int to) {
  Peer& peer = peers_[static_cast<size_t>(to)];
  if (to == ranks_.rank || peer.round == round_) return;
  peer.round = round_;
  if (!peer.asked) peer.asked = Clock::now();
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(nullptr, 0, MPI_INT, to, kPing, MPI_COMM_WORLD, &request);
  MPI_Request_free(&request);
}

void MpiProcess::send_pong(int to, const std::vector<int>& text) {
  std::erase_if(pongs_, [](auto& pong) {
    int done = 0;
    MPI_Test(&pong.first, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
  auto& [request, kept] = pongs_.emplace_back(MPI_REQUEST_NULL, text);
  MPI_Isend(kept.data(), static_cast<int>(kept.size()), MPI_INT, to, kPong, MPI_COMM_WORLD,
            &request);
}

void MpiProcess::tell_failure() {
  std::string text;
  {
    const std::lock_guard lock(mutex);
    text = std::exchange(failure_, {});
  }
  if (!text.empty()) tell(text, kFailure, {.count = ranks_.size});
}

void MpiProcess::tell(const std::string& text, int tag, const Members& others) {
  std::vector<MPI_Request> messages(static_cast<size_t>(others.count), MPI_REQUEST_NULL);
  call([&] {
    for (int i = 0; i < others.count; ++i)
      if (others.at(i) != ranks_.rank)
        MPI_Isend(text.data(), static_cast<int>(text.size()), MPI_BYTE, others.at(i), tag,
                  MPI_COMM_WORLD, &messages[static_cast<size_t>(i)]);
  });
  const auto deadline = Clock::now() + std::chrono::milliseconds(500);
  for (int done = 0; done == 0 && Clock::now() < deadline;
       std::this_thread::sleep_for(std::chrono::milliseconds(1)))
    call([&] {
      MPI_Testall(static_cast<int>(messages.size()), messages.data(), &done, MPI_STATUSES_IGNORE);
    });
}

std::optional<MpiProcess::Told> MpiProcess::told(int tag) {
  const std::lock_guard lock(calls_);
  MPI_Status status;
  int there = 0, bytes = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &there, &status);
  if (there == 0) return std::nullopt;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  Told t{status.MPI_SOURCE, std::string(static_cast<size_t>(bytes), ' ')};
  MPI_Recv(t.text.data(), bytes, MPI_BYTE, t.rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return t;
}

}  // namespace capstan
