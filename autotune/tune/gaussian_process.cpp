#include "autotune/tune/gaussian_process.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace trivet::autotune {
namespace {

// Large, so that the constant that all differences share is learned from the first value: predictions may be wrong by any
// factor.
constexpr double kConstantVariance = 25;

// Solves L x = b.
std::vector<double> solve_lower(const std::vector<std::vector<double>>& lower, std::vector<double> b) {
  for (size_t i = 0; i < b.size(); ++i) {
    for (size_t j = 0; j < i; ++j) b[i] -= lower[i][j] * b[j];
    b[i] /= lower[i][i];
  }
  return b;
}

// Solves L^T x = b.
std::vector<double> solve_upper(const std::vector<std::vector<double>>& lower, std::vector<double> b) {
  for (size_t i = b.size(); i-- > 0;) {
    for (size_t j = i + 1; j < b.size(); ++j) b[i] -= lower[j][i] * b[j];
    b[i] /= lower[i][i];
  }
  return b;
}

}  // namespace

GaussianProcess::GaussianProcess(std::vector<std::vector<double>> points, std::vector<double> values)
    : points_(std::move(points)), values_(std::move(values)) {
  double best = -std::numeric_limits<double>::infinity();
  Scales chosen;
  for (const double linear : {0.02, 0.1, 0.3})
    for (const double smooth : {0.05, 0.15, 0.4})
      for (const double length : {1.0, 2.0, 4.0})
        for (const double noise : {0.01, 0.03}) {
          const Scales scales{linear, smooth, length, noise};
          const double likelihood = fit(scales);
          if (likelihood > best) best = likelihood, chosen = scales;
        }
  fit(chosen);
}

double GaussianProcess::covariance(std::span<const double> a, std::span<const double> b, const Scales& scales) const {
  double product = 0, distance = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += a[i] * b[i];
    distance += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return kConstantVariance + scales.linear * scales.linear * product +
         scales.smooth * scales.smooth * std::exp(-distance / (2 * scales.length * scales.length));
}

double GaussianProcess::fit(const Scales& scales) {
  scales_ = scales;
  const size_t n = points_.size();
  factor_.assign(n, std::vector<double>(n, 0));
  double log_determinant = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = covariance(points_[i], points_[j], scales) + (i == j ? scales.noise * scales.noise : 0);
      for (size_t k = 0; k < j; ++k) sum -= factor_[i][k] * factor_[j][k];
      factor_[i][j] = i == j ? std::sqrt(sum) : sum / factor_[j][j];
    }
    log_determinant += 2 * std::log(factor_[i][i]);
  }
  const std::vector<double> whitened = solve_lower(factor_, values_);
  weights_ = solve_upper(factor_, whitened);
  double squares = 0;
  for (const double value : whitened) squares += value * value;
  return -(squares + log_determinant) / 2;
}

GaussianProcess::Estimate GaussianProcess::at(std::span<const double> point) const {
  std::vector<double> with_points;
  double mean = 0;
  for (size_t i = 0; i < points_.size(); ++i) {
    with_points.push_back(covariance(point, points_[i], scales_));
    mean += with_points.back() * weights_[i];
  }
  double variance = covariance(point, point, scales_);
  for (const double value : solve_lower(factor_, with_points)) variance -= value * value;
  return {mean, std::sqrt(std::max(variance, 0.0))};
}

}  // namespace trivet::autotune
