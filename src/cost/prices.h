#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cost/dollars.h"

// What GPUs cost. Every row has its origin and date; no GPU has a price that is not in a row.
namespace capstan {

// An instance that a cloud rents by the second.
struct Offer {
  std::string gpu;  // as in catalogue/gpus.yaml
  int gpus = 1;     // of one instance
  double dollars_per_hour = 0;
  std::string origin, date;

  bool operator==(const Offer&) const = default;
};

// A server to buy. `dollars` is empty where nobody stated a price; `kilowatts` is its most.
struct Server {
  std::string gpu;
  int gpus = 8;
  std::optional<Dollars> dollars;
  double kilowatts = 0;
  std::string origin, date;

  bool operator==(const Server&) const = default;
};

struct Rate {
  Dollars dollars;
  std::string origin, date;

  bool operator==(const Rate&) const = default;
};

// What joins rented instances.
struct InstanceLink {
  double gigabits = 0;  // per second, of each instance each way
  std::string origin, date;

  double bytes_per_second() const { return 1e9 / 8 * gigabits; }
  bool operator==(const InstanceLink&) const = default;
};

// Weeks from an order until the GPUs can be used.
struct LeadTime {
  double low = 0, high = 0;
  std::string origin, date;

  bool operator==(const LeadTime&) const = default;
};

// Rows of catalogue/prices.yaml, which is part of the program.
struct Prices {
  std::vector<Offer> offers;
  std::vector<Server> servers;
  Rate colocation;       // a kilowatt for a month, with power and cooling
  Rate electricity;      // a kWh
  Rate cooling;          // no dollars: kilowatts of a room per kilowatt of its machines
  Rate egress;           // a TB that leaves a cloud
  Rate storage;          // a TB for a month in a cloud
  Rate disks;            // a TB to buy
  InstanceLink between;  // instances
  std::optional<LeadTime> cluster_lead, private_lead, server_lead;  // none: not known

  // Null: not known.
  const Server* server(std::string_view gpu) const;
  bool knows(std::string_view gpu) const;  // an offer or a server has it
};

// `base` with the rows of the text, which replace those of the same name: all instances of a GPU,
// a server, a rate, what joins instances. Throws Fault::file, with the place, for what is not of
// the form of catalogue/prices.yaml.
Prices parse_prices(std::string_view yaml, std::string_view where, Prices base = {});

// The program's rows; those of the file $CAPSTAN_PRICES take precedence.
Prices prices();

// Rented instances that hold together at least as many GPUs as were asked for.
struct Instances {
  struct Some {
    Offer offer;
    int count = 1;
  };
  std::vector<Some> parts;  // the largest first; more than one instance: no machine has them all
  int gpus = 0;             // >= what was asked for
  double dollars_per_hour = 0;  // of all of them

  std::string text() const;  // "2 × 8 GPUs + 1 × 4 GPUs"
};

// For a machine of `gpus` GPUs that work together: the cheapest single instance that has them; if
// none is so large, the largest ones and the cheapest that holds the rest. 3 of h100-sxm are the
// instance of 4, although one of 1 and one of 2 cost less; 16 are two of 8. Empty: no price is
// known for this GPU. gpus >= 1.
std::optional<Instances> cheapest_instances(const Prices& prices, std::string_view gpu, int gpus);

struct Hours {
  double low = 0, expected = 0, high = 0;
};

struct RunCost {
  Dollars dollars;
  Instances of_machine;  // each machine rents these
  int machines = 1;
};

// A run of so many hours on rented machines: hours × machines × dollars per hour. Time is paid by
// the second, rounded up; booting and copying data in are not in it. Empty: no price is known for
// this GPU; the caller says so.
std::optional<RunCost> run_cost(const Prices& prices, std::string_view gpu, int gpus_per_machine,
                                int machines, const Hours& hours);

}  // namespace capstan
