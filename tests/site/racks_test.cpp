#include "site/racks.h"

#include <gtest/gtest.h>

#include "support/message_of.h"

namespace capstan {
namespace {

constexpr double kHopper = 10200;  // W of a server with 8 H100

GpuServer server_of(double watts, int64_t units = 8) {
  GpuServer s;
  s.watts = watts;
  s.units = units;
  return s;
}

RackKind rack_with(const char* circuit, Redundancy redundancy, int64_t pdus = 2) {
  RackKind r;
  r.circuit = parse_circuit(circuit);
  r.redundancy = redundancy;
  r.most_pdus = pdus;
  return r;
}

TEST(Racks, BothFeedsCarryAllServers) {
  // 17.3 kVA carry one server of 10.2 kW, 34.5 kVA three.
  const auto one =
      require_layout(server_of(kHopper), 16, rack_with("208x60", Redundancy::two_feeds));
  EXPECT_EQ(one.servers_per_pdu, 1);
  EXPECT_EQ(one.racks, 16);
  EXPECT_EQ(one.pdus, 32);
  const auto three =
      require_layout(server_of(kHopper), 16, rack_with("415x60", Redundancy::two_feeds));
  EXPECT_EQ(three.servers_per_pdu, 3);
  EXPECT_EQ(three.racks, 6);
  EXPECT_EQ(three.pdus, 12);
}

TEST(Racks, RedundancyIsPaidInPdus) {
  // 5 fit a rack by height (42U / 8U). Of 4 PDUs, 4, 3 and 2 carry 3 servers each.
  const auto with = [](Redundancy r) {
    return require_layout(server_of(kHopper), 11, rack_with("415x60", r, 4));
  };
  for (const Redundancy r : {Redundancy::none, Redundancy::one_more, Redundancy::two_feeds}) {
    EXPECT_EQ(with(r).servers_per_rack, 5);
    EXPECT_EQ(with(r).limit, RackLimit::height);
    EXPECT_EQ(with(r).racks, 3);
  }
  // Racks of 5, 5 and 1 servers need 2, 2 and 1 PDUs for the load.
  EXPECT_EQ(with(Redundancy::none).pdus, 2 + 2 + 1);
  EXPECT_EQ(with(Redundancy::one_more).pdus, 3 + 3 + 2);
  EXPECT_EQ(with(Redundancy::two_feeds).pdus, 4 + 4 + 2);
}

TEST(Racks, AServerMayNeedSeveralPdus) {
  // 10.2 kW from 8.65 kVA: two PDUs a feed.
  const auto l =
      require_layout(server_of(kHopper), 3, rack_with("l15-30", Redundancy::two_feeds, 9));
  EXPECT_EQ(l.servers_per_pdu, 0);
  EXPECT_EQ(l.pdus_per_server, 2);
  EXPECT_EQ(l.servers_per_rack, 2);  // of 4 PDUs that may carry load
  EXPECT_EQ(l.limit, RackLimit::power);
  EXPECT_EQ(l.pdus, 8 + 4);
}

TEST(Racks, ExactlyFullIsNotTooFull) {
  const Circuit c = parse_circuit("208x60");
  const auto l = require_layout(server_of(c.capacity_va() / 3, 1), 3,
                                rack_with("208x60", Redundancy::two_feeds));
  EXPECT_EQ(l.servers_per_pdu, 3);
  EXPECT_EQ(l.pdus, 2);
}

TEST(Racks, TheRoomMayAllowLess) {
  RackKind rack = rack_with("415x60", Redundancy::two_feeds);
  rack.most_watts = 21e3;
  const auto l = require_layout(server_of(kHopper), 5, rack);
  EXPECT_EQ(l.servers_per_rack, 2);
  EXPECT_EQ(l.limit, RackLimit::room);
  EXPECT_EQ(l.racks, 3);
}

TEST(Racks, CordsCarryAServerOnEachFeed) {
  // Four cords of 3.2 kW carry 10.2 kW; one of 2.5 kW carries 2.4 kW.
  const auto cords = [](double watts, Redundancy r) {
    return require_layout(server_of(watts), 1, rack_with("415x60", r)).cords_per_server;
  };
  EXPECT_EQ(cords(kHopper, Redundancy::none), 4);
  EXPECT_EQ(cords(kHopper, Redundancy::one_more), 5);
  EXPECT_EQ(cords(kHopper, Redundancy::two_feeds), 8);
  EXPECT_EQ(cords(2400, Redundancy::two_feeds), 2);
}

TEST(Racks, SaysWhatToChange) {
  const auto refused = [](const GpuServer& server, const RackKind& rack) {
    EXPECT_FALSE(lay_out(server, 1, rack).has_value());
    return message_of(Fault::usage, [&] { require_layout(server, 1, rack); });
  };
  EXPECT_EQ(refused(server_of(kHopper), rack_with("l15-30", Redundancy::two_feeds)),
            "circuit: a server of 10.2 kW needs 2 PDUs of 8.65 kVA, but with redundancy 2n only 1 "
            "of the 2 in a rack may carry load; choose a circuit that carries more (--circuit "
            "415x60), or --pdus_per_rack 4");
  EXPECT_TRUE(refused(server_of(kHopper), rack_with("415x60", Redundancy::one_more, 1))
                  .starts_with("pdus_per_rack: redundancy n+1 needs at least 2 PDUs"));
  EXPECT_TRUE(refused(server_of(kHopper, 43), rack_with("415x60", Redundancy::none))
                  .starts_with("rack_units: a server is 43U high, but a rack has 42U"));
  RackKind cool = rack_with("415x60", Redundancy::none);
  cool.most_watts = 7000;
  EXPECT_TRUE(refused(server_of(kHopper), cool)
                  .starts_with("rack_kw: a server takes 10.2 kW, but a rack may take 7.0 kW"));
}

}  // namespace
}  // namespace capstan
