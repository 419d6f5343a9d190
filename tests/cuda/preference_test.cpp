// Compares the loss of pairs of answers with the CPU's. Sums of a row are made in another order, in double, and the functions
// of both are off by units of double.
#include "kernels/preference.h"

#include "tests/cuda/twins.h"

namespace trivet::kernels::preference_test {
namespace {

constexpr double kNear = 1e-13;

constexpr PreferenceRule kRules[] = {{PreferenceLossType::Sigmoid, 0.3, 0},
                                     {PreferenceLossType::Hinge, 0.03, 0},
                                     {PreferenceLossType::Ipo, 0.3, 0},
                                     {PreferenceLossType::Robust, 0.3, 0.2}};

// Rows of a batch; the last pair does not count.
struct PairTwins {
  Twin losses, targets, reference;
  Twin factors, log_probabilities;
  Twin loss = Twin::of<double>({0.5, 7}, {2}), correct = number_of(3), rewards = Twin::of<double>({-1, 4}, {2});

  PairTwins(int64_t rows, int64_t length)
      : losses(positive(rows, length)),
        targets(targets_of(rows, length)),
        reference(Twin::random(DType::Float64, {rows}, 2)),
        factors(Twin::poisoned(DType::Float64, {rows, length})),
        log_probabilities(Twin::poisoned(DType::Float64, {rows})) {}

  static Twin positive(int64_t rows, int64_t length) {
    HostTensor losses = HostTensor::random(DType::Float64, {rows, length}, 1);
    for (int64_t e = 0; e < losses.elements(); ++e) losses.set(e, 1 + losses.at(e));
    return Twin(losses);
  }
  static Twin targets_of(int64_t rows, int64_t length) {
    std::vector<int32_t> targets;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t t = 0; t < length; ++t) targets.push_back(row + 2 >= rows && row % 2 == 1 ? -1 : t < row % 3 ? -1 : 5);
    return Twin::of<int32_t>(targets, {rows, length});
  }
  void expect_near(const std::string& what) const {
    factors.expect_near("factors " + what, 1e-15, kNear);
    log_probabilities.expect_near("log_probabilities " + what, 0, kNear);
    loss.expect_near("loss " + what, 0, kNear);
    correct.expect_same_bits("correct " + what);
    rewards.expect_near("rewards " + what, 1e-13, kNear);
  }
};

TEST(CudaPreferenceLoss, LossesFactorsAndRewardsAreNearTheCpus) {
  for (const PreferenceRule& rule : kRules)
    for (const auto& [rows, length] : {std::pair<int64_t, int64_t>{0, 4}, {2, 5}, {6, 37}, {4, 700}}) {
      PairTwins pairs(rows, length);
      run_twins<PreferenceLoss>([&](const auto& view) {
        return PreferenceLoss{.row_losses = view(pairs.losses),
                              .targets = view(pairs.targets),
                              .reference = view(pairs.reference),
                              .rule = rule,
                              .factors = view(pairs.factors),
                              .log_probabilities = view(pairs.log_probabilities),
                              .loss = view(pairs.loss),
                              .correct = view(pairs.correct),
                              .rewards = view(pairs.rewards)};
      });
      pairs.expect_near(std::string(name_of(rule.loss_type)) + " " + std::to_string(rows) + " x " + std::to_string(length));
      pairs.losses.expect_same_bits("row_losses");
    }
}

TEST(CudaPreferenceLoss, FactorsMayOverwriteTheLosses) {
  in_every_order([] {
    PairTwins pairs(6, 300);
    run_twins<PreferenceLoss>([&](const auto& view) {
      return PreferenceLoss{.row_losses = view(pairs.losses),
                            .targets = view(pairs.targets),
                            .reference = view(pairs.reference),
                            .factors = view(pairs.losses)};
    });
    pairs.losses.expect_near("factors", 1e-15, kNear);
  });
}

}  // namespace
}  // namespace trivet::kernels::preference_test
