#include "autotune/kernel_table.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace trivet::autotune {
namespace {

constexpr size_t kNearest = 14;
constexpr double kRidge = 0.05;   // pulls slopes to 0 where few points determine them
constexpr double kBeyond = 0.25;  // the most, in log pace, by which a plane may leave the range of its points
constexpr size_t kDims = 5;

// The work that the pace refers to: FLOPs of kernels that multiply, otherwise bytes.
double work_of(const kernels::KernelCall& call) { return std::max(1.0, kernels::multiplies(call) ? call.flops : call.bytes); }

kernels::KernelCall call_of(const KernelSample& sample) {
  return {.kernel = sample.kernel, .bound = sample.bound, .flops = sample.flops, .bytes = sample.bytes};
}

std::array<double, kDims> place_of(const std::array<int64_t, kDims>& sizes) {
  std::array<double, kDims> place{};
  for (size_t d = 0; d < kDims; ++d) place[d] = std::log2(1.0 + static_cast<double>(sizes[d]));
  return place;
}

double squared_distance(const std::array<double, kDims>& a, const std::array<double, kDims>& b) {
  double sum = 0;
  for (size_t d = 0; d < kDims; ++d) sum += (a[d] - b[d]) * (a[d] - b[d]);
  return sum;
}

// Solves the symmetric positive definite system a x = b by Cholesky decomposition.
template <size_t N>
std::array<double, N> solve(std::array<std::array<double, N>, N> a, std::array<double, N> b) {
  for (size_t i = 0; i < N; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[i][j];
      for (size_t k = 0; k < j; ++k) sum -= a[i][k] * a[j][k];
      a[i][j] = i == j ? std::sqrt(sum) : sum / a[j][j];
    }
    for (size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (size_t i = N; i-- > 0;) {
    for (size_t k = i + 1; k < N; ++k) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

struct Neighbour {
  double distance2 = 0;
  std::array<double, kDims> offset{};  // from the place whose pace is requested
  double pace = 0;
};

// The value at 0 of the weighted plane through the neighbours, which are sorted by distance.
double plane_at_origin(std::span<const Neighbour> neighbours) {
  const double reach2 = std::max(neighbours.back().distance2 * 1.1, 1e-6);
  std::array<std::array<double, kDims + 1>, kDims + 1> moments{};
  std::array<double, kDims + 1> sums{};
  double lowest = neighbours.front().pace, highest = lowest;
  for (const Neighbour& n : neighbours) {
    const double u = std::sqrt(n.distance2 / reach2), weight = std::pow(1 - u * u * u, 3);  // tricube
    std::array<double, kDims + 1> terms{1};
    std::copy(n.offset.begin(), n.offset.end(), terms.begin() + 1);
    for (size_t i = 0; i <= kDims; ++i) {
      sums[i] += weight * terms[i] * n.pace;
      for (size_t j = 0; j <= kDims; ++j) moments[i][j] += weight * terms[i] * terms[j];
    }
    lowest = std::min(lowest, n.pace), highest = std::max(highest, n.pace);
  }
  for (size_t i = 1; i <= kDims; ++i) moments[i][i] += kRidge * moments[0][0];
  return std::clamp(solve(moments, sums)[0], lowest - kBeyond, highest + kBeyond);
}

// The value that is above this share of the values.
double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto place = static_cast<size_t>(share * static_cast<double>(values.size()));
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(place));
  return values[place];
}

}  // namespace

KernelSample sample_of(const kernels::KernelCall& call, double seconds) {
  return {
      std::string(call.kernel), std::string(call.variant), call.dtype, call.bound, call.sizes, call.flops, call.bytes, seconds};
}

KernelTable::KernelTable(const std::vector<KernelSample>& samples) {
  std::map<std::pair<Kind, std::array<int64_t, kDims>>, std::vector<const KernelSample*>> alike;
  for (const KernelSample& sample : samples)
    alike[{{sample.kernel, sample.variant, sample.dtype}, sample.sizes}].push_back(&sample);
  std::vector<double> per_byte, all;
  for (const auto& [key, same] : alike) {
    double seconds = 0;
    for (const KernelSample* sample : same) seconds += sample->seconds / static_cast<double>(same.size());
    const KernelSample& first = *same.front();
    const double work = work_of(call_of(first));
    kinds_[key.first].push_back({place_of(first.sizes), std::log(std::max(seconds, 1e-9) / work), work});
    all.push_back(seconds);
    if (!kernels::multiplies(call_of(first)) && first.bytes > 1e5) per_byte.push_back(seconds / first.bytes);
  }
  seconds_per_byte_ = quantile(std::move(per_byte), 0.5);
  least_seconds_ = quantile(std::move(all), 0.1);
}

bool KernelTable::measured(const kernels::KernelCall& call) const {
  return kinds_.contains({std::string(call.kernel), std::string(call.variant), call.dtype});
}

// The points of its own kind, or of another variant of the same kernel, or of another type. The pace of small calls says
// nothing about large ones.
const std::vector<KernelTable::Point>* KernelTable::points_of(const kernels::KernelCall& call) const {
  const auto own = kinds_.find({std::string(call.kernel), std::string(call.variant), call.dtype});
  if (own != kinds_.end()) return &own->second;
  constexpr double kAlike = 8;  // as much work, up to this factor
  const double work = work_of(call);
  const std::vector<Point>* other_type = nullptr;
  for (const auto& [kind, points] : kinds_) {
    if (std::get<0>(kind) != call.kernel) continue;
    if (std::ranges::max_element(points, {}, &Point::work)->work * kAlike < work) continue;
    if (std::get<2>(kind) == call.dtype) return &points;
    other_type = &points;
  }
  return other_type;
}

double KernelTable::seconds(const kernels::KernelCall& call) const {
  const std::vector<Point>* points = points_of(call);
  if (!points) return least_seconds_ + call.bytes * seconds_per_byte_;
  const std::array<double, kDims> place = place_of(call.sizes);
  std::vector<Neighbour> neighbours;
  for (const Point& point : *points) {
    Neighbour& n = neighbours.emplace_back(Neighbour{squared_distance(point.place, place), {}, point.pace});
    for (size_t d = 0; d < kDims; ++d) n.offset[d] = point.place[d] - place[d];
  }
  std::ranges::sort(neighbours, {}, &Neighbour::distance2);
  const bool same_sizes = neighbours.front().distance2 < 1e-12;
  const double pace = same_sizes ? neighbours.front().pace
                                 : plane_at_origin(std::span(neighbours).first(std::min(kNearest, neighbours.size())));
  return std::exp(pace) * work_of(call);
}

}  // namespace trivet::autotune
