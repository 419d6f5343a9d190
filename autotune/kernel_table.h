// Predicts how long kernels of given sizes take, from the measured times of kernels of the same kind.
//
// The rate of a kind (kernel, variant, type) changes slowly with the sizes. It counts FLOPs per second for kernels that the
// matrix units limit (products and attention), otherwise bytes per second. Between the measured sizes it comes from a local
// regression: a plane through the logarithms of the nearest points, weighted by distance (Cleveland, Robust locally weighted
// regression and smoothing scatterplots, 1979). Beyond the measured sizes it stays close to the rate of the nearest points.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/observed_kernels.h"

namespace trivet::autotune {

struct KernelSample {
  std::string kernel, variant;  // as in KernelCall
  DType dtype = DType::Float32;
  kernels::Bound bound = kernels::Bound::Memory;
  std::array<int64_t, 5> sizes{};
  double flops = 0, bytes = 0, seconds = 0;
  bool operator==(const KernelSample&) const = default;
};
KernelSample sample_of(const kernels::KernelCall& call, double seconds);

class KernelTable {
 public:
  KernelTable() = default;
  // Several samples of the same sizes are merged into one with their mean.
  explicit KernelTable(const std::vector<KernelSample>& samples);

  // A kind that was not measured takes the rate of the same kernel in another variant or type, if that was measured with as
  // much work; otherwise it takes the time of the smallest kernels plus its bytes at the rate of kernels that only move data.
  double seconds(const kernels::KernelCall& call) const;
  bool measured(const kernels::KernelCall& call) const;

 private:
  struct Point {
    std::array<double, 5> place{};  // log2(1 + size)
    double pace = 0;                // log(seconds / work)
    double work = 0;
  };
  using Kind = std::tuple<std::string, std::string, DType>;
  const std::vector<Point>* points_of(const kernels::KernelCall& call) const;

  std::map<Kind, std::vector<Point>> kinds_;
  double seconds_per_byte_ = 0;  // median of the kernels that only move data and are not small
  double least_seconds_ = 0;     // a tenth of all kernels take less
};

}  // namespace trivet::autotune
