// The volumes that papers give for what ranks send, compared with what the engine's plan counts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "pipeline/passes/unshard_release.h"
#include "tests/engine/small_plan.h"

namespace trivet::autotune {
namespace {

using pipeline::UnshardRelease;

// psi parameters, n data ranks, m microbatches per step, x = b s h elements of activations of one layer and one microbatch, t
// tensor ranks. Volumes are in elements, for one rank and for rings, with the exact (n - 1) / n that papers leave out.

// The volume of a step on the data axis (ZeRO, Rajbhandari et al. 2020, section 7), in units of (n - 1) / n:
//
//   stage       reduced   gathered
//   0           2 psi                  all_reduce
//   1           psi       psi
//   2           m psi     psi          gradients leave with every microbatch
//   3           m psi     2 m psi      weights released after each use (Use)
//               m psi     m psi        kept from forward to backward (Microbatch)
//               m psi     psi          kept for the step (Step)
struct DataVolume {
  double reduced = 0, gathered = 0;
  double total() const { return reduced + gathered; }
};
struct DataAxis {
  int zero_stage = 0;
  int64_t ranks = 1, microbatches = 1;
  pipeline::UnshardRelease release = pipeline::UnshardRelease::Use;  // stage 3; not Distance, which is between Use and Step
};
double share_sent(int64_t ranks) { return static_cast<double>(ranks - 1) / static_cast<double>(ranks); }

double gathers_of_stage3(const DataAxis& axis) {
  const double microbatches = static_cast<double>(axis.microbatches);
  switch (axis.release) {
    case pipeline::UnshardRelease::Use: return 2 * microbatches;
    case pipeline::UnshardRelease::Microbatch: return microbatches;
    case pipeline::UnshardRelease::Step: return 1;
    case pipeline::UnshardRelease::Distance: break;
  }
  throw std::logic_error("data_volume: a distance has no closed formula; a plan counts it");
}

DataVolume data_volume(const DataAxis& axis, double parameters) {
  const double sent = parameters * share_sent(axis.ranks), microbatches = static_cast<double>(axis.microbatches);
  switch (axis.zero_stage) {
    case 0: return {2 * sent, 0};
    case 1: return {sent, sent};
    case 2: return {microbatches * sent, sent};
    case 3: return {microbatches * sent, gathers_of_stage3(axis) * sent};
    default: throw std::logic_error("data_volume: there is no such ZeRO stage");
  }
}

// Forward and backward of a layer on the tensor axis (Shoeybi et al. 2019) do 4 all_reduces: 8 (t - 1) / t x. With sequence
// parallelism (Korthikanti et al. 2022) they do 4 all_gathers and 4 reduce_scatters, which is as much, and an all_gather of x
// for each of the `gathered_again` inputs of products that backward gathers instead of keeping.
double tensor_layer_volume(double activations, int64_t ranks, int64_t gathered_again = 0) {
  return (8 + static_cast<double>(gathered_again)) * share_sent(ranks) * activations;
}

constexpr double kPsi = 7.5e9;
constexpr int64_t kMany = 1'000'000;  // ranks: (n - 1) / n is 1 to six digits

// Volumes are in units of psi and without the factor (n - 1) / n: section 7 of the ZeRO paper, extended to gradient
// accumulation.
TEST(CommunicationVolume, IsThatOfTheZeroPaper) {
  const auto of = [](int stage, int64_t microbatches, UnshardRelease release = UnshardRelease::Use) {
    return data_volume({.zero_stage = stage, .ranks = kMany, .microbatches = microbatches, .release = release}, kPsi).total() /
           kPsi;
  };
  for (const int64_t m : {1, 4}) {
    const double tolerance = 1e-5 * static_cast<double>(m);  // for the factor (n - 1) / n
    EXPECT_NEAR(of(0, m), 2, tolerance);
    EXPECT_NEAR(of(1, m), 2, tolerance);
    EXPECT_NEAR(of(2, m), static_cast<double>(m) + 1, tolerance);
    EXPECT_NEAR(of(3, m), 3 * static_cast<double>(m), tolerance);
    EXPECT_NEAR(of(3, m, UnshardRelease::Microbatch), 2 * static_cast<double>(m), tolerance);
    EXPECT_NEAR(of(3, m, UnshardRelease::Step), static_cast<double>(m) + 1, tolerance);
  }
  EXPECT_EQ(data_volume({.zero_stage = 3, .ranks = 1, .microbatches = 4}, kPsi).total(), 0);
  EXPECT_EQ(data_volume({.zero_stage = 0, .ranks = 4}, 8).total(), 12);
  EXPECT_THROW(data_volume({.zero_stage = 4}, 1), std::logic_error);
  EXPECT_THROW(data_volume({.zero_stage = 3, .release = UnshardRelease::Distance}, 1), std::logic_error);
}

// Elements on one rank, padding included, of all blocks or of the head alone.
double padded_elements(const Plan& plan, bool head_only = false) {
  double elements = 0;
  const auto& blocks = plan.ranks[0].layout.blocks;
  for (size_t block = head_only ? blocks.size() - 1 : 0; block < blocks.size(); ++block)
    for (const zero::FlatGroup& group : blocks[block].groups) elements += static_cast<double>(group.whole_elements);
  return elements;
}

// The head's forward and backward count as one use, so its parameters are gathered once.
TEST(CommunicationVolume, OfTheDataAxisIsThatOfThePlan) {
  Config config = small_config();
  config.zero.stage3_param_persistence_threshold = 0;
  config.model.tied_embedding = false;  // a tied table is gathered for the head, too
  for (const bool wide : {false, true})
    for (const int ranks : {1, 2, 3, 4})
      for (const int64_t microbatches : {1, 3})
        for (const int stage : {0, 1, 2, 3})
          for (const UnshardRelease release : {UnshardRelease::Use, UnshardRelease::Microbatch, UnshardRelease::Step}) {
            config.bf16.enabled = true;
            config.grad_accum_dtype = wide ? DType::Float32 : DType::BFloat16;
            config.batch = {.micro_batch_size = 1, .gradient_accumulation_steps = microbatches};
            config.zero.stage = stage;
            config.zero.stage3_release = release;
            const Plan plan = plan_of(config, ranks);
            DataAxis axis{.zero_stage = stage, .ranks = ranks, .microbatches = microbatches, .release = release};
            DataVolume volume = data_volume(axis, padded_elements(plan));
            if (stage == 3 && release == UnshardRelease::Use)
              volume.gathered -=
                  data_volume(
                      {.zero_stage = 3, .ranks = ranks, .microbatches = microbatches, .release = UnshardRelease::Microbatch},
                      padded_elements(plan, true))
                      .gathered;
            const std::string name =
                fmt::format("{} ranks, {} microbatches, stage {}, {}", ranks, microbatches, stage, name_of(release));
            EXPECT_DOUBLE_EQ(static_cast<double>(plan.ranks[0].traffic_of("reduce").bytes_sent),
                             volume.reduced * (wide ? 4 : 2))
                << name;
            EXPECT_DOUBLE_EQ(static_cast<double>(plan.ranks[0].traffic_of("gather").bytes_sent), volume.gathered * 2) << name;
          }
}

// The volume of one layer is the difference between models of 4 layers and 3.
TEST(CommunicationVolume, OfTheTensorAxisIsThatOfThePlan) {
  Config config = small_config();
  config.model.hidden_size = 256;  // vectors are padded to 256 elements
  const double activations = 1.0 * 32 * 256;
  for (const int tensor : {2, 4})
    for (const bool sequence_parallel : {false, true}) {
      config.parallel.tensor = tensor;
      config.parallel.sequence_parallel = sequence_parallel;
      const auto sent = [&](int64_t layers) {
        config.model.layers = layers;
        return static_cast<double>(plan_of(config, tensor).ranks[0].traffic_of("tensor").bytes_sent);
      };
      const double microbatches = 12;
      // With sequence parallelism, each step also sums the gradients of two norms (2 h each) and of the biases of out and down.
      const double unsplit = sequence_parallel ? 2.0 * (tensor - 1) / tensor * 6 * 256 : 0;
      const double expected = microbatches * tensor_layer_volume(activations, tensor, sequence_parallel ? 2 : 0) + unsplit;
      EXPECT_DOUBLE_EQ(sent(4) - sent(3), 4 * expected) << tensor << sequence_parallel;
    }
  EXPECT_DOUBLE_EQ(tensor_layer_volume(1, 8), 7);  // 8 (t - 1) / t
}

// 2 b s h / t elements cross each boundary, both directions together. An interleaved schedule with v chunks has v times as many
// boundaries, except after the last stage.
TEST(CommunicationVolume, BetweenStagesIsATensorRanksShareOfTheTokens) {
  Config config = small_config();
  config.parallel.pipeline = 2;
  const double microbatches = 12, activations = 1.0 * 32 * 64, bytes = 4;
  for (const int tensor : {1, 2}) {
    config.parallel.tensor = tensor;
    config.parallel.sequence_parallel = tensor > 1;
    for (const auto& [schedule, boundaries] : {std::pair{ScheduleKind::OneForwardOneBackward, 1},
                                               {ScheduleKind::Interleaved, 3},     // 0|1, 1|2 and 2|3: 2 ranks x 2 chunks
                                               {ScheduleKind::ZeroBubbleV, 2}}) {  // stages 1 and 2 are on one rank
      config.pipeline.schedule = schedule;
      const Plan plan = plan_of(config, 2 * tensor);
      const double sent = static_cast<double>(plan.rank(0).traffic_of("pipeline").bytes_sent +
                                              plan.rank(tensor).traffic_of("pipeline").bytes_sent);
      EXPECT_DOUBLE_EQ(sent, boundaries * microbatches * 2 * activations / tensor * bytes) << name_of(schedule) << tensor;
    }
  }
}

}  // namespace
}  // namespace trivet::autotune
