#include "tensor/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "support/message_of.h"

namespace capstan {
namespace {

Buffer make(Arena& arena, int64_t bytes, const char* name = "b",
            Category category = Category::activations) {
  return arena.make(category, DType::u8, {bytes}, name);
}

// What the call throws must be a bug, and its message must hold `part`.
template <class Call>
void expect_bug(const char* part, const Call& call) {
  try {
    call();
    ADD_FAILURE() << "did not throw; expected: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::bug);
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

// A plan of one setup buffer "w" and one phase "step" with the request "x", `bytes` long.
MemoryPlan small_plan(int64_t bytes = 1000) {
  Arena arena;
  const Buffer w = make(arena, 300, "w", Category::weights);
  const auto step = arena.phase("step");
  { const Buffer x = make(arena, bytes, "x"); }
  return arena.plan();
}

TEST(HeapArena, GivesAlignedMemoryAndCounts) {
  Arena arena{Arena::Heap{}};
  {
    const auto phase = arena.phase("anything");
    const Buffer a = make(arena, 1), b = make(arena, 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a->raw()) % kBufferAlignment, 0u);
    EXPECT_NE(b->raw(), nullptr);
    EXPECT_NE(a->raw(), b->raw());
  }
  { const Buffer c = make(arena, 500); }
  EXPECT_EQ(at(arena.highest(), Category::activations), 512);
}

TEST(PinnedArena, OfAnEmptyPlanPinsNothing) {
  const Arena arena(Arena().plan(), Arena::Pinned{});
  EXPECT_TRUE(arena.pinned());
  EXPECT_EQ(arena.allocated_bytes(), 0);
}

TEST(ReplayingArena, HoldsWhatLiesInItsAllocation) {
  Arena arena(small_plan());
  const Buffer w = make(arena, 300, "w", Category::weights);
  int32_t elsewhere = 0;
  EXPECT_TRUE(arena.holds(w));
  EXPECT_TRUE(arena.holds(w->rows(299, 1)));
  EXPECT_FALSE(arena.holds(Tensor(&elsewhere, DType::i32, {1})));
  EXPECT_FALSE(arena.holds(Tensor()));
}

TEST(GpuArena, RefusesToPinMoreThanAnyMachineHas) {
  std::string_view why;
  if (!cuda_present(&why)) GTEST_SKIP() << why;
  try {
    const Arena arena(small_plan(int64_t{1} << 50), Arena::Pinned{});
    FAIL() << "pinned a pebibyte";
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::does_not_fit) << e.what();
    EXPECT_NE(std::string(e.what()).find("host memory"), std::string::npos) << e.what();
  }
}

TEST(Buffers, MoveAndReleaseOnce) {
  Arena arena{Arena::Heap{}};
  Buffer a = make(arena, 100);
  void* const address = a->raw();
  Buffer b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): moved-from is empty by contract
  EXPECT_FALSE(*a);
  EXPECT_EQ(b->raw(), address);
  b = make(arena, 200);
  EXPECT_TRUE(b);
  Buffer& same = b;
  b = std::move(same);
  EXPECT_TRUE(b);
  b.release();
  b.release();
  EXPECT_FALSE(b);
}

TEST(RecordingArena, HasNoMemoryButShapes) {
  Arena arena;
  const Buffer a = arena.make(Category::weights, DType::bf16, {3, 5}, "w");
  EXPECT_TRUE(a);
  EXPECT_EQ(a->raw(), nullptr);
  EXPECT_EQ(a->shape(), Shape({3, 5}));
  EXPECT_EQ(a->dtype(), DType::bf16);
}

TEST(ReplayingArena, GivesThePlannedOffsetsInEveryRepetition) {
  Arena arena(small_plan());
  EXPECT_EQ(arena.allocated_bytes(), 512 + 1024);
  const Buffer w = make(arena, 300, "w", Category::weights);
  void* first = nullptr;
  for (int i = 0; i < 3; ++i) {
    const auto step = arena.phase("step");
    const Buffer x = make(arena, 1000, "x");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(x->raw()) % kBufferAlignment, 0u);
    if (i == 0) first = x->raw();
    EXPECT_EQ(x->raw(), first);
    EXPECT_EQ(static_cast<std::byte*>(first) - static_cast<std::byte*>(w->raw()), 512);
  }
}

TEST(ReplayingArena, TakesSmallerRequestsInTheSamePlace) {
  Arena arena(small_plan());
  const Buffer w = make(arena, 300, "w", Category::weights);
  void* large = nullptr;
  for (const int64_t bytes : {1000, 10, 1}) {
    const auto step = arena.phase("step");
    const Buffer x = make(arena, bytes, "x");
    if (bytes == 1000) large = x->raw();
    EXPECT_EQ(x->raw(), large);
    EXPECT_EQ(x->nbytes(), bytes);
  }
}

TEST(ReplayingArena, RefusesWhatWasNotPlanned) {
  Arena arena(small_plan());
  expect_bug("'w'", [&] { make(arena, 300, "x"); });
  const Buffer w = make(arena, 300, "w", Category::weights);
  expect_bug("was not planned", [&] { make(arena, 1, "more", Category::weights); });
  expect_bug("phase 'validate' was not planned", [&] { arena.phase("validate"); });
  const auto step = arena.phase("step");
  expect_bug("1280 bytes of 'x' (activations) where 1024", [&] { make(arena, 1025, "x"); });
  expect_bug("(workspace)", [&] { make(arena, 1000, "x", Category::workspace); });
  expect_bug("'y'", [&] { make(arena, 1000, "y"); });
  { const Buffer x = make(arena, 1000, "x"); }
  expect_bug("was not planned", [&] { make(arena, 1, "x"); });
  expect_bug("inside phase 'step'", [&] { arena.phase("step"); });
}

TEST(ReplayingArena, RefusesABufferThatIsKeptLongerThanPlanned) {
  Arena recording;
  {
    const auto step = recording.phase("step");
    { const Buffer x = make(recording, 1000, "x"); }
    const Buffer y = make(recording, 1000, "y");
  }
  const MemoryPlan plan = recording.plan();
  EXPECT_EQ(plan.total_bytes, 1024);  // y takes the place of x
  Arena arena(plan);
  const auto step = arena.phase("step");
  const Buffer x = make(arena, 1000, "x");
  expect_bug("1 buffers of phase 'step' are live at request 'y'", [&] { make(arena, 1000, "y"); });
}

TEST(ReplayingArena, ReportsABufferThatOutlivesItsPhase) {
  Arena arena(small_plan());
  std::optional<Buffer> leaked;
  {
    const auto step = arena.phase("step");
    leaked = make(arena, 1000, "x");
  }
  expect_bug("buffers of an earlier phase are live", [&] { arena.phase("step"); });
  leaked.reset();
  EXPECT_NO_THROW(arena.phase("step"));
}

TEST(ReplayingArena, KeepsTheContentsOfSetupBuffersAcrossPhases) {
  Arena arena(small_plan());
  const Buffer w = make(arena, 300, "w", Category::weights);
  std::memset(w->raw(), 0x5a, 300);
  for (int i = 0; i < 3; ++i) {
    const auto step = arena.phase("step");
    const Buffer x = make(arena, 1000, "x");
    std::memset(x->raw(), 0xff, 1000);
  }
  const auto* bytes = w->as<uint8_t>();
  EXPECT_TRUE(std::all_of(bytes, bytes + 300, [](uint8_t b) { return b == 0x5a; }));
}

TEST(ReplayingArena, SaysWhenTheSystemHasNoSuchMemory) {
  MemoryPlan plan = small_plan();
  plan.total_bytes = int64_t{1} << 60;
  try {
    Arena arena(plan);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::does_not_fit);
    EXPECT_NE(std::string(e.what()).find("1024 PiB"), std::string::npos) << e.what();
  }
}

TEST(ReplayingArena, ADefaultPlanIsRefusedAndAnEmptyOneIsNot) {
  expect_bug("without a setup", [] { Arena arena{MemoryPlan()}; });
  Arena arena(Arena().plan());
  EXPECT_EQ(arena.allocated_bytes(), 0);
  expect_bug("only a recording", [&] { (void)arena.plan(); });
}

TEST(RecordingArena, SetupGoesOnAfterAPhase) {
  const auto program = [](Arena& arena) {
    std::vector<Buffer> kept;
    kept.push_back(make(arena, 100, "weights", Category::weights));
    {
      const auto step = arena.phase("step");
      const Buffer x = make(arena, 700, "x");
    }
    kept.push_back(make(arena, 200, "late", Category::weights));
    const auto step = arena.phase("step");
    kept.push_back(make(arena, 700, "x"));
    std::vector<void*> addresses;
    addresses.reserve(kept.size());
    for (const Buffer& b : kept) addresses.push_back(b->raw());
    kept.pop_back();
    return addresses;
  };
  Arena recording;
  program(recording);
  const MemoryPlan plan = recording.plan();
  ASSERT_EQ(plan.phases.size(), 2u);
  EXPECT_EQ(plan.phases[0].buffers.size(), 2u);
  EXPECT_EQ(plan.phases[1].buffers.size(), 1u);
  Arena arena(plan);
  std::vector<void*> addresses = program(arena);
  std::sort(addresses.begin(), addresses.end());
  EXPECT_EQ(std::unique(addresses.begin(), addresses.end()), addresses.end());
  EXPECT_EQ(arena.highest(), plan.highest);
}

TEST(RecordingArena, RecordingAPhaseAgainKeepsThePlan) {
  Arena arena;
  for (const int64_t bytes : {1000, 1000, 10}) {  // the last time with a smaller batch
    const auto step = arena.phase("step");
    const Buffer x = make(arena, bytes, "x");
    const Buffer y = make(arena, 2 * bytes, "y");
  }
  const MemoryPlan plan = arena.plan();
  ASSERT_EQ(plan.phases.size(), 2u);
  ASSERT_EQ(plan.phases[1].buffers.size(), 2u);
  EXPECT_EQ(plan.phases[1].buffers[0].bytes, 1024);
  EXPECT_EQ(plan.total_bytes, 1024 + 2048);
  const auto step = arena.phase("step");
  expect_bug("where 1024 bytes", [&] { make(arena, 3000, "x"); });
}

TEST(RecordingArena, ReportsABufferThatOutlivesItsPhase) {
  for (const bool released_later : {false, true}) {
    Arena arena;
    std::optional<Buffer> leaked;
    {
      const auto step = arena.phase("step");
      leaked = make(arena, 100, "leaked");
    }
    if (released_later) leaked.reset();  // after the phase is too late as well
    expect_bug("'leaked' outlives its phase 'step'", [&] { (void)arena.plan(); });
  }
}

TEST(RecordingArena, SetupBuffersStayWhenTheyAreReleased) {
  const auto program = [](Arena& arena) {
    { const Buffer passing = make(arena, 512, "passing", Category::workspace); }
    const Buffer kept = make(arena, 512, "kept", Category::workspace);
  };
  Arena recording;
  program(recording);
  const MemoryPlan plan = recording.plan();
  EXPECT_EQ(plan.total_bytes, 1024);
  Arena arena(plan);
  program(arena);
  EXPECT_EQ(arena.highest(), plan.highest);
  EXPECT_EQ(recording.highest(), plan.highest);
}

// A made-up program: a random mix of requests and releases in two phases, a function of `seed`.
// Every live buffer is filled with its own number and checked when it ends.
class RandomProgram {
 public:
  RandomProgram(Arena& arena, uint64_t seed, int64_t divisor)
      : arena_(arena), seed_(seed), divisor_(divisor) {}

  void run() {
    std::vector<Live> setup;
    for (uint64_t i = 0; i < 4; ++i) setup.push_back(request(1000 + i));
    for (int repeat = 0; repeat < 2; ++repeat)
      for (const uint64_t phase : {uint64_t{1}, uint64_t{2}}) run_phase(phase);
    for (Live& l : setup) end(l);
  }
  bool intact() const { return intact_; }

 private:
  struct Live {
    Buffer buffer;
    uint8_t mark;
  };

  void run_phase(uint64_t phase) {
    const Rng rng({.seed = seed_, .step = phase});
    const auto guard = arena_.phase(phase == 1 ? "train" : "validate");
    std::vector<Live> live;
    for (uint64_t i = 0; i < 60; ++i) {
      if (!live.empty() && rng.below(2 * i, 5) < 2) {
        const auto victim = static_cast<std::ptrdiff_t>(rng.below(2 * i + 1, live.size()));
        end(live[static_cast<size_t>(victim)]);
        live.erase(live.begin() + victim);
      } else {
        live.push_back(request(100 * phase + i));
      }
    }
    for (Live& l : live) end(l);
  }

  Live request(uint64_t n) {
    const Rng rng({.seed = seed_, .sample = n});
    const auto category = static_cast<Category>(rng.below(0, kCategories));
    const auto bytes = static_cast<int64_t>(1 + rng.below(1, 20000)) / divisor_;
    Live l{arena_.make(category, DType::u8, {bytes}, "b"), static_cast<uint8_t>(n)};
    if (l.buffer->raw() != nullptr)
      std::memset(l.buffer->raw(), l.mark, static_cast<size_t>(bytes));
    return l;
  }

  void end(Live& l) {
    const auto* bytes = l.buffer->as<uint8_t>();
    if (bytes != nullptr)
      intact_ = intact_ && std::all_of(bytes, bytes + l.buffer->nbytes(),
                                       [&](uint8_t b) { return b == l.mark; });
    l.buffer.release();
  }

  Arena& arena_;
  uint64_t seed_;
  int64_t divisor_;
  bool intact_ = true;
};

TEST(Arenas, RandomProgramsNeverShareMemoryAndReachThePlannedHeights) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Arena recording;
    RandomProgram(recording, seed, 1).run();
    const MemoryPlan plan = recording.plan();
    ASSERT_GE(plan.total_bytes, plan.peak_bytes);
    ASSERT_LE(static_cast<double>(plan.total_bytes), 1.3 * static_cast<double>(plan.peak_bytes));
    ASSERT_EQ(recording.highest(), plan.highest) << "seed " << seed;

    Arena replaying(plan);
    ASSERT_EQ(replaying.allocated_bytes(), plan.total_bytes);
    RandomProgram program(replaying, seed, 1);
    program.run();
    ASSERT_TRUE(program.intact()) << "seed " << seed;
    ASSERT_EQ(replaying.highest(), plan.highest) << "seed " << seed;
  }
}

TEST(Arenas, SmallerBatchesRunOnThePlanOfTheLargest) {
  Arena recording;
  RandomProgram(recording, 5, 1).run();
  Arena replaying(recording.plan());
  RandomProgram program(replaying, 5, 7);
  EXPECT_NO_THROW(program.run());
  EXPECT_TRUE(program.intact());
}

// A pipeline's stage: forward passes keep something for the backward passes, which come later, in
// two parts of which the first keeps something for the second.
struct InSlots {
  Arena& arena;
  int slots;
  std::vector<std::vector<Buffer>> kept{static_cast<size_t>(slots)};

  Buffer make(Category category, int64_t bytes, int value) {
    Buffer b = arena.make(category, DType::u8, {bytes}, "x");
    if (b->raw() != nullptr) std::memset(b->raw(), value, static_cast<size_t>(bytes));
    return b;
  }
  static void expect(const Buffer& b, int value) {
    if (b->raw() == nullptr) return;
    for (int64_t i = 0; i < b->nbytes(); ++i) ASSERT_EQ(b->as<uint8_t>()[i], value);
  }
  std::vector<Buffer>& of(int slot) { return kept[static_cast<size_t>(slot)]; }

  void forward(int slot, int64_t size) {
    const auto phase = arena.phase("forward", {slot, slots});
    const Buffer passing = make(Category::workspace, 2 * size, 200);
    for (int i = 0; i < 3; ++i) {
      of(slot).push_back(make(Category::activations, size * (i + 1), slot * 8 + i));
      const Buffer other = make(Category::activations, size, 201);
      expect(passing, 200);
    }
  }
  void backward(int slot, int64_t size) {
    const auto phase = arena.phase("backward", {slot, slots});
    for (int i = 2; i >= 0; --i) {
      expect(of(slot).back(), slot * 8 + i);
      of(slot).pop_back();
      const Buffer passing = make(Category::workspace, size, 202);
    }
    of(slot).push_back(make(Category::gradients, 2 * size, slot * 8 + 5));
  }
  void weights(int slot) {
    const auto phase = arena.phase("weights", {slot, slots});
    const Buffer passing = make(Category::workspace, 100, 203);
    expect(of(slot).back(), slot * 8 + 5);
    of(slot).clear();
  }
  void other() {
    const auto phase = arena.phase("other");
    make(Category::workspace, 10'000, 204);
  }
};

MemoryPlan plan_in_slots(int slots, int64_t size) {
  Arena recording;
  const Buffer setup = recording.make(Category::weights, DType::u8, {300}, "w");
  InSlots program{recording, slots};
  program.forward(0, size);
  program.backward(0, size);
  program.weights(0);
  program.other();
  // All slots at once, which shows what is live then.
  for (int slot = 0; slot < slots; ++slot) program.forward(slot, size);
  for (int slot = 0; slot < slots; ++slot) program.backward(slot, size);
  for (int slot = 0; slot < slots; ++slot) program.weights(slot);
  return recording.plan();
}

TEST(Arenas, PhasesInSlotsKeepWhatOthersDoNotTouch) {
  const int slots = 4;
  const int64_t size = 1024;
  const MemoryPlan plan = plan_in_slots(slots, size);
  EXPECT_EQ(plan.slot_bytes, 6 * size);
  EXPECT_EQ(plan.total_bytes, 512 + std::max(slots * 6 * size + 3 * size, int64_t{10'240}));
  EXPECT_EQ(at(plan.highest, Category::activations), (slots * 6 + 1) * size);
  EXPECT_EQ(plan.peak_bytes, 512 + (slots * 6 + 3) * size);
  const Rng rng({.seed = 4});
  Arena arena(plan);
  const Buffer setup = arena.make(Category::weights, DType::u8, {300}, "w");
  InSlots program{arena, slots};
  std::array<int, 4> done{};  // parts, by slot
  for (uint64_t i = 0; i < 2000; ++i) {
    const int slot = static_cast<int>(rng.below(i, slots));
    const int64_t some = 1 + static_cast<int64_t>(rng.below(i + 5000, 1024));
    int& part = done[static_cast<size_t>(slot)];
    if (part == 0) program.forward(slot, some);
    if (part == 1) program.backward(slot, some);
    if (part == 2) program.weights(slot);
    part = (part + 1) % 3;
    if (done == std::array<int, 4>{}) program.other();
  }
  EXPECT_EQ(at(arena.highest(), Category::activations), at(plan.highest, Category::activations));
  for (size_t c = 0; c < plan.highest.size(); ++c) EXPECT_LE(arena.highest()[c], plan.highest[c]);
}

TEST(Arenas, RefuseWhatASlotWasNotPlannedFor) {
  const MemoryPlan plan = plan_in_slots(2, 1024);
  Arena arena(plan);
  const Buffer setup = arena.make(Category::weights, DType::u8, {300}, "w");
  InSlots program{arena, 2};
  program.forward(1, 1024);
  EXPECT_NE(message_of(Fault::bug, [&] { program.forward(1, 1024); })
                .find("'forward' in slot 1 of 2 finds 3 buffers there, 0 are planned"),
            std::string::npos);
  EXPECT_NE(message_of(Fault::bug, [&] { program.other(); }).find("3 buffers of an earlier phase"),
            std::string::npos);
  EXPECT_NE(message_of(Fault::bug,
                       [&] {
                         arena.phase("backward", {2, 3});
                       })
                .find("slot 2 of 2"),
            std::string::npos);
  program.backward(1, 1024);
  program.weights(1);
  // A buffer that was planned to end with its phase does not.
  Buffer passing;
  {
    const auto phase = arena.phase("forward", {0, 2});
    passing = program.make(Category::workspace, 100, 1);
  }
  EXPECT_NE(message_of(Fault::bug, [&] { program.weights(0); }).find("1 buffers of an earlier"),
            std::string::npos);
}

TEST(Arenas, TheSetupStartsAsZeros) {
  const auto sum = [](Arena& arena) {
    const Buffer b = arena.make(Category::optimizer, DType::f32, {1000}, "moment");
    double total = 0;
    for (int i = 0; i < 1000; ++i) total += std::abs(b->as<float>()[i]);
    return total;
  };
  Arena recording;
  recording.make(Category::optimizer, DType::f32, {1000}, "moment");
  Arena replay(recording.plan()), heap{Arena::Heap{}};
  EXPECT_EQ(sum(replay), 0);
  EXPECT_EQ(sum(heap), 0);
}

}  // namespace
}  // namespace capstan
