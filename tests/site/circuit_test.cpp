#include "site/circuit.h"

#include <gtest/gtest.h>

#include "support/message_of.h"

namespace capstan {
namespace {

TEST(Circuit, PowerOfOneAndThreePhases) {
  // APC 8966, a PDU of 208 V and 60 A: √3·208·60·0.8, which its data sheet gives as 17.3 kVA.
  EXPECT_NEAR(parse_circuit("208x60x3").capacity_va(), 17292.8, 0.05);
  EXPECT_NEAR(parse_circuit("415x60").capacity_va(), 34.5e3, 5);
  EXPECT_NEAR(parse_circuit("l15-30").capacity_va(), 8.65e3, 5);
  EXPECT_DOUBLE_EQ(parse_circuit("230x32x1").capacity_va(), 230 * 32 * 0.8);
  EXPECT_EQ(parse_circuit("208x60x3").formula(), "√3 × 208 V × 60 A × 0.8");
  EXPECT_EQ(parse_circuit("119.5x15x1").formula(), "119.5 V × 15 A × 0.8");
}

TEST(Circuit, NamesAreThoseOfTheirFigures) {
  EXPECT_EQ(parse_circuit("L15-30").capacity_va(), parse_circuit("208x30x3").capacity_va());
  EXPECT_EQ(parse_circuit("208x60").capacity_va(), parse_circuit("208X60X3").capacity_va());
}

TEST(Circuit, APlugCarriesIt) {
  const std::pair<const char*, const char*> plugs[] = {
      {"208x15x1", "C13/C14"},     {"208x16x1", "C19/C20"},    {"230x21x1", "blue"},
      {"l15-30", "L15-30P"},       {"208x31x3", "blue"},       {"415x60", "red"},
      {"415x61x3", "electrician"}, {"277x30x1", "electrician"}};
  for (const auto& [circuit, plug] : plugs)
    EXPECT_NE(parse_circuit(circuit).plug().find(plug), std::string::npos)
        << circuit << ": " << parse_circuit(circuit).plug();
}

TEST(Circuit, CordsCarryTheirWatts) {
  EXPECT_EQ(cord_for(2500).name, "C13/C14 (15 A)");
  EXPECT_EQ(cord_for(2501).name, "C19/C20 (20 A)");
  EXPECT_DOUBLE_EQ(cord_for(2501).watts, 3200);
}

TEST(Circuit, WhatIsWrongIsTold) {
  const auto refused = [](const char* text) {
    return message_of(Fault::usage, [&] { parse_circuit(text); });
  };
  EXPECT_EQ(refused("230x32"),
            "circuit: expected the number of phases too (230x32x1 or 230x32x3), found '230x32'; "
            "give VOLTSxAMPERESxPHASES, such as 208x60x3, or one of l15-30, 208x60, 415x60");
  for (const char* text : {"", "x", "xx", "208", "208x60x2", "208x60x3x", "208Vx60x3", "0x60x3",
                           "208xnanx3", "208x1e9x3", "208x infx3"})
    EXPECT_TRUE(refused(text).starts_with("circuit: expected ")) << text;
}

}  // namespace
}  // namespace capstan
