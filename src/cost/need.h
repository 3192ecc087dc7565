#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/names.h"

namespace capstan {

inline constexpr double kHoursOfMonth = 730;

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
  int months = 12;                 // 1 to 120
  double utilisation = 1;          // part of the time in which the GPUs work, 0.01 to 1
  double data_tb = 0;              // stored all the time, and taken along at the end
  double egress_tb_per_month = 0;  // that leave the cloud meanwhile
  int growth_per_quarter = 0;      // GPUs more after every three months, 0 to 1024
  bool sovereign = false;          // the data may not lie on machines that others use too
  bool spiky = false;              // load comes in bursts, as of inference in production
  bool own_room = false;           // there is a room with power and cooling for servers
  std::optional<double> cluster_price, private_price;  // dollars per GPU-hour
  double staff_per_month = 0;  // dollars for those who look after own machines

  int gpus_in(int month) const { return gpus + growth_per_quarter * (month / 3); }
};

}  // namespace capstan
