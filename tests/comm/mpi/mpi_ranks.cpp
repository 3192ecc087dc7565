// Run by mpirun, one process for each rank: the collectives, and training. Every process also does
// all of it with threads, and compares bits. Exits with 1 if anything differs.

#include <fmt/format.h>

#include <cstring>

#include "comm/mpi/mpi_group.h"
#include "comm/thread_group.h"
#include "ops/elementwise.h"
#include "train/rank_run.h"

namespace capstan::test {
namespace {

int wrong = 0;

void expect(bool right, const std::string& what, const Communicator& group) {
  if (right) return;
  ++wrong;
  fmt::print(stderr, "rank {}: {}: bits differ from those of threads\n", group.rank(), what);
}

// A few collectives in flight at once, of every kind.
std::vector<Values> collectives(Communicator group, DType type) {
  Arena arena(Arena::Heap{}, Device::cpu);
  Queue q(Device::cpu, arena);
  const int64_t each = 1000, n = each * group.size();
  const Buffer room = group.make_room(arena, n * size_of(type));
  const auto random = [&](int64_t values, uint64_t seed) {
    Buffer x = arena.make(Category::data, type, {values}, "x");
    // Some are subnormal numbers, which every transport takes for zeros.
    fill_normal(q, x, seed == 2 ? 1e-38f : 1,
                {.seed = seed, .sample = static_cast<uint64_t>(group.rank())});
    return x;
  };
  const Buffer summed = random(n, 1), scattered = random(n, 2), mine = random(each, 3),
               added = random(each, 4), gathered = random(n, 5), in_place = random(n, 6);
  Work works[] = {group.all_reduce(q, summed), group.reduce_scatter(q, mine, scattered),
                  group.reduce_scatter(q, added, scattered, Write::add),
                  group.all_gather(q, gathered, group.slice_of(summed)),
                  group.all_gather(q, in_place, group.slice_of(in_place))};
  for (Work& work : works) work.join(q);
  return {values_of(q, summed), values_of(q, mine), values_of(q, added), values_of(q, gathered),
          values_of(q, in_place)};
}

void compare_collectives(const Communicator& group) {
  for (const DType type : {DType::f32, DType::bf16}) {
    std::vector<Values> expected;
    run_as_threads(group.size(), [&](Communicator threads) {
      auto found = collectives(threads, type);
      if (threads.rank() == group.rank()) expected = std::move(found);
    });
    expect(collectives(group, type) == expected, "collectives", group);
  }
}

void compare_training(const Communicator& group) {
  std::vector<Case> cases(3);
  cases[0].micro_batch = 5;
  cases[1].precision = Precision::bf16_mixed;
  cases[2].lora = every_map(0.1);
  for (const Case& c : cases)
    for (const auto& [name, sharding] : kStrategies) {
      const Dataset data = ragged(29, c.config.vocab);
      Trained expected, found;
      std::mutex mutex;
      run_as_threads(group.size(), [&, &s = sharding](Communicator threads) {
        train_rank(c, data, s, threads, expected, mutex);
      });
      train_rank(c, data, sharding, group, found, mutex, {.room = true});
      expect(found.losses == expected.losses && found.norms == expected.norms &&
                 found.evaluated == expected.evaluated,
             name, group);
      for (const auto& [param, values] : found.weights)
        for (size_t i = 0; i < values.size(); ++i)
          if (!std::isnan(values[i]) && values[i] != expected.weights.at(param)[i]) {
            expect(false, fmt::format("{}, parameter {}", name, param), group);
            break;
          }
    }
}

void compare_channel(const Communicator& group) {
  const auto channel = group.open_channel("talk");
  std::string mine(1 << 20, static_cast<char>('a' + group.rank()));
  for (int round = 0; round < 20; ++round) {
    const auto all = channel->exchange(std::string_view(mine).substr(0, 1u << round));
    for (int r = 0; r < group.size(); ++r)
      expect(all[static_cast<size_t>(r)] == std::string(1u << round, static_cast<char>('a' + r)),
             "channel", group);
  }
}

// One rank calls something else, fails, or does nothing: the others say so, and all end.
void fail_on_purpose(Communicator group, std::string_view how) {
  Arena arena(Arena::Heap{}, Device::cpu);
  Queue q(Device::cpu, arena);
  const Buffer x = arena.make(Category::data, DType::f32, {int64_t{8} * group.size()}, "x");
  const Buffer y = arena.make(Category::data, DType::f32, {int64_t{16} * group.size()}, "y");
  if (group.rank() == 1 && how == "failed") fail(Fault::file, "no such file");
  if (how == "busy") {  // beside the collectives, a rank that lives may take its time
    const auto channel = group.open_channel("talk");
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    expect(channel->exchange("here").back() == "here", "busy", group);
    return;
  }
  if (group.rank() == 1 && how == "silent") std::this_thread::sleep_for(std::chrono::seconds(20));
  Work work =
      group.all_gather(q, group.rank() == 1 ? y : x, group.slice_of(group.rank() == 1 ? y : x));
  work.join(q);
}

int compare_all(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "";
  const MpiGroup mpi(how.empty() ? std::chrono::seconds(60) : std::chrono::seconds(1));
  Communicator group = mpi.communicator();
  try {
    if (!how.empty()) {
      fail_on_purpose(group, how);
      return wrong;
    }
    compare_collectives(group);
    compare_channel(group);
    compare_training(group);
  } catch (const Error& e) {
    fmt::print(stderr, "rank {} ends: {}\n", group.rank(), e.what());
    group.abort(e.what());
    return e.exit_code();
  }
  return wrong == 0 && !testing::Test::HasFailure() ? 0 : 1;
}

}  // namespace
}  // namespace capstan::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return capstan::test::compare_all(argc, argv);
}
