#include "data/batch/step_batches.h"

#include <gtest/gtest.h>

#include "data/errors.h"

namespace capstan {
namespace {

using Ids = std::vector<int32_t>;

constexpr BatchOptions kOptions{.max_seq_length = 16, .vocab = 100};

// Samples of 2 to 10 tokens that are all the sample's number.
Dataset numbered(int32_t samples) {
  Dataset data;
  for (int32_t i = 0; i < samples; ++i) data.add(Ids(static_cast<size_t>(i % 9 + 2), i), 1);
  return data;
}

std::vector<Ids> rest_of(MicroBatches& data) {
  std::vector<Ids> all;
  while (const HostBatch* batch = data.next()) all.push_back(batch->ids);
  return all;
}

std::vector<int64_t> samples_of(const MicroBatches& data) {
  return {data.step_samples().begin(), data.step_samples().end()};
}

// Also across the ends of epochs, where the sampler draws anew.
TEST(StepBatches, AreTheSamplersWhetherTheNextStepIsLookedAtOrNot) {
  const Dataset data = numbered(11);
  Sampler sampler(data.size(), 4, 7);
  MicroBatches expected(data, 2, kOptions);
  for (const bool looks_ahead : {false, true}) {
    StepBatches batches(data, 4, 2, 7, kOptions);
    for (int64_t step = 2; step < 12; ++step) {
      expected.start(sampler.ids(step));
      MicroBatches& found = batches.of(step);
      EXPECT_EQ(found.targets(), expected.targets());
      EXPECT_EQ(found.count(), expected.count());
      if (looks_ahead) {
        ASSERT_NE(batches.of(step + 1).peek(), nullptr);
      }
      EXPECT_EQ(samples_of(found), samples_of(expected)) << step;
      EXPECT_EQ(rest_of(found), rest_of(expected)) << step;
      EXPECT_EQ(samples_of(found), samples_of(expected)) << "named after the step, as well";
    }
  }
}

TEST(StepBatches, StepsCountFromZero) {
  const Dataset data = numbered(3);
  expect_error(Fault::bug, {"-1"}, [&] { StepBatches(data, 2, 1, 7, kOptions).of(-1); });
}

TEST(MicroBatches, WhatIsLookedAtIsWhatComesNext) {
  const Dataset data = numbered(5);
  const std::vector<int64_t> ids = {4, 2, 0, 1, 3};
  MicroBatches plain(data, 2, kOptions), looking(data, 2, kOptions);
  EXPECT_EQ(looking.peek(), nullptr) << "nothing was started";
  plain.start(ids);
  looking.start(ids);
  while (const HostBatch* expected = plain.next()) {
    const HostBatch* first = looking.peek();
    ASSERT_NE(first, nullptr);
    const int64_t serial = first->serial;
    EXPECT_EQ(looking.peek()->serial, serial) << "made once";
    const HostBatch* next = looking.next();
    EXPECT_EQ(next->serial, serial);
    EXPECT_EQ(next->ids, expected->ids);
    EXPECT_EQ(looking.samples().front(), plain.samples().front());
  }
  EXPECT_EQ(looking.peek(), nullptr);
  EXPECT_EQ(looking.next(), nullptr);
  looking.start(ids);
  const int64_t forgotten = looking.peek()->serial;
  looking.start(ids);
  EXPECT_NE(looking.next()->serial, forgotten) << "a start begins anew";
}

TEST(MicroBatches, WhatCannotBeMadeIsToldByNextAlone) {
  Dataset data = numbered(1);
  data.add(Ids{1, 100, 2}, 1);
  const std::vector<int64_t> ids = {0, 1};
  MicroBatches micro(data, 1, kOptions);
  micro.start(ids);
  ASSERT_NE(micro.next(), nullptr);
  EXPECT_EQ(micro.peek(), nullptr);
  expect_error(Fault::file, {"id 100"}, [&] { micro.next(); });
}

TEST(HostBatches, NoTwoFillingsHaveOneSerial) {
  const Dataset data = numbered(4);
  const std::vector<int64_t> ids = {0, 1};
  HostBatch a(32, 2), b(32, 2);
  const int64_t empty = a.serial;
  pack(a, data, ids, kOptions);
  pad(b, data, ids, kOptions);
  EXPECT_NE(a.serial, empty);
  EXPECT_NE(a.serial, b.serial);
  const int64_t before = a.serial;
  pack(a, data, ids, kOptions);
  EXPECT_NE(a.serial, before);
}

}  // namespace
}  // namespace capstan
