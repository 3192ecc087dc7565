// Run by mpirun, one process for each rank: the collectives, groups, and training. Every process
// also does all of it with threads, and compares bits. Exits with 1 if anything differs.

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
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
               added = random(each, 4), gathered = random(n, 5), in_place = random(n, 6),
               exchanged = random(n, 7), from = random(n, 8), bytes = random(n, 9);
  // Slices of an odd number of bytes; as floats, what is received may be NaN.
  const auto odd = [&](const Buffer& x) {
    return x->viewed_as(DType::u8).rows(0, group.size() * (each + 1));
  };
  Work works[] = {group.all_reduce(q, summed),
                  group.reduce_scatter(q, mine, scattered),
                  group.reduce_scatter(q, added, scattered, Write::add),
                  group.all_gather(q, gathered, group.slice_of(summed)),
                  group.all_to_all(q, exchanged, from),
                  group.all_gather(q, in_place, group.slice_of(in_place)),
                  group.all_to_all(q, odd(bytes), odd(from))};
  for (Work& work : works) work.join(q);
  return {values_of(q, summed),    values_of(q, mine),     values_of(q, added),
          values_of(q, gathered),  values_of(q, in_place), values_of(q, exchanged),
          values_of(q, odd(bytes))};
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

// Rows and columns of a mesh, and all ranks in two groups; groups of unequal size that are split
// off together; and of 8 ranks the three axes of a mesh of 2 x 2 x 2.
std::vector<Communicator> groups_of(const Communicator& all) {
  const int size = all.size(), width = size % 2 == 0 ? size / 2 : size, longer = size - size / 3;
  const int row = all.rank() / width, column = all.rank() % width;
  const bool in_longer = all.rank() < longer;
  std::vector<Communicator> groups = {
      all, all.split({.first = row * width, .count = width}, "row", Lane::tensor),
      all.split({.first = column, .stride = width, .count = size / width}, "column", Lane::context),
      all.split({.count = size}, "again", Lane::send_up),
      all.split({.first = in_longer ? 0 : longer, .count = in_longer ? longer : size - longer},
                in_longer ? "longer" : "shorter", Lane::comm)};
  if (size != 8) return groups;
  const int stage = all.rank() / 4, d = all.rank() / 2 % 2, t = all.rank() % 2;
  const Members axes[] = {{.first = stage * 4 + t, .stride = 2, .count = 2},
                          {.first = (stage * 2 + d) * 2, .count = 2},
                          {.first = d * 2 + t, .stride = 4, .count = 2}};
  for (const Members& axis : axes) groups.push_back(all.split(axis, "axis", Lane::comm));
  return groups;
}

// Every rank begins and joins the collectives of its groups in another order.
std::vector<Values> collectives_of_groups(Communicator all, DType type) {
  Arena arena(Arena::Heap{}, Device::cpu);
  Queue q(Device::cpu, arena);
  const std::vector<Communicator> groups = groups_of(all);
  std::vector<Buffer> rooms, sums, parts, received;
  for (const Communicator& group : groups)
    rooms.push_back(group.make_room(arena, int64_t{501} * group.size() * size_of(type)));
  std::vector<Work> works;
  for (size_t round = 0; round < 30; ++round)
    for (size_t i = 0; i < groups.size(); ++i) {
      const size_t g = (i + round + static_cast<size_t>(all.rank())) % groups.size();
      const auto random = [&](int64_t n) {
        Buffer x = arena.make(Category::data, type, {n}, "x");
        fill_normal(q, x, 1, {.seed = 8 * round + g, .sample = static_cast<uint64_t>(all.rank())});
        return x;
      };
      sums.push_back(random(int64_t{501} * groups[g].size()));
      parts.push_back(random(501));
      received.push_back(random(int64_t{501} * groups[g].size()));
      works.push_back(round % 4 == 0 ? groups[g].all_reduce(q, sums.back())
                      : round % 4 == 1
                          ? groups[g].reduce_scatter(q, parts.back(), sums.back(), Write::add)
                      : round % 4 == 2 ? groups[g].all_gather(q, sums.back(), parts.back())
                                       : groups[g].all_to_all(q, received.back(), sums.back()));
    }
  if (all.rank() % 2 == 1) std::reverse(works.begin(), works.end());
  for (Work& work : works) work.join(q);
  std::vector<Values> found;
  for (const auto* buffers : {&sums, &parts, &received})
    for (const Buffer& x : *buffers) found.push_back(values_of(q, x));
  return found;
}

void compare_groups(const Communicator& group) {
  for (const DType type : {DType::f32, DType::bf16}) {
    std::vector<Values> expected;
    run_as_threads(group.size(), [&](Communicator threads) {
      auto found = collectives_of_groups(threads, type);
      if (threads.rank() == group.rank()) expected = std::move(found);
    });
    expect(collectives_of_groups(group, type) == expected, "groups", group);
  }
}

// What a rank passes to a neighbour in a round.
Buffer message(Queue& q, Arena& arena, int64_t values, int from, int to, int round) {
  Buffer x = arena.make(Category::data, DType::f32, {values}, "message");
  fill_normal(q, x, 1,
              {.seed = static_cast<uint64_t>(2 * round + (to > from ? 1 : 0)),
               .sample = static_cast<uint64_t>(from)});
  return x;
}

// A chain of ranks, each of which sends to its neighbours before it receives from them. Of every
// two rounds, one is joined before the next begins.
void compare_passing(const Communicator& all) {
  Arena arena(Arena::Heap{}, Device::cpu);
  Queue q(Device::cpu, arena);
  struct Link {
    Communicator group;
    int from, to;
  };
  std::vector<Link> links;  // of this rank
  for (int i = 0; i + 1 < all.size(); ++i)
    for (const bool down : {true, false}) {
      const Members both{.first = down ? i : i + 1, .stride = down ? 1 : -1, .count = 2};
      const bool ours = all.rank() == i || all.rank() == i + 1;
      const Communicator link =
          all.split(ours ? both : Members{.first = all.rank()}, down ? "down" : "up",
                    down ? Lane::send_down : Lane::send_up);
      if (ours) links.push_back({link, both.at(0), both.at(1)});
    }
  std::stable_partition(links.begin(), links.end(),
                        [&](const Link& link) { return link.from == all.rank(); });
  std::vector<Work> works;
  std::vector<Buffer> sent;
  std::vector<std::pair<Buffer, Buffer>> received;  // and what it should be
  for (int round = 0; round < 100; ++round) {
    const int64_t values = round % 40 == 7 ? 1 << 20 : 1000 + round;
    for (const Link& link : links) {
      Buffer x = message(q, arena, values, link.from, link.to, round);
      if (link.from == all.rank()) {
        works.push_back(link.group.pass(q, x));
        sent.push_back(std::move(x));
      } else {
        Buffer to = arena.make(Category::data, DType::f32, {values}, "received");
        works.push_back(link.group.pass(q, to));
        received.emplace_back(std::move(to), std::move(x));
      }
    }
    if (round % 2 == 0) continue;
    for (Work& work : works) work.join(q);
    works.clear();
    for (const auto& [found, expected] : received)
      expect(
          std::memcmp(found->raw(), expected->raw(), static_cast<size_t>(expected->nbytes())) == 0,
          fmt::format("pass, round {}", round), all);
    received.clear();
    sent.clear();
  }
}

// Stages, with every schedule; of 8 ranks, 2 or 4 stages of ranks that share the data.
std::vector<Case> pipelines(int ranks) {
  std::vector<Case> cases;
  for (const int stages : {2, 3, 4})
    for (const int schedule : {0, 1, 2}) {
      Case c;
      c.config.layers = 5;
      c.mesh.pipeline = stages;
      if (schedule == 1) c.pipeline.chunks = 2;
      if (schedule == 2) c.pipeline.kind = PipelineKind::zero_bubble;
      if (stages == 4) c.precision = Precision::bf16_mixed;
      if (ranks % stages == 0 && stages * c.pipeline.chunks <= 5) cases.push_back(c);
    }
  return cases;
}

// Ranks that share layers and sequences, alone and among others.
std::vector<Case> meshes(int ranks) {
  std::vector<Case> cases;
  for (const MeshShape& mesh : {MeshShape{.tensor = 2},
                                {.context = 2},
                                {.tensor = 3},
                                {.tensor = 4},
                                {.tensor = 2, .context = 2},
                                {.pipeline = 2, .tensor = 2},
                                {.pipeline = 2, .tensor = 2, .context = 2}}) {
    if (ranks % mesh.ranks() != 0) continue;
    Case c;
    c.mesh = mesh;
    if (cases.size() % 2 == 1) c.precision = Precision::bf16_mixed;
    if (cases.size() % 2 == 1) c.lora = every_map(0.1);
    cases.push_back(c);
  }
  return cases;
}

void compare_training(const Communicator& group) {
  std::vector<Case> cases(3);
  cases[0].micro_batch = 5;
  cases[1].precision = Precision::bf16_mixed;
  cases[2].lora = every_map(0.1);
  for (const Case& c : pipelines(group.size())) cases.push_back(c);
  for (const Case& c : meshes(group.size())) cases.push_back(c);
  for (const Case& c : cases)
    for (const auto& [name, sharding] : kStrategies) {
      if (c.pipeline.kind == PipelineKind::zero_bubble && sharding.gradients == Hold::shard)
        continue;
      // The ends of what strategies do are enough beside all of their meshes.
      if (c.mesh.ranks() > c.mesh.pipeline && sharding.weights != sharding.state) continue;
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

// For a rank that has nothing to do: until another one has failed.
void wait_for_the_end(const Communicator& group) {
  for (int i = 0; i < 10'000; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    group.check();
  }
}

// Rank 1 does nothing, and rank 0 waits for it in a group of the two.
void be_silent_in_group(const Communicator& all, Queue& q, const Tensor& x) {
  const bool ours = all.rank() < 2;
  const Communicator pair =
      all.split(ours ? Members{.count = 2} : Members{.first = all.rank()}, "pair", Lane::tensor);
  if (all.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(20));
  if (!ours) return wait_for_the_end(all);
  Work work = pair.all_reduce(q, x);
  work.join(q);
}

// This rank's group of these two; of itself alone if it is neither.
Communicator pair_of(const Communicator& all, int one, int other) {
  const bool ours = all.rank() == one || all.rank() == other;
  return all.split(ours ? Members{.first = one, .stride = other - one, .count = 2}
                        : Members{.first = all.rank()},
                   fmt::format("of {} and {}", one, other), Lane::tensor);
}

// Rank 2's process stops. Rank 1 waits for it, and rank 0, which has waited for longer, for rank 1.
void stop_behind_another(const Communicator& all, Queue& q, const Tensor& x) {
  const Communicator first = pair_of(all, 0, 1), second = pair_of(all, 1, 2);
  if (all.rank() == 2) std::raise(SIGSTOP);
  if (all.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
  Work work = (all.rank() == 0 ? first : second).all_reduce(q, x);
  work.join(q);
}

// Each waits for the next one, in a group of its own.
void wait_in_a_ring(const Communicator& all, Queue& q, const Tensor& x) {
  const Communicator pairs[] = {pair_of(all, 0, 1), pair_of(all, 1, 2), pair_of(all, 0, 2)};
  Work work = pairs[all.rank()].all_reduce(q, x);
  work.join(q);
}

// Rank 1 fails. Ranks 0 and 2 wait for each other in two groups of the two.
void fail_beside_group(const Communicator& all, Queue& q, const Tensor& x) {
  const bool ours = all.rank() != 1;
  Communicator pairs[2];
  for (Communicator& pair : pairs)
    pair = all.split(ours ? Members{.stride = 2, .count = 2} : Members{.first = 1}, "pair",
                     Lane::tensor);
  if (!ours) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    fail(Fault::file, "no such file");
  }
  Work work = pairs[all.rank() / 2].all_gather(q, x, pairs[0].slice_of(x));
  work.join(q);
}

// One rank calls something else, fails, or does nothing: the others say so, and all end.
void fail_on_purpose(Communicator group, std::string_view how) {
  Arena arena(Arena::Heap{}, Device::cpu);
  Queue q(Device::cpu, arena);
  const Buffer x = arena.make(Category::data, DType::f32, {int64_t{8} * group.size()}, "x");
  const Buffer y = arena.make(Category::data, DType::f32, {int64_t{16} * group.size()}, "y");
  if (group.rank() == 1 && how == "failed") fail(Fault::file, "no such file");
  if (how == "split-silent") return be_silent_in_group(group, q, x);
  if (how == "behind-silent") return stop_behind_another(group, q, x);
  if (how == "ring") return wait_in_a_ring(group, q, x);
  if (how == "split-failed") return fail_beside_group(group, q, x);
  if (how == "busy") {  // beside the collectives, a rank that lives may take its time
    const auto channel = group.open_channel("talk");
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    expect(channel->exchange("here").back() == "here", "busy", group);
    return;
  }
  if (how == "exchange") {
    Work work = group.rank() == 1 ? group.all_gather(q, x, group.slice_of(x))
                                  : group.all_to_all(q, x, y->rows(0, x->numel()));
    return work.join(q);
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
    compare_groups(group);
    compare_passing(group);
    const int parity = group.rank() % 2;
    compare_channel(
        group.split({.first = parity, .stride = 2, .count = (group.size() - parity + 1) / 2},
                    "parity", Lane::comm));
    compare_training(group);
  } catch (const Error& e) {
    fmt::print(stderr, "rank {} ends: {}\n", group.rank(), e.what());
    group.abort(e.what());
    // So that all others say why they end, too.
    if (how == "split-failed") std::this_thread::sleep_for(std::chrono::milliseconds(500));
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
