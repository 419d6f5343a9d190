// Estimates a function that is known at some points, and how certain the estimate is elsewhere (Rasmussen, Williams: Gaussian
// Processes for Machine Learning, 2006, algorithm 2.1). It is meant for tens of points, because a fit is a Cholesky
// factorization.
#pragma once

#include <span>
#include <vector>

namespace trivet::autotune {

class GaussianProcess {
 public:
  struct Estimate {
    double mean = 0, deviation = 0;
  };

  // The function has values[i] at points[i]; there is at least one. The prior is a constant, plus a linear function of the
  // features, plus a smooth one, plus the noise of measurements. Their scales are chosen from a grid by the likelihood of the
  // values.
  GaussianProcess(std::vector<std::vector<double>> points, std::vector<double> values);

  Estimate at(std::span<const double> point) const;

 private:
  struct Scales {
    double linear = 0, smooth = 0, length = 1, noise = 0;
  };
  double covariance(std::span<const double> a, std::span<const double> b, const Scales& scales) const;
  double fit(const Scales& scales);  // returns the log likelihood, up to a constant

  std::vector<std::vector<double>> points_;
  std::vector<double> values_;
  Scales scales_;
  std::vector<std::vector<double>> factor_;  // lower triangle L of L L^T = covariances of the points
  std::vector<double> weights_;              // covariances^-1 values
};

}  // namespace trivet::autotune
