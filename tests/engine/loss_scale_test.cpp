#include "engine/optimizer/loss_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/error.h"

namespace trivet {
namespace {

Fp16Config dynamic(int64_t power, int64_t window, int64_t hysteresis, bool consecutive = false) {
  Fp16Config config;
  config.enabled = true;
  config.initial_scale_power = power;
  config.loss_scale_window = window;
  config.hysteresis = hysteresis;
  config.consecutive_hysteresis = consecutive;
  return config;
}

// Runs a sequence of steps, "x" an overflow and "." a clean step, and returns the power of two of the scale after each.
std::string powers(LossScale& scale, const std::string& steps) {
  std::string text;
  for (const char step : steps) {
    scale.update(step == 'x');
    text += (text.empty() ? "" : " ") + std::to_string(static_cast<int>(std::log2(scale.value())));
  }
  return text;
}

struct Sequence {
  Fp16Config config;
  std::string steps, powers;
};

TEST(LossScale, FollowsDeepSpeedsRulesStepByStep) {
  const Sequence sequences[] = {
      {dynamic(16, 2, 1), "xx", "15 14"},                          // hysteresis 1: every overflow halves
      {dynamic(16, 2, 2), "xxx", "16 15 14"},                      // the first is tolerated, then the hysteresis is used up
      {dynamic(16, 2, 3), "xxxx", "16 16 15 14"},                  //
      {dynamic(16, 2, 1), "......", "16 16 17 17 18 18"},          // doubles after window + 1 clean steps, then every window
      {dynamic(16, 3, 1), ".......", "16 16 16 17 17 17 18"},      //
      {dynamic(16, 2, 1), "..x...x", "16 16 15 15 15 16 15"},      // an overflow starts the count again
      {dynamic(16, 2, 2), "x.x.x", "16 16 15 15 14"},              // a clean step does not refill ...
      {dynamic(16, 2, 2, true), "x.x.xx", "16 16 16 16 16 15"},    // ... unless consecutive_hysteresis
      {dynamic(16, 2, 2), "xx...x.x", "16 15 15 15 16 16 16 15"},  // a doubling refills it
      {dynamic(16, 1, 1), "....", "16 17 18 19"},                  //
      {dynamic(2, 1000, 1), "xx", "1 0"},                          // down to the minimum, 1
  };
  for (const Sequence& sequence : sequences) {
    LossScale scale(sequence.config);
    EXPECT_EQ(powers(scale, sequence.steps), sequence.powers) << sequence.steps;
  }
}

TEST(LossScale, AnOverflowAtTheMinimumEndsTheRun) {
  LossScale scale(dynamic(1, 2, 1));
  scale.update(true);
  EXPECT_EQ(scale.value(), 1);
  EXPECT_THAT(
      [&] { scale.update(true); },
      testing::ThrowsMessage<NumericsError>(
          "fp16: gradients overflow at the smallest loss scale, fp16.min_loss_scale 1; lower the learning rate, or train "
          "in bf16, which needs no loss scale"));
}

TEST(LossScale, StopsAtAMinimumThatIsNoPowerOfTwo) {
  Fp16Config config = dynamic(4, 2, 1);
  config.min_loss_scale = 5;
  LossScale scale(config);
  scale.update(true);
  EXPECT_EQ(scale.value(), 8);
  scale.update(true);
  EXPECT_EQ(scale.value(), 5);
  EXPECT_THROW(scale.update(true), NumericsError);
}

TEST(LossScale, AStaticScaleNeverChanges) {
  Fp16Config config = dynamic(16, 2, 1);
  config.loss_scale = 128;
  LossScale scale(config);
  EXPECT_FALSE(scale.dynamic());
  EXPECT_EQ(powers(scale, "xxx......"), "7 7 7 7 7 7 7 7 7");
  scale.restore({.scale = 65536});  // from a run with another or a dynamic scale
  EXPECT_EQ(scale.value(), 128);
}

TEST(LossScale, WithoutFp16ItIsOne) {
  LossScale scale(Fp16Config{});
  scale.update(true);
  EXPECT_EQ(scale.value(), 1);
  EXPECT_FALSE(scale.dynamic());
}

TEST(LossScale, ARestoredScaleGoesOnAsIfNothingHadHappened) {
  const std::string steps = "x..x.....x...x.x....";
  for (size_t cut = 0; cut <= steps.size(); ++cut) {
    LossScale whole(dynamic(16, 3, 2)), before(dynamic(16, 3, 2)), after(dynamic(16, 3, 2));
    powers(whole, steps);
    powers(before, steps.substr(0, cut));
    after.restore(before.state());
    powers(after, steps.substr(cut));
    EXPECT_EQ(after.state(), whole.state()) << cut;
  }
}

}  // namespace
}  // namespace trivet
