// Compares makespans and peaks of the generators with closed formulas, and tests the rules of the clock.
#include "pipeline/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "pipeline/schedules/schedules.h"
#include "pipeline/validate.h"

namespace trivet::pipeline {
namespace {

struct Case {
  ScheduleKind kind;
  int ranks, microbatches, chunks = 1;
  ComputeCosts costs = {};
};

Timeline run(const Case& c) {
  const Schedule schedule = generate(c.kind, {c.ranks, c.microbatches, c.chunks});
  return simulate(schedule, {.cost = even_costs(schedule, c.costs), .sends = backward_sends(c.kind)});
}

void expect_makespan(const Case& c, double makespan) {
  EXPECT_NEAR(run(c).makespan, makespan, 1e-9) << name_of(c.kind) << ' ' << c.ranks << ' ' << c.microbatches << ' ' << c.chunks;
}

constexpr auto k1F1B = ScheduleKind::OneForwardOneBackward;
constexpr auto kInterleaved = ScheduleKind::Interleaved;
constexpr auto kH1 = ScheduleKind::ZeroBubbleH1;
constexpr auto k2p = ScheduleKind::ZeroBubble2p;
constexpr auto kV = ScheduleKind::ZeroBubbleV;

// A rank has one stage of two blocks: each block takes half of F, I and W, and recomputing it takes half of another F.
TEST(EvenCosts, ShareAStagesTimeAmongItsBlocks) {
  const Schedule schedule{parse_program("0.0F0 0.1F0 0.1R0 0.1I0 0.0R0 0.0I0 0.1W0 0.0W0")};
  const auto cost = even_costs(schedule, {.forward = 2, .backward_input = 6, .backward_weight = 10});
  const auto of = [&](const char* instruction) { return cost(0, parse_program(instruction).at(0)); };
  EXPECT_EQ(of("0.0F0"), 1);
  EXPECT_EQ(of("0.1R0"), 1);
  EXPECT_EQ(of("0.1I0"), 3);
  EXPECT_EQ(of("0.0W0"), 5);
  EXPECT_EQ(of("0.1B0"), 8);
  EXPECT_EQ(of("0.1L0"), 9);  // F, I and W
  EXPECT_EQ(of("0.0UNSHARD"), 0);
}

TEST(Simulate, PublishedMakespans) {
  expect_makespan({k1F1B, 4, 8}, 33);
  expect_makespan({k1F1B, 4, 16}, 57);
  expect_makespan({k1F1B, 8, 32}, 117);
  expect_makespan({k1F1B, 8, 8}, 45);
  expect_makespan({kH1, 4, 8}, 27);
  expect_makespan({kH1, 4, 16}, 51);
  expect_makespan({kH1, 8, 32}, 103);
  expect_makespan({kH1, 8, 8}, 31);
  expect_makespan({kH1, 4, 8, 1, {1, 1.2, 0.8}}, 28.2);
  expect_makespan({kH1, 8, 32, 1, {1, 1.2, 0.8}}, 105.8);
  expect_makespan({kInterleaved, 4, 8, 2}, 28.5);
  expect_makespan({kInterleaved, 4, 8, 4}, 26.25);
  expect_makespan({kInterleaved, 8, 32, 2}, 106.5);
  expect_makespan({k2p, 4, 8}, 27);
  expect_makespan({k2p, 8, 32}, 103);
  expect_makespan({kV, 4, 8, 2}, 25.5);
  expect_makespan({kV, 8, 32, 2}, 99.5);
}

TEST(Simulate, PublishedPeaks) {
  EXPECT_EQ(run({kInterleaved, 4, 8, 2}).peak_microbatches[0], 11);
  EXPECT_EQ(run({kInterleaved, 4, 8, 4}).peak_microbatches[0], 19);
  EXPECT_EQ(run({kInterleaved, 8, 32, 2}).peak_microbatches[0], 23);
}

double formula(const Case& c) {
  const double p = c.ranks - 1, m = c.microbatches, f = c.costs.forward, i = c.costs.backward_input,
               w = c.costs.backward_weight;
  switch (c.kind) {
    case ScheduleKind::ZeroBubbleH1: return m * (f + i + w) + p * (f + i - w);
    case ScheduleKind::ZeroBubble2p: return m * (f + i + w) + p * std::max(f, f + i - 2 * w);
    case ScheduleKind::ZeroBubbleV: return m * (f + i + w) + p * f / 2;
    case ScheduleKind::Interleaved: return (m + p / c.chunks) * (f + i + w);
    default: return (m + p) * (f + i + w);
  }
}

// The least number of microbatches for which a formula holds.
int enough(ScheduleKind kind, int ranks) { return kind == k2p || kind == kV ? 2 * ranks - 1 : ranks; }

TEST(Simulate, ClosedFormulas) {
  for (int ranks : {1, 2, 3, 5, 8})
    for (int more : {0, 1, 4, 9})
      for (ComputeCosts costs : {ComputeCosts{1, 1, 1}, ComputeCosts{2, 1.5, 1.25}, ComputeCosts{3, 3, 1}}) {
        for (ScheduleKind kind : {ScheduleKind::GPipe, k1F1B, kH1, k2p}) {
          const Case c{kind, ranks, enough(kind, ranks) + more, 1, costs};
          expect_makespan(c, formula(c));
        }
        for (int chunks : {2, 3}) {
          const Case c{kInterleaved, ranks, ranks * (1 + more), chunks, costs};
          expect_makespan(c, formula(c));
        }
        const Case v{kV, ranks, enough(kV, ranks) + more, 2};
        expect_makespan(v, formula(v));
      }
}

TEST(Simulate, PeaksOfTheZeroBubbleSchedules) {
  for (int ranks : {1, 2, 4, 8})
    for (int microbatches : {1, 3, 8, 32}) {
      EXPECT_EQ(validate(generate(k2p, {ranks, microbatches, 1}), microbatches).peak_microbatches[0],
                std::min(microbatches, 2 * ranks - 1));
      for (int peak : run({kV, ranks, microbatches, 2}).peak_microbatches) EXPECT_LE(peak, 2 * ranks);
    }
}

TEST(Simulate, BlocksTakeAsLongAsTheirStage) {
  Schedule schedule = insert_send_receive(zero_bubble_v(4, 8), BackwardSends::AfterInput);
  std::vector<int> first_blocks;
  for (int stage = 0; stage <= 8; ++stage) first_blocks.push_back(2 * stage);
  for (Program& program : schedule) program = expand_blocks(program, first_blocks);
  EXPECT_NEAR(simulate(schedule, {.cost = even_costs(schedule, {})}).makespan, 25.5, 1e-9);
}

TEST(Simulate, AGradientThatLeavesAfterItsWeightsCostsZeroBubbleVItsGain) {
  const Schedule schedule = zero_bubble_v(4, 8);
  const auto cost = even_costs(schedule, {});
  EXPECT_NEAR(simulate(schedule, {.cost = cost, .sends = BackwardSends::AfterWeights}).makespan, 28.5, 1e-9);
}

TEST(Simulate, TheBubbleIsWhatRanksWait) {
  EXPECT_NEAR(run({k1F1B, 4, 8}).bubble_fraction, 3.0 / 11, 1e-12);
  EXPECT_EQ(run({k1F1B, 1, 8}).bubble_fraction, 0);
}

TEST(Simulate, TransfersRunInParallelWithComputation) {
  const Schedule schedule = gpipe(2, 2);
  const auto compute = even_costs(schedule, {});
  const auto cost = [&](int rank, const Instruction& i) { return i.op == Op::SendForward ? 0.5 : compute(rank, i); };
  const Timeline timeline = simulate(schedule, {.cost = cost, .sends = BackwardSends::AfterWeights});
  EXPECT_EQ(timeline.makespan, 9.5);
  const auto& sent = timeline.ranks[0][2];  // listed after 0F1, which starts at the same time
  EXPECT_EQ(to_string(sent.instruction), "0SEND_F0");
  EXPECT_EQ(sent.queue, Queue::Send);
  EXPECT_EQ(sent.peer, 1);
  EXPECT_EQ(sent.start, 1);
  EXPECT_EQ(sent.end, 1.5);
}

TEST(Simulate, GathersRunInParallelWithComputationOnlyWhenTheyMay) {
  const Schedule schedule{
      parse_program("0.0UNSHARD 0.1UNSHARD 0.0F0 0.0RESHARD 0.1F0 0.1B0 0.1REDUCE 0.1RESHARD 0.0UNSHARD 0.0B0 0.0REDUCE")};
  const auto cost = [](int, const Instruction& i) { return i.op == Op::Reshard ? 0.0 : 1.0; };
  // gather 0, 1 | F0 while 1 is gathered, F1, B1, wait for 0 again, B0, reduce
  EXPECT_EQ(simulate(schedule, {.cost = cost}).makespan, 7);
  EXPECT_EQ(simulate(schedule, {.cost = cost, .overlap = Overlap::None}).makespan, 9);
}

TEST(Simulate, ATieAddsGradientsThatAreReduced) {
  const Schedule schedule{parse_program("0.0L0 0.0REDUCE 0.0TIE")};
  const auto cost = [](int, const Instruction& i) { return i.op == Op::Reduce ? 3.0 : 1.0; };
  EXPECT_EQ(simulate(schedule, {.cost = cost}).makespan, 1 + 3 + 1);
}

// The second data rank computes half as fast: the first one waits for it at each reduction but one, and at the end.
TEST(Simulate, ReplicasReduceTogether) {
  const Schedule schedule{parse_program("0.0L0 0.0REDUCE 0.0L1 0.0REDUCE 0.0L2 0.0REDUCE 0SUM_LOSS")};
  const auto costs = [](double loss) {
    return SimulateOptions{.cost = [loss](int, const Instruction& i) {
      return i.op == Op::Loss ? loss : i.op == Op::Reduce ? 1.0 : 0.0;
    }};
  };
  const SimulateOptions both[] = {costs(2), costs(4)};
  const std::vector<Timeline> timelines = simulate_replicas(schedule, both);
  EXPECT_EQ(simulate(schedule, both[0]).makespan, 7);
  EXPECT_EQ(timelines[0].makespan, 13);
  EXPECT_EQ(timelines[1].makespan, 13);
  // L0 2, L1 2, waits for the reduction that began at 4; L2 2, waits for the one that began at 8 ...
  ASSERT_EQ(timelines[0].waits[0].size(), 3u);
  EXPECT_EQ(timelines[0].waits[0][0].queue, Queue::Reduce);
  EXPECT_EQ(timelines[0].waits[0][0].start, 4);
  EXPECT_EQ(timelines[0].waits[0][0].end, 5);
  EXPECT_EQ(timelines[0].waits[0][1].start, 7);
  EXPECT_EQ(timelines[0].waits[0][1].end, 9);
  EXPECT_EQ(timelines[0].waits[0][2].queue, Queue::Meet);
  EXPECT_EQ(timelines[0].waits[0][2].end, 12);
}

}  // namespace
}  // namespace trivet::pipeline
