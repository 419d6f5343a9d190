// Rates that `trivet bench` measured on a machine, by the number of ranks that shared it: the JSON file, and the cost model
// that is built from it.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "autotune/cost_model.h"
#include "autotune/kernel_table.h"
#include "core/device.h"

namespace trivet::autotune {

struct OperationSample {
  comm::Operation operation = comm::Operation::Barrier;
  comm::ReduceOp reduce = comm::ReduceOp::Sum;
  DType dtype = DType::Float32;
  int64_t bytes = 0;  // size of the whole tensor
  int ranks = 1;
  double seconds = 0;
  bool operator==(const OperationSample&) const = default;
};

// Measurements that were made while all of these ranks were at work.
struct MeasuredSetup {
  std::string machine;  // "AMD EPYC, 2 cores" or "NVIDIA H200, 139.8 GiB"
  Device device = Device::Cpu;
  int ranks = 1, threads = 1;  // on the host; kernel threads per rank
  std::vector<KernelSample> kernels;
  double call_seconds = 0;  // time per kernel in a step, in addition to the kernel
  std::vector<OperationSample> operations;
  double handover_seconds = 0;  // from giving work to another thread's stream to knowing that it is done, without the work
};

struct HardwareProfile {
  std::string version;  // Trivet's version
  std::string date;
  std::vector<MeasuredSetup> setups;

  // Null if this number of ranks was not measured.
  const MeasuredSetup* find(int ranks) const;
  // Adds the setup, or replaces the one with the same number of ranks; kernels or operations that the new setup does not have
  // stay. Throws ConfigError if the profile is from a different machine, or if what stays was measured with a different number
  // of threads.
  void merge(MeasuredSetup setup);
};

// The command that measures `what`, "kernels" or "comm", as a message quotes it: it can be pasted, whatever the path is.
std::string bench_command(const char* what, int ranks, const std::string& path);

// Throws ConfigError naming the file and what is wrong with it.
HardwareProfile read_profile(const std::string& path);
HardwareProfile parse_profile(const std::string& text, const std::string& path);
std::string to_json(const HardwareProfile& profile);
void write_profile(const HardwareProfile& profile, const std::string& path);

class MeasuredCostModel final : public CostModel {
 public:
  // Throws ConfigError that names what to run if kernels or, for several ranks, operations were not measured.
  MeasuredCostModel(const MeasuredSetup& setup, const std::string& path);

  double kernel_seconds(const kernels::KernelCall& call) const override;
  double operation_seconds(const OperationCall& call) const override;
  // The share of the time of all kernels requested so far that is in kinds that were not measured.
  double unmeasured_share() const;
  // The three kinds that took most of that time: "add float32, matmul nt float16".
  std::string unmeasured_kinds() const;
  double handover_seconds() const override { return handover_seconds_; }
  // On a CPU the ranks share all cores, so overlapping work is not free.
  bool streams_share_cores() const override { return device_ == Device::Cpu; }

 private:
  KernelTable table_;
  Device device_;
  std::string path_, command_;  // measures communication
  double call_seconds_, handover_seconds_;
  using Curve = std::vector<std::pair<double, double>>;  // (log bytes, log seconds), ascending
  std::map<std::tuple<comm::Operation, comm::ReduceOp, DType, int>, Curve> curves_;
  mutable double asked_ = 0;
  mutable std::map<std::string, double> unmeasured_;  // seconds by kind
};

}  // namespace trivet::autotune
