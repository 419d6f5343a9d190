// How long kernels of given sizes take, from how long others of their kind were measured to take.
//
// Of a kind (kernel, variant, type) the rate (FLOPs of products and attention, else bytes, a second) changes slowly with the
// sizes. Between the measured ones it is a local regression: a plane through the logarithms of the nearest, weighted by
// distance (Cleveland, Robust locally weighted regression and smoothing scatterplots, 1979). Beyond them it stays what it is at
// the nearest.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/observed_kernels.h"

namespace trivet::autotune {

struct KernelSample {
  std::string kernel, variant;  // as KernelCall has them
  DType dtype = DType::Float32;
  std::array<int64_t, 5> sizes{};
  double flops = 0, bytes = 0, seconds = 0;
  bool operator==(const KernelSample&) const = default;
};

class KernelTable {
 public:
  KernelTable() = default;
  // Several of the same sizes are one, of their mean.
  explicit KernelTable(const std::vector<KernelSample>& samples);

  // Of a kind that was not measured: as the same kernel with another variant or type, if that was measured with as much work;
  // else the time of the smallest kernels and its bytes at the rate of those that only move.
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
  double seconds_per_byte_ = 0;  // median of the kernels that only move, of those that are not small
  double least_seconds_ = 0;     // the tenth part of all kernels takes less
};

}  // namespace trivet::autotune
