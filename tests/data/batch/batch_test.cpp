#include "data/batch/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "data/batch/micro_batches.h"
#include "data/errors.h"
#include "ops/head_loss.h"

namespace capstan {
namespace {

using Ids = std::vector<int32_t>;

constexpr int32_t kX = kIgnore;

// Samples of 2, 3, … tokens, all different, with masks of every kind.
Dataset ragged(int32_t samples) {
  Dataset data;
  for (int32_t i = 0; i < samples; ++i) {
    Ids tokens(static_cast<size_t>(i % 11 + 2));
    std::iota(tokens.begin(), tokens.end(), 1 + 20 * i);
    data.add(tokens, i % (i % 11 + 3));
  }
  return data;
}

std::vector<int64_t> first_samples(int64_t n) {
  std::vector<int64_t> ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

Dataset two() {
  Dataset data;
  data.add(Ids{1, 2, 3, 4}, 2);
  data.add(Ids{5, 6}, 0);
  return data;
}

TEST(Pack, PutsDocumentsOneAfterTheOther) {
  HostBatch batch(8, 2);
  pack(batch, two(), first_samples(2), {.max_seq_length = 8, .vocab = 10});
  EXPECT_EQ(batch.ids, (Ids{1, 2, 3, 5}));
  EXPECT_EQ(batch.labels, (Ids{kX, 3, 4, 6}));
  EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 0}));
  EXPECT_EQ(batch.starts, (Ids{0, 3, 4}));
  EXPECT_EQ(batch.tokens(), 4);
  EXPECT_EQ(batch.documents(), 2);
  EXPECT_EQ(batch.targets, 3);
  EXPECT_EQ(batch.longest, 3);
  EXPECT_EQ(batch.padding, 0);
  EXPECT_EQ(batch.truncated, 0);
}

TEST(Pack, LabelsEverySpanThatCounts) {
  Dataset data;
  data.add(Ids{1, 2, 3, 4, 5, 6, 7}, std::vector<TargetSpan>{{0, 2}, {4, 6}});
  data.add(Ids{8, 9, 10}, std::vector<TargetSpan>{});
  HostBatch batch(16, 2);
  pack(batch, data, first_samples(2), {.max_seq_length = 8, .vocab = 20});
  EXPECT_EQ(batch.labels, (Ids{2, kX, kX, 5, 6, kX, kX, kX}));
  EXPECT_EQ(batch.targets, 3);
  pack(batch, data, first_samples(2), {.max_seq_length = 4, .vocab = 20});
  EXPECT_EQ(batch.labels, (Ids{2, kX, kX, 5, kX, kX})) << "a span is cut with its sample";
  EXPECT_EQ(batch.targets, 2);
}

TEST(Batch, CutsInstructionsToTokens) {
  Dataset data = two();
  data.set_cut(Cut::tokens);
  HostBatch batch(8, 2);
  pack(batch, data, first_samples(2), {.max_seq_length = 3, .vocab = 10});
  EXPECT_EQ(batch.ids, (Ids{1, 2, 5}));
  EXPECT_EQ(batch.labels, (Ids{kX, 3, 6})) << "three tokens: 1, 2 and the label 3";
  EXPECT_EQ(batch.truncated, 1);
  EXPECT_EQ(largest_batch(data, 1, {.max_seq_length = 3, .vocab = 10}), 2);
}

TEST(Pad, FillsEachRowToTheLongest) {
  HostBatch batch(8, 2);
  pad(batch, two(), first_samples(2), {.max_seq_length = 8, .vocab = 10});
  EXPECT_EQ(batch.ids, (Ids{1, 2, 3, 5, 0, 0}));
  EXPECT_EQ(batch.labels, (Ids{kX, 3, 4, 6, kX, kX}));
  EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(batch.ordinals, (Ids{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(batch.starts, (Ids{0, 3, 6}));
  EXPECT_EQ(batch.targets, 3);
  EXPECT_EQ(batch.longest, 3);
  EXPECT_EQ(batch.padding, 2);
}

TEST(Pad, RoundsUpToAMultipleWithinTheLimit) {
  HostBatch batch(16, 2);
  pad(batch, two(), first_samples(2), {.max_seq_length = 8, .vocab = 10, .multiple = 4});
  EXPECT_EQ(batch.starts, (Ids{0, 4, 8}));
  pad(batch, two(), first_samples(2), {.max_seq_length = 7, .vocab = 10, .multiple = 8});
  EXPECT_EQ(batch.starts, (Ids{0, 7, 14}));
}

TEST(Batch, LongDocumentsAreCutAndCounted) {
  HostBatch batch(8, 2);
  for (const auto fill : {static_cast<decltype(&pad)>(&pack), &pad}) {
    fill(batch, two(), first_samples(2), {.max_seq_length = 2, .vocab = 10}, 0);
    EXPECT_EQ(batch.ids[0], 1);
    EXPECT_EQ(batch.ids[1], 2);
    EXPECT_EQ(batch.ids[2], 5);
    EXPECT_EQ(batch.labels[1], 3) << "the token after the cut is still a label";
    EXPECT_EQ(batch.longest, 2);
    EXPECT_EQ(batch.targets, 2);
    EXPECT_EQ(batch.truncated, 1);
  }
}

using Position = std::tuple<int32_t, int32_t, int32_t, int32_t>;  // token, label, position, ordinal

// What a batch teaches: its tokens without the padding, which the dataset's own ids never match.
std::vector<Position> content(const HostBatch& batch) {
  std::vector<Position> all;
  for (size_t t = 0; t < batch.ids.size(); ++t)
    if (batch.ids[t] != 0)
      all.emplace_back(batch.ids[t], batch.labels[t], batch.positions[t], batch.ordinals[t]);
  std::sort(all.begin(), all.end());
  return all;
}

TEST(Batch, PackedAndPaddedHoldTheSame) {
  const Dataset data = ragged(40);
  const auto ids = first_samples(40);
  for (const int64_t length : {1, 3, 7, 100}) {
    const BatchOptions options{.max_seq_length = length, .vocab = 1000, .multiple = 4};
    HostBatch packed(1000, 40), padded(1000, 40);
    pack(packed, data, ids, options);
    pad(padded, data, ids, options);
    EXPECT_EQ(content(packed), content(padded)) << length;
    EXPECT_EQ(packed.targets, padded.targets);
    EXPECT_EQ(packed.truncated, padded.truncated);
    EXPECT_EQ(packed.tokens(), padded.tokens() - padded.padding);
    EXPECT_EQ(packed.targets, std::ssize(packed.labels) -
                                  std::count(packed.labels.begin(), packed.labels.end(), kIgnore));
    EXPECT_EQ(packed.targets, count(data, length).targets);
    EXPECT_EQ(packed.truncated, count(data, length).truncated);
  }
}

TEST(Batch, NamesTheSampleWhoseIdsAreTooLarge) {
  HostBatch batch(8, 2);
  const Dataset data = two();
  expect_error(Fault::file,
               {"sample 1: token 1 has id 6", "ends at 5", "use this model's tokenizer"},
               [&] { pack(batch, data, first_samples(2), {.max_seq_length = 8, .vocab = 6}); });
  Dataset named;
  const TargetSpan all{0, 2};
  named.add(Ids{1, 9}, {&all, 1}, {.file = named.add_file("a.json"), .line = 3});
  expect_error(Fault::file, {"a.json:3: token 1 has id 9"},
               [&] { pack(batch, named, first_samples(1), {.max_seq_length = 8, .vocab = 6}); });
  Dataset negative;
  negative.add(Ids{1, -1}, 0);
  expect_error(Fault::file, {"sample 0: token 1 has id -1"},
               [&] { pad(batch, negative, first_samples(1), {.max_seq_length = 8, .vocab = 6}); });
}

TEST(Batch, RefusesWhatDoesNotFit) {
  HostBatch batch(5, 2);
  const BatchOptions options{.max_seq_length = 8, .vocab = 10};
  EXPECT_NO_THROW(pack(batch, two(), first_samples(2), options));
  expect_error(Fault::bug, {"5 tokens in 2 documents cannot hold 6 tokens in 2"},
               [&] { pad(batch, two(), first_samples(2), options); });
  const std::vector<int64_t> three = {1, 1, 1};
  expect_error(Fault::bug, {"cannot hold 3 tokens in 3"},
               [&] { pack(batch, two(), three, options); });
}

TEST(LargestBatch, IsReachedAndNeverPassed) {
  const Dataset data = two();
  const BatchOptions packed{.max_seq_length = 8, .vocab = 10};
  const BatchOptions padded{.max_seq_length = 8, .vocab = 10, .packed = false, .multiple = 2};
  EXPECT_EQ(largest_batch(data, 1, packed), 3);
  EXPECT_EQ(largest_batch(data, 2, packed), 4);
  EXPECT_EQ(largest_batch(data, 9, packed), 4) << "no sample is taken twice";
  EXPECT_EQ(largest_batch(data, 1, padded), 4);
  EXPECT_EQ(largest_batch(data, 2, padded), 8);
  EXPECT_EQ(largest_batch(Dataset(), 2, packed), 0);
}

TEST(MicroBatches, AnyCutHoldsTheSame) {
  const Dataset data = ragged(23);
  const auto ids = first_samples(23);
  const auto all = [&](int64_t micro_batch, bool is_packed) {
    MicroBatches micro(data, micro_batch,
                       {.max_seq_length = 7, .vocab = 1000, .packed = is_packed});
    micro.start(ids);
    std::vector<Position> found;
    int64_t targets = 0, batches = 0;
    while (const HostBatch* batch = micro.next()) {
      const auto part = content(*batch);
      found.insert(found.end(), part.begin(), part.end());
      targets += batch->targets;
      ++batches;
      EXPECT_LE(batch->tokens(), micro.max_tokens());
      EXPECT_EQ(batch->documents(), std::ssize(micro.samples()));
    }
    EXPECT_EQ(batches, micro.count());
    EXPECT_EQ(targets, micro.targets()) << "known before the first micro-batch";
    std::sort(found.begin(), found.end());
    return found;
  };
  const auto whole = all(23, true);
  for (const int64_t micro_batch : {1, 2, 8, 22, 24, 1000})
    for (const bool is_packed : {true, false})
      EXPECT_EQ(all(micro_batch, is_packed), whole) << micro_batch << " packed: " << is_packed;
}

TEST(MicroBatches, TheBufferNeverMoves) {
  const Dataset data = ragged(40);
  for (const bool is_packed : {true, false}) {
    MicroBatches micro(data, 4, {.max_seq_length = 9, .vocab = 1000, .packed = is_packed});
    const auto ids = first_samples(40);
    const int32_t *tokens = nullptr, *starts = nullptr;
    for (int step = 0; step < 2; ++step) {
      micro.start(ids);
      while (const HostBatch* batch = micro.next()) {
        if (!tokens) tokens = batch->labels.data(), starts = batch->starts.data();
        EXPECT_EQ(batch->labels.data(), tokens);
        EXPECT_EQ(batch->starts.data(), starts);
      }
    }
  }
}

TEST(MicroBatches, RefuseWhatCannotBeCut) {
  const Dataset data = two();
  const BatchOptions options{.max_seq_length = 8, .vocab = 10};
  expect_error(Fault::file, {"no samples"}, [&] { MicroBatches(Dataset(), 1, options); });
  expect_error(Fault::usage, {"micro-batch", "0"}, [&] { MicroBatches(data, 0, options); });
  expect_error(Fault::usage, {"max_seq_length", "0"},
               [&] { MicroBatches(data, 1, {.max_seq_length = 0, .vocab = 10}); });
  Dataset instructions = two();
  instructions.set_cut(Cut::tokens);
  expect_error(Fault::usage, {"max_seq_length must be 2 or more, not 1"},
               [&] { MicroBatches(instructions, 1, {.max_seq_length = 1, .vocab = 10}); });
}

// Every sample once, whatever the number of ranks; all ranks get as many micro-batches, and each
// token the ordinal that it has on one rank.
TEST(MicroBatches, OfSeveralRanksAreThoseOfOne) {
  const Dataset data = ragged(23);
  const auto ids = first_samples(23);
  const BatchOptions options{.max_seq_length = 8, .vocab = 1000};
  const auto contents = [&](int64_t micro, const Ranks& ranks, int64_t& count) {
    MicroBatches batches(data, micro, options, ranks);
    batches.start(ids);
    count = batches.count();
    EXPECT_EQ(batches.targets(), count_targets(data, ids, 8)) << "of all ranks";
    std::vector<std::vector<Position>> all;
    while (const HostBatch* next = batches.next()) {
      EXPECT_EQ(next->tokens() == 0, batches.samples().empty());
      all.push_back(content(*next));
    }
    EXPECT_EQ(std::ssize(all), count);
    return all;
  };
  for (const int64_t micro : {1, 4, 30})
    for (const int ranks : {1, 2, 3, 8, 40}) {
      int64_t whole = 0;
      const auto expected = contents(micro, {}, whole);
      const int64_t rounds = (whole + ranks - 1) / ranks;
      std::vector<std::vector<Position>> found(static_cast<size_t>(rounds * ranks));
      for (int rank = 0; rank < ranks; ++rank) {
        int64_t count = 0;
        const auto mine = contents(micro, {rank, ranks}, count);
        ASSERT_EQ(count, rounds);
        for (size_t i = 0; i < mine.size(); ++i)
          found[i * static_cast<size_t>(ranks) + static_cast<size_t>(rank)] = mine[i];
      }
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_EQ(found[i], i < expected.size() ? expected[i] : std::vector<Position>()) << ranks;
    }
}

}  // namespace
}  // namespace capstan
