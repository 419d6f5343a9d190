// What `trivet bench` measured on a machine, by how many ranks shared it: a JSON file, and the cost model that it is.
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
  int64_t bytes = 0;  // of what is whole
  int ranks = 1;
  double seconds = 0;
  bool operator==(const OperationSample&) const = default;
};

// Measured with all of these ranks at work.
struct MeasuredSetup {
  std::string machine;  // "AMD EPYC, 2 cores" or "NVIDIA H200, 139.8 GiB"
  Device device = Device::Cpu;
  int ranks = 1, threads = 1;  // of the host; kernel threads of a rank
  std::vector<KernelSample> kernels;
  double call_seconds = 0;  // that a step takes beside its kernels, for each of them
  std::vector<OperationSample> operations;
  double handover_seconds = 0;  // from giving work to another thread's stream to knowing that it is done, beside the work
};

struct HardwareProfile {
  std::string version;  // of Trivet
  std::string date;
  std::vector<MeasuredSetup> setups;

  // Null where so many ranks were not measured.
  const MeasuredSetup* find(int ranks) const;
  // In place of one with the same ranks; what it does not have (kernels, operations) stays. Throws ConfigError for another
  // machine's, and for what was measured with other threads.
  void merge(MeasuredSetup setup);
};

// Throws ConfigError naming the file and what is wrong with it.
HardwareProfile read_profile(const std::string& path);
HardwareProfile parse_profile(const std::string& text, const std::string& path);
std::string to_json(const HardwareProfile& profile);
void write_profile(const HardwareProfile& profile, const std::string& path);

class MeasuredCostModel final : public CostModel {
 public:
  // Throws ConfigError, naming what to run, where kernels or, for several ranks, operations were not measured.
  MeasuredCostModel(const MeasuredSetup& setup, const std::string& path);

  double kernel_seconds(const kernels::KernelCall& call) const override;
  double operation_seconds(const OperationCall& call) const override;
  // Of the time of all kernels asked for so far, the share of those of kinds that were not measured.
  double unmeasured_share() const;
  // The three that took most of that: "add float32, matmul nt float16".
  std::string unmeasured_kinds() const;
  double handover_seconds() const override { return handover_seconds_; }
  // On a CPU the ranks have all cores between them, so that nothing is free.
  bool streams_share_cores() const override { return device_ == Device::Cpu; }

 private:
  KernelTable table_;
  Device device_;
  double call_seconds_, handover_seconds_;
  using Curve = std::vector<std::pair<double, double>>;  // (log bytes, log seconds), ascending
  std::map<std::tuple<comm::Operation, comm::ReduceOp, DType, int>, Curve> curves_;
  mutable double asked_ = 0;
  mutable std::map<std::string, double> unmeasured_;  // seconds by kind
};

}  // namespace trivet::autotune
