#include "site/storage.h"

#include "site/provision.h"

namespace capstan {
namespace {

constexpr double kLeastGigabits = 10;  // of a server to shared storage

bool suffices(const TierLimit& limit, const Storage& s) {
  return s.bought_bytes <= limit.bytes * (1 + 1e-9) &&
         s.bought_bytes_per_second <= limit.bytes_per_second * (1 + 1e-9);
}

}  // namespace

Storage storage_for(double bytes, double bytes_per_second, int64_t servers) {
  Storage s{.bytes = bytes,
            .bytes_per_second = bytes_per_second,
            .bought_bytes = provisioned(bytes),
            .bought_bytes_per_second = provisioned(bytes_per_second)};
  if (servers == 1 && suffices(kLocalLimit, s)) {
    s.link.ports = 0;
    return s;
  }
  s.tier = suffices(kNfsLimit, s) ? StorageTier::nfs : StorageTier::parallel;
  s.link = link_for(bytes_per_second / static_cast<double>(servers), kLeastGigabits);
  return s;
}

}  // namespace capstan
