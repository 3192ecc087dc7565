#include "data/tokenizer/rough_tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace capstan::test {
namespace {

TEST(RoughTokenizer, CountsATokenForEveryFourBytes) {
  const RoughTokenizer t;
  for (const auto& [bytes, tokens] :
       {std::pair<size_t, size_t>{0, 0}, {1, 1}, {4, 1}, {5, 2}, {400, 100}, {401, 101}})
    EXPECT_EQ(t.encode(std::string(bytes, 'x')).size(), tokens) << bytes;
}

TEST(RoughTokenizer, HasIdsWithinItsVocabulary) {
  const RoughTokenizer t;
  for (const int32_t id : t.encode("a text of some words")) {
    EXPECT_GE(id, 0);
    EXPECT_LT(id, t.vocab_size());
  }
  EXPECT_LT(*t.bos(), t.vocab_size());
  EXPECT_LT(t.eos(), t.vocab_size());
  EXPECT_NE(*t.bos(), t.eos());
  EXPECT_FALSE(t.id_of("<|im_start|>"));
}

TEST(RoughTokenizer, HasNoText) {
  const RoughTokenizer t;
  try {
    t.stream();
    FAIL() << "there is nothing to decode";
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::bug);
  }
}

}  // namespace
}  // namespace capstan::test
