#include "model/decoder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/reference.h"
#include "support/message_of.h"

namespace capstan {
namespace {

constexpr double kAlmostOne = 1 - 0x1p-24;  // the largest draw there is
const std::vector<float> kLogits = {0.5f, 2.0f, -1.0f, 1.0f, 1.5f};
const std::vector<int32_t> kByLikelihood = {1, 4, 3, 0, 2};

constexpr Sampling kPlain{.temperature = 1, .top_k = 0, .top_p = 1};

// softmax(kLogits / temperature) over the `kept` most likely, by id.
std::vector<double> expected_shares(double temperature, size_t kept) {
  std::vector<double> p(kLogits.size());
  double total = 0;
  for (size_t i = 0; i < kept; ++i) {
    const auto id = static_cast<size_t>(kByLikelihood[i]);
    total += p[id] = std::exp(kLogits[id] / temperature);
  }
  for (double& x : p) x /= total;
  return p;
}

// Draws at evenly spaced places hit each token in proportion to its share, to within one draw.
void expect_shares(const Sampling& s, const std::vector<double>& expected) {
  constexpr int kDraws = 10000;
  std::vector<int> count(kLogits.size());
  for (int i = 0; i < kDraws; ++i)
    ++count[static_cast<size_t>(choose_token(kLogits, s, (i + 0.5) / kDraws))];
  for (size_t t = 0; t < count.size(); ++t)
    EXPECT_NEAR(count[t], kDraws * expected[t], 1.01) << "token " << t;
}

TEST(ChooseToken, AtZeroTemperatureIsTheMostLikelyWhateverTheDraw) {
  for (const double draw : {0.0, 0.5, kAlmostOne})
    EXPECT_EQ(choose_token(kLogits, {.temperature = 0, .top_k = 0, .top_p = 1}, draw), 1);
}

TEST(ChooseToken, TiesGoToTheLowerId) {
  const std::vector<float> logits = {1, 3, 3, 0, 3};
  EXPECT_EQ(choose_token(logits, {.temperature = 0}, 0.9), 1);
  EXPECT_EQ(choose_token(logits, {.temperature = 1, .top_k = 1}, 0.9), 1);
  EXPECT_EQ(choose_token(logits, {.temperature = 1, .top_k = 2}, kAlmostOne), 2);
  EXPECT_EQ(choose_token(logits, {.temperature = 1, .top_k = 0, .top_p = 0}, kAlmostOne), 1);
}

TEST(ChooseToken, FollowsSoftmaxAtAnyTemperature) {
  for (const double t : {0.3, 1.0, 2.5}) {
    Sampling s = kPlain;
    s.temperature = t;
    expect_shares(s, expected_shares(t, 5));
  }
}

TEST(ChooseToken, TopKKeepsTheKMostLikely) {
  for (int64_t k = 1; k <= 7; ++k) {
    Sampling s = kPlain;
    s.top_k = k;
    expect_shares(s, expected_shares(1, std::min<size_t>(5, static_cast<size_t>(k))));
  }
}

TEST(ChooseToken, TopPKeepsTheFewestThatReachIt) {
  const auto p = expected_shares(1, 5);
  double mass = 0;
  for (size_t kept = 1; kept < 5; ++kept) {
    mass += p[static_cast<size_t>(kByLikelihood[kept - 1])];
    Sampling s = kPlain;
    s.top_p = mass - 1e-6;
    expect_shares(s, expected_shares(1, kept));
    s.top_p = mass + 1e-6;
    expect_shares(s, expected_shares(1, kept + 1));
  }
}

// As Hugging Face: the nucleus is measured among what top_k left.
TEST(ChooseToken, TopPAppliesToWhatTopKKeeps) {
  const auto among_three = expected_shares(1, 3);
  Sampling s{.temperature = 1, .top_k = 3, .top_p = among_three[1] + among_three[4] - 1e-6};
  expect_shares(s, expected_shares(1, 2));
}

TEST(ChooseToken, TheEndsOfTheDrawAreTheMostAndTheLeastLikely) {
  EXPECT_EQ(choose_token(kLogits, kPlain, 0), 1);
  EXPECT_EQ(choose_token(kLogits, kPlain, kAlmostOne), 2);
  EXPECT_EQ(choose_token(kLogits, {.temperature = 1, .top_k = 3}, kAlmostOne), 3);
}

TEST(ChooseToken, ExtremeLogitsGiveATokenOfTheList) {
  const std::vector<float> huge = {-3e38f, 3e38f, -INFINITY, 0};
  for (const double draw : {0.0, 0.5, kAlmostOne})
    for (const double t : {1e-6, 1.0, 1e6}) {
      const int32_t id = choose_token(huge, {.temperature = t, .top_k = 2}, draw);
      EXPECT_TRUE(id == 1 || id == 3) << id;
    }
  EXPECT_EQ(choose_token(std::vector<float>{-5}, kPlain, 0.7), 0);
}

ModelConfig small_config() {
  ModelConfig c;
  c.vocab = 29;
  c.hidden = 16;
  c.intermediate = 24;
  c.layers = 2;
  c.heads = 2;
  c.kv_heads = 1;
  c.head_dim = 8;
  c.init_std = 0.3;  // so that the tokens differ
  return c;
}

class Generate : public test::OnEveryDevice {
 protected:
  static constexpr int64_t kCapacity = 24;

  Generate() { params_.initialize(q_, 5); }
  std::vector<int32_t> run(const GenerateOptions& o) { return generate(q_, decoder, prompt, o); }
  GenerateOptions sampled(uint64_t seed, uint64_t sample) const {
    return {.max_new_tokens = 12,
            .sampling = {.temperature = 1, .top_k = 0, .top_p = 1},
            .seed = seed,
            .sample = sample,
            .stop_ids = {},
            .stop_sequences = {}};
  }

  Parameters params_{arena_, make_spec(small_config()), Precision::f32_true, Gradients::none};
  Transformer model_{q_, params_, Recompute::none, kCapacity};
  Decoder decoder{q_, model_, kCapacity, 4};
  std::vector<int32_t> prompt = {3, 1, 4, 1, 5};
};

INSTANTIATE_TEST_SUITE_P(Model, Generate, testing::ValuesIn(test::devices_present()),
                         test::device_name);

TEST_P(Generate, MakesAsManyTokensAsAsked) {
  for (const int64_t n : {0, 1, 7}) {
    GenerateOptions o = sampled(1, 0);
    o.max_new_tokens = n;
    EXPECT_EQ(run(o).size(), static_cast<size_t>(n));
  }
}

TEST_P(Generate, DependsOnSeedAndSampleAlone) {
  const auto first = run(sampled(1, 0));
  EXPECT_NE(run(sampled(2, 0)), first);
  EXPECT_NE(run(sampled(1, 1)), first);
  EXPECT_EQ(run(sampled(1, 0)), first);  // though the cache held another text
}

TEST_P(Generate, AShorterRunIsTheBeginningOfALongerOne) {
  const auto all = run(sampled(1, 0));
  GenerateOptions o = sampled(1, 0);
  o.max_new_tokens = 5;
  EXPECT_EQ(run(o), std::vector<int32_t>(all.begin(), all.begin() + 5));
}

TEST_P(Generate, EndsBeforeTheFirstStopId) {
  const auto all = run(sampled(1, 0));
  for (const int32_t stop : all) {
    GenerateOptions o = sampled(1, 0);
    o.stop_ids = {1000, stop};
    const auto at = std::find(all.begin(), all.end(), stop);
    EXPECT_EQ(run(o), std::vector<int32_t>(all.begin(), at));
  }
}

TEST_P(Generate, EndsWhenTheCacheIsFull) {
  GenerateOptions o = sampled(1, 0);
  o.max_new_tokens = 1000;
  // The last token is chosen from a full cache and need not be put into it.
  EXPECT_EQ(run(o).size(), static_cast<size_t>(kCapacity) - prompt.size() + 1);
  EXPECT_EQ(decoder.length(), kCapacity);
}

TEST_P(Generate, ShowsEachTokenAsItComes) {
  std::vector<int32_t> seen;
  const auto all = generate(q_, decoder, prompt, sampled(1, 0), [&](int32_t t) {
    // It has not been fed yet: the cache holds the prompt and the tokens before.
    EXPECT_EQ(decoder.length(), static_cast<int64_t>(prompt.size() + seen.size()));
    seen.push_back(t);
  });
  EXPECT_EQ(seen, all);
}

TEST_P(Generate, DoesNotShowTheStopId) {
  GenerateOptions o = sampled(1, 0);
  o.stop_ids = {run(o).front()};
  generate(q_, decoder, prompt, o, [](int32_t t) { ADD_FAILURE() << "saw " << t; });
}

// Of every sequence in the text, and of one that it only begins: what is seen is what is returned.
TEST_P(Generate, ShowsNothingOfAStopSequence) {
  const auto all = run(sampled(1, 0));
  constexpr int32_t kNever = 1000;
  for (size_t length = 1; length <= 3; ++length)
    for (size_t at = 0; at + length <= all.size(); ++at) {
      const auto sequence = std::span(all).subspan(at, length);
      const std::vector<int32_t> stop(sequence.begin(), sequence.end());
      std::vector<int32_t> longer = stop;
      longer.push_back(kNever);
      for (const bool ends : {true, false}) {
        GenerateOptions o = sampled(1, 0);
        o.stop_sequences = {longer};
        if (ends) o.stop_sequences.push_back(stop);
        const auto end =
            ends ? std::search(all.begin(), all.end(), stop.begin(), stop.end()) : all.end();
        std::vector<int32_t> seen;
        const auto result = generate(q_, decoder, prompt, o, [&](int32_t t) { seen.push_back(t); });
        EXPECT_EQ(result, std::vector<int32_t>(all.begin(), end)) << at << ' ' << length;
        EXPECT_EQ(seen, result) << at << ' ' << length;
      }
    }
}

TEST_P(Generate, AtZeroTemperatureFollowsTheLargestLogit) {
  GenerateOptions o = sampled(1, 0);
  o.sampling.temperature = 0;
  std::vector<int32_t> text = prompt;
  for (const int32_t t : run(o)) {
    decoder.clear();
    const auto logits = decoder.feed(q_, text);
    EXPECT_EQ(t, std::max_element(logits.begin(), logits.end()) - logits.begin());
    text.push_back(t);
  }
}

TEST_P(Generate, APromptLongerThanTheCacheIsAnErrorOfTheUser) {
  prompt.assign(kCapacity + 1, 2);
  EXPECT_EQ(message_of(Fault::usage, [&] { run(sampled(1, 0)); }),
            "25 tokens do not fit: the cache has 24 positions, 0 in use");
}

TEST_P(Generate, ATokenOutsideTheVocabularyIsAnErrorOfTheUser) {
  for (const int32_t id : {-1, 29}) {
    prompt[2] = id;
    EXPECT_NE(message_of(Fault::usage, [&] { run(sampled(1, 0)); }).find("vocabulary of 29"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace capstan
