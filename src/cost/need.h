#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "base/names.h"

namespace capstan {

inline constexpr double kHoursOfMonth = 730;
inline constexpr double kHoursOfWeek = 168;

enum class Place : uint8_t { on_demand, cluster, private_cloud, colocation, own_room, hybrid };
template <>
struct NameTable<Place> {
  static constexpr Named<Place> rows[] = {
      {Place::on_demand, "on-demand"},         {Place::cluster, "cluster"},
      {Place::private_cloud, "private-cloud"}, {Place::colocation, "colocation"},
      {Place::own_room, "own-room"},           {Place::hybrid, "hybrid"}};
};

// What GPUs are needed for. The ranges are checked (Fault::usage).
struct Need {
  std::string gpu;                 // as in catalogue/gpus.yaml
  int gpus = 8;                    // at the beginning, 1 to 16384
  int months = 12;                 // 1 to 120; with `weeks` those that begin
  std::optional<int> weeks = {};   // 1 to 520; exactly so long instead (set_weeks)
  double utilisation = 1;          // part of the time in which the GPUs work, 0.01 to 1
  double data_tb = 0;              // stored all the time, and taken along at the end
  double egress_tb_per_month = 0;  // that leave the cloud meanwhile
  int growth_per_quarter = 0;      // GPUs more after every three months, 0 to 1024
  bool sovereign = false;          // the data may not lie on machines that others use too
  bool spiky = false;              // load comes in bursts, as of inference in production
  bool own_room = false;           // there is a room with power and cooling for servers
  std::optional<double> cluster_price, private_price;  // dollars per GPU-hour
  double staff_per_month = 0;  // dollars for those who look after own machines
  // What is paid at least, in hours: until the end of a week, of a year, or as the quotes say.
  double cluster_term = kHoursOfWeek, private_term = 12 * kHoursOfMonth;
  std::optional<double> longest_term = {};  // hours that rented GPUs may be committed to
  std::optional<double> needed_in = {};     // weeks until the GPUs must be there; 0: now
  // Weeks until they are, by quotes; else by the prices.
  std::optional<double> cluster_lead = {}, private_lead = {}, server_lead = {};

  void set_weeks(int n) {
    weeks = n;
    months = static_cast<int>(std::ceil(hours() / kHoursOfMonth));
  }
  double hours() const { return weeks ? *weeks * kHoursOfWeek : months * kHoursOfMonth; }
  // The part of a month in which they are needed: less than 1 of the last one.
  double part_of(int month) const { return std::min(1.0, hours() / kHoursOfMonth - month); }
  int gpus_in(int month) const { return gpus + growth_per_quarter * (month / 3); }
};

}  // namespace capstan
