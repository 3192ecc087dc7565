#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace capstan {

// A GPU by its data sheet: what a plan knows of one that is not here.
struct GpuModel {
  std::string id;       // "v100-32", as `plan --gpu` takes it
  std::string in_name;  // words of the name that the driver reports
  std::pair<int, int> capability;
  int64_t bytes = 0;            // of memory that CUDA has
  double gigabytes = 0;         // of memory as sold
  double bytes_per_second = 0;  // of memory; 0: it is not known
  // Dense FLOP/s; 0: there are no such products, or it is not known. `narrow`: bf16 and f16.
  double f32 = 0, tf32 = 0, narrow = 0, fp8 = 0;
  double watts = 0;
  double link_bytes_per_second = 0;  // both directions together
  double port_gigabits = 100;        // of network, that machines usually have for each
  int bridged = 0;          // GPUs that the link joins, between others is PCIe; 0: all of a machine
  int per_machine = 0;      // that a machine has at most; 0: as many as its owner put in
  bool arm = false;         // machines with it have Arm processors
  double best_product = 0;  // FLOP/s that a narrow product was seen to reach; 0: not known
  std::string origin, date;
  std::vector<std::string> unsourced;  // keys of figures that nobody looked up in a source

  // † behind a figure of one of these keys that has no source, else nothing.
  std::string mark(std::initializer_list<std::string_view> keys) const;
  // True if its link joins the GPUs of several machines in a rack.
  bool joins_machines() const { return per_machine > 0 && bridged > per_machine; }
  // The GPUs on each machine and the number of machines, where no machine holds more than it can.
  std::pair<int64_t, int64_t> placed(int64_t devices, int64_t machines) const;

  // A GB of memory as sold is 2^30 bytes.
  int64_t sold_bytes() const { return static_cast<int64_t>(gigabytes * 0x1p30); }
  bool operator==(const GpuModel&) const = default;
};

// Rows of catalogue/gpus.yaml, which is part of the program.
struct GpuCatalogue {
  std::vector<GpuModel> gpus;

  // Throws Fault::usage if there is none of this name: with those that begin so, or the nearest.
  const GpuModel& named(std::string_view id) const;
  // The row of a GPU whose driver reports this name, the one that says most of it; null: unknown.
  const GpuModel* reported_as(std::string_view name) const;
};

// Throws Fault::file, with the place, for what is not of the form of catalogue/gpus.yaml.
GpuCatalogue parse_gpus(std::string_view yaml, std::string_view where);

// The program's rows; those of the file $CAPSTAN_CATALOGUE take precedence.
GpuCatalogue gpu_catalogue();

}  // namespace capstan
