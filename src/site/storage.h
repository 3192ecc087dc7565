#pragma once

#include <cstdint>

#include "base/names.h"
#include "site/network.h"

namespace capstan {

enum class StorageTier { local, nfs, parallel };
template <>
struct NameTable<StorageTier> {
  static constexpr Named<StorageTier> rows[] = {{StorageTier::local, "local_nvme"},
                                                {StorageTier::nfs, "nfs"},
                                                {StorageTier::parallel, "parallel"}};
};

// What a tier holds and delivers at most. Local: 8 drives of 3.84 TB and 6 GB/s in the server. NFS:
// one file server behind a port of 100 Gb/s. All general knowledge.
struct TierLimit {
  double bytes = 0, bytes_per_second = 0;
};
inline constexpr TierLimit kLocalLimit = {8 * 3.84e12, 8 * 6e9};
inline constexpr TierLimit kNfsLimit = {500e12, 12.5e9};

// What all servers need together, what to buy for it (at kFill), and where.
struct Storage {
  double bytes = 0, bytes_per_second = 0;
  double bought_bytes = 0, bought_bytes_per_second = 0;
  StorageTier tier = StorageTier::local;
  Link link = {};  // of each server to it; 0 ports if it is local
};
// The first tier that suffices: local drives are for one server alone, as servers share their data.
Storage storage_for(double bytes, double bytes_per_second, int64_t servers);

}  // namespace capstan
