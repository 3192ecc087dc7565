// Micro-batches on their way to a device, which is slower than the host is here.

#include "data/batch/device_batch.h"

#include <gtest/gtest.h>

#include <memory>

#include "ops/elementwise.h"
#include "train/engine.h"

namespace capstan::test {
namespace {

CAPSTAN_ON_EVERY_DEVICE(DeviceBatches);

constexpr BatchLimits kLimits{.tokens = 300, .documents = 5, .longest = 200};
constexpr int64_t kBatches = 24;

// Values whose copy takes a GPU longer than a batch takes the host.
int64_t ballast_for(Device device) {
  return device == Device::cuda ? 1 << 24 : 1;
}

// Of 1 to kLimits.tokens tokens, in other documents each.
void fill_batch(HostBatch& b, int64_t number) {
  b.clear();
  const int64_t tokens = 1 + (number * 97) % kLimits.tokens;
  const int64_t documents = std::min(tokens, 1 + number % kLimits.documents);
  for (int64_t t = 0; t < tokens; ++t) {
    b.ids.push_back(static_cast<int32_t>(1000 * number + t));
    b.labels.push_back(static_cast<int32_t>(-1000 * number - t));
    b.positions.push_back(static_cast<int32_t>(t));
    b.ordinals.push_back(static_cast<int32_t>(7 * number + t));
  }
  for (int64_t d = 1; d < documents; ++d) b.starts.push_back(static_cast<int32_t>(d));
  b.starts.push_back(static_cast<int32_t>(tokens));
  b.longest = tokens;
  b.targets = number;
}

// Everything on the device: the room for a batch, and what was found there, batch by batch.
struct Stage {
  explicit Stage(Queue& queue)
      : q(queue),
        batch(q, kLimits, ModelConfig(), DeviceBatch::Arrays::with_ordinals),
        found(q.arena().make(Category::data, DType::i32, {kBatches, 5, kLimits.tokens}, "found")),
        ballast(
            q.arena().make(Category::data, DType::i32, {2, ballast_for(q.target())}, "ballast")) {}

  // On the queue, after a while.
  void note(int64_t number, const Batch& b) {
    copy(q, ballast->rows(1, 1), ballast->rows(0, 1));
    const Tensor place = found->rows(number, 1).reshape({5 * kLimits.tokens});
    const Tensor arrays[] = {b.ids_T, b.labels_T, b.positions_T, b.ordinals_T, b.mask.starts};
    for (int64_t i = 0; i < 5; ++i)
      copy(q, place.rows(i * kLimits.tokens, arrays[i].dim(0)), arrays[i]);
  }

  void expect_found(int64_t number) {
    HostBatch b(kLimits.tokens, kLimits.documents);
    fill_batch(b, number);
    std::vector<int32_t> all(static_cast<size_t>(5 * kLimits.tokens));
    q.download(all.data(), found->rows(number, 1));
    int64_t first = 0;
    for (const auto* expected : {&b.ids, &b.labels, &b.positions, &b.ordinals, &b.starts}) {
      const std::vector<int32_t> part(all.begin() + first,
                                      all.begin() + first + std::ssize(*expected));
      EXPECT_EQ(part, *expected) << "batch " << number;
      first += kLimits.tokens;
    }
  }

  Queue& q;
  DeviceBatch batch;
  Buffer found, ballast;
};

// With or without pinned memory beside a GPU.
void on(Device device, bool with_host, const std::function<void(Stage&)>& body) {
  Arena recording, recording_host;
  {
    Queue q(Device::sim, recording, with_host ? recording_host : recording, {.device = device});
    const Stage rehearsed(q);
  }
  Arena arena(recording.plan(), device), host(recording_host.plan(), Arena::Pinned{});
  Queue q(device, arena, with_host ? host : arena);
  Stage setup(q);
  EXPECT_EQ(setup.batch.copies_ahead(), device == Device::cuda && with_host);
  body(setup);
  EXPECT_EQ(arena.highest(), recording.plan().highest);
  EXPECT_EQ(host.highest(), recording_host.plan().highest);
}

TEST_P(DeviceBatches, ArriveWholeAndInTheirOrder) {
  for (const bool with_host : {false, true})
    on(GetParam(), with_host, [](Stage& s) {
      HostBatch host(kLimits.tokens, kLimits.documents);
      for (int64_t n = 0; n < kBatches; ++n) {
        fill_batch(host, n);
        const Batch b = s.batch.upload(s.q, host);
        host.clear();  // has been read
        EXPECT_EQ(b.targets, n);
        s.note(n, b);
      }
      for (int64_t n = 0; n < kBatches; ++n) s.expect_found(n);
    });
}

TEST_P(DeviceBatches, ThatWereSentAheadLeaveTheOneBeforeInItsPlace) {
  on(GetParam(), true, [](Stage& s) {
    HostBatch two[] = {{kLimits.tokens, kLimits.documents}, {kLimits.tokens, kLimits.documents}};
    fill_batch(two[0], 0);
    for (int64_t n = 0; n < kBatches; ++n) {
      const Batch b = s.batch.upload(s.q, two[n % 2]);
      fill_batch(two[(n + 1) % 2], n + 1);
      if (s.batch.copies_ahead()) s.batch.send(two[(n + 1) % 2]);
      s.note(n, b);
    }
    for (int64_t n = 0; n < kBatches; ++n) s.expect_found(n);
  });
}

// As for an evaluation between two steps; and a batch that is filled anew is another.
TEST_P(DeviceBatches, ThatWereSentInVainDoNoHarm) {
  on(GetParam(), true, [](Stage& s) {
    HostBatch wanted(kLimits.tokens, kLimits.documents), vain(kLimits.tokens, kLimits.documents);
    for (int64_t n = 0; n < kBatches; ++n) {
      fill_batch(vain, 2 * n);
      if (s.batch.copies_ahead()) s.batch.send(vain);
      HostBatch& b = n % 3 == 0 ? vain : wanted;
      fill_batch(b, n);
      s.note(n, s.batch.upload(s.q, b));
    }
    for (int64_t n = 0; n < kBatches; ++n) s.expect_found(n);
  });
}

// The same memory as four buffers of their own.
TEST(DeviceBatchPlan, RoundsEachArrayUpAsABuffer) {
  for (const int64_t tokens : {1, 63, 64, 65, 300}) {
    Arena arena;
    Queue q(Device::sim, arena);
    const DeviceBatch batch(q, {.tokens = tokens, .documents = 3, .longest = tokens}, {});
    EXPECT_EQ(arena.plan().total_bytes, 3 * aligned_to_buffers(4 * tokens) + kBufferAlignment);
    EXPECT_EQ(batch.largest().mask.starts.dim(0), 4);
  }
}

}  // namespace
}  // namespace capstan::test
