#include "model/recompute.h"

#include <gtest/gtest.h>

#include "support/message_of.h"

namespace capstan {
namespace {

constexpr int kLayers = 3;

TEST(Recomputation, IsThePolicyBeforeForTheBlocksAfterTheFirst) {
  const auto of_all = [](const Recomputation& r) {
    std::string words;
    for (int block = 0; block < kLayers; ++block) words += "nsb"[static_cast<int>(r.of(block))];
    return words;
  };
  EXPECT_EQ(of_all({}), "nnn");
  EXPECT_EQ(of_all({Recompute::selective, 2}), "ssn");
  EXPECT_EQ(of_all(Recompute::selective), "sss");
  EXPECT_EQ(of_all({Recompute::block, 1}), "bss");
  EXPECT_EQ(of_all({Recompute::block, 7}), "bbb");
}

TEST(Recomputation, IsALadder) {
  const char* const names[] = {"none",    "selective:1", "selective:2", "selective",
                               "block:1", "block:2",     "block"};
  for (int rung = 0; rung <= 2 * kLayers; ++rung) {
    const Recomputation r = Recomputation::at_rung(rung, kLayers);
    EXPECT_EQ(name_of(r), names[rung]);
    EXPECT_EQ(parse_recomputation(names[rung]), r);
    EXPECT_EQ(r.rung(kLayers), rung);
  }
  EXPECT_EQ(Recomputation(Recompute::block, 9).rung(kLayers), 2 * kLayers);
  EXPECT_EQ(Recomputation(Recompute::selective, 9).rung(kLayers), kLayers);
  EXPECT_EQ(parse_recomputation("block:99999999999"), Recomputation(Recompute::block));
}

TEST(Recomputation, RefusesOtherWords) {
  for (const char* text : {"", "blocks", "none:1", "block:", "block:0", "block:-2", "block:2x",
                           "selective:99999999999999999999", "auto"}) {
    const std::string message = message_of(Fault::usage, [&] { parse_recomputation(text); });
    EXPECT_EQ(message,
              "activations: expected none, selective, block, or with a number of first blocks "
              "selective:8 or block:8, found '" +
                  std::string(text) + "'");
  }
}

}  // namespace
}  // namespace capstan
