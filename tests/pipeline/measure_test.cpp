// Tests what a step of two ranks costs, by a recording that is written by hand, and what the simulator predicts from it.
//
//   rank 0   F 10 ms | waits for the gradient | B 13.5 ms | SUM_LOSS      optimizer 4 ms
//   rank 1   waits for the activations | L 5.1 ms | SUM_LOSS              optimizer 6 ms
#include "pipeline/measure.h"

#include <gtest/gtest.h>

namespace trivet::pipeline {
namespace {

using Kind = Recording::Kind;

const Schedule kSchedule{parse_program("0RECV_B0 0.0F0 0SEND_F0 0.0B0 0SUM_LOSS"),
                         parse_program("1RECV_F0 1.1L0 1SEND_B0 1SUM_LOSS")};

RecordedStep recorded() {
  const Recording first{100,
                        137,
                        141,
                        {{Kind::Step, Queue::Compute, 0, 100, 100.5},
                         {Kind::Step, Queue::Compute, 1, 100.5, 110.5},
                         {Kind::Work, Queue::Send, 2, 110.7, 113.5},
                         {Kind::Step, Queue::Compute, 2, 110.5, 111},
                         {Kind::Work, Queue::Send, 0, 100.2, 121},
                         {Kind::Wait, Queue::Send, 3, 111, 121.5},
                         {Kind::Step, Queue::Compute, 3, 111, 135},
                         {Kind::Work, Queue::Meet, 4, 135.2, 136.8},
                         {Kind::Wait, Queue::Meet, 4, 135.2, 136.8},
                         {Kind::Step, Queue::Compute, 4, 135, 137},
                         {Kind::Wait, Queue::Meet, Recording::kUpdate, 138, 139}}};
  const Recording second{100,
                         137,
                         143,
                         {{Kind::Step, Queue::Compute, 0, 100, 100.2},
                          {Kind::Work, Queue::Send, 0, 100.1, 113},
                          {Kind::Wait, Queue::Send, 1, 100.3, 113.2},
                          {Kind::Step, Queue::Compute, 1, 100.2, 118.2},
                          {Kind::Step, Queue::Compute, 2, 118.2, 118.4},
                          {Kind::Work, Queue::Send, 2, 118.3, 121.2},
                          {Kind::Wait, Queue::Meet, 3, 118.5, 136.9},
                          {Kind::Step, Queue::Compute, 3, 118.4, 137}}};
  return {first, second};
}

Instruction at(size_t rank, size_t place) { return kSchedule[rank][place]; }

TEST(Measure, CostsAreWithoutWhatTheProgramWaitedFor) {
  const RecordedStep step = recorded();
  const MeasuredCosts costs(kSchedule, {&step, 1}, Overlap::Queues);
  EXPECT_NEAR(costs.cost(0, at(0, 1)), 10, 1e-9);
  EXPECT_NEAR(costs.cost(0, at(0, 3)), 24 - 10.5, 1e-9);
  EXPECT_NEAR(costs.cost(1, at(1, 1)), 18 - 12.9, 1e-9);
  EXPECT_NEAR(costs.cost(0, at(0, 2)), 113 - 110.7, 1e-9) << "a transfer begins when both ranks are there";
  EXPECT_NEAR(costs.cost(1, at(1, 2)), 121 - 118.3, 1e-9);
  EXPECT_NEAR(costs.cost(0, at(0, 4)), 136.8 - 135.2, 1e-9) << "the meeting, without waiting for the last rank";
  EXPECT_NEAR(costs.issue(0, at(0, 2)), 0.5, 1e-9);
  EXPECT_NEAR(costs.issue(1, at(1, 3)), 18.6 - 18.4, 1e-9);
  EXPECT_NEAR(costs.lead(0), 4, 1e-9);
  EXPECT_NEAR(costs.lead(1), 6, 1e-9);
}

TEST(Measure, APredictedStepIsTheOptimizerStepAndThenTheProgram) {
  const RecordedStep step = recorded();
  const MeasuredCosts costs(kSchedule, {&step, 1}, Overlap::Queues);
  const Timeline timeline = predicted_timelines(kSchedule, {&costs, 1}, Overlap::Queues).front();
  // rank 0: 4 + 0.5 + F 10 + 0.5; transfer 2.3; L 5.1; 0.2; transfer 2.7; B 13.5; meeting 1.6; 0.4
  EXPECT_NEAR(timeline.makespan, 40.8, 1e-9);
  ASSERT_EQ(timeline.waits[0].size(), 2u);
  EXPECT_EQ(timeline.waits[0][0].queue, Queue::Send);
  EXPECT_NEAR(timeline.waits[0][0].start, 15, 1e-9);
  EXPECT_NEAR(timeline.waits[0][0].end, 25.3, 1e-9);
  EXPECT_EQ(timeline.waits[1][1].queue, Queue::Meet);
  EXPECT_NEAR(timeline.waits[1][1].start, 22.6, 1e-9);
  EXPECT_NEAR(timeline.waits[1][1].end, 40.4, 1e-9);
}

TEST(Measure, TheMeasuredTimelineIsCountedFromWhereTheOptimizerStepBegan) {
  const RecordedStep step = recorded();
  const double from = origin(step);
  EXPECT_EQ(from, 94);
  const Timeline timeline = measured_timeline(kSchedule, step, Overlap::Queues, from);
  EXPECT_NEAR(timeline.makespan, 43, 1e-9);
  EXPECT_NEAR(timeline.bubble_fraction, 1 - (10 + 13.5 + 5) / (2 * 37.0), 1e-9);
  EXPECT_NEAR(timeline.ranks[0].back().start, 135.2 - 94, 1e-9);  // the meeting
  EXPECT_NEAR(timeline.ranks[0][2].start, 121.5 - 94, 1e-9);      // B: when it had its gradient
  ASSERT_EQ(timeline.waits[0].size(), 2u) << "waits of the optimizer step are not in the program";
}

TEST(Measure, CostsAreMeansOverMicrobatchesAndMediansOverSteps) {
  const Schedule one{parse_program("0.0L0 0.0L1")};
  const auto of = [](double first, double second) {
    return RecordedStep{{0,
                         first + second,
                         first + second,
                         {{Kind::Step, Queue::Compute, 0, 0, first}, {Kind::Step, Queue::Compute, 1, first, first + second}}}};
  };
  const std::vector<RecordedStep> steps{of(1, 2), of(10, 10), of(1, 3)};
  EXPECT_EQ(MeasuredCosts(one, steps, Overlap::Queues).cost(0, one[0][0]), 2);
  const auto even = std::span(steps).first(2);
  EXPECT_EQ(MeasuredCosts(one, even, Overlap::Queues).cost(0, one[0][0]), (1.5 + 10) / 2);
}

TEST(Measure, GathersCostWhereTheyKeepTheProgramWaiting) {
  const Schedule one{parse_program("0.0UNSHARD 0.0L0 0.0RESHARD")};
  const RecordedStep beside{{0,
                             9,
                             9,
                             {{Kind::Step, Queue::Compute, 0, 0, 1},
                              {Kind::Work, Queue::Gather, 0, 0.5, 4},
                              {Kind::Wait, Queue::Gather, 1, 1, 4},
                              {Kind::Step, Queue::Compute, 1, 1, 8},
                              {Kind::Step, Queue::Compute, 2, 8, 9}}}};
  const MeasuredCosts queued(one, {&beside, 1}, Overlap::Queues);
  EXPECT_EQ(queued.cost(0, one[0][0]), 3.5);
  EXPECT_EQ(queued.issue(0, one[0][0]), 1);
  EXPECT_EQ(queued.cost(0, one[0][1]), 4);
  const RecordedStep inside{{0,
                             9,
                             9,
                             {{Kind::Work, Queue::Gather, 0, 0.5, 4},
                              {Kind::Wait, Queue::Gather, 0, 0.5, 4},
                              {Kind::Step, Queue::Compute, 0, 0, 4.5},
                              {Kind::Step, Queue::Compute, 1, 4.5, 8},
                              {Kind::Step, Queue::Compute, 2, 8, 9}}}};
  const MeasuredCosts inline_costs(one, {&inside, 1}, Overlap::None);
  EXPECT_EQ(inline_costs.cost(0, one[0][0]), 4.5);
  const Timeline timeline = predicted_timelines(one, {&inline_costs, 1}, Overlap::None).front();
  EXPECT_EQ(timeline.makespan, 9);
  ASSERT_EQ(timeline.waits[0].size(), 1u);
  EXPECT_EQ(timeline.waits[0][0].queue, Queue::Gather);
}

// ZeRO stages 1 and 2 gather new weights after the optimizer step; no instruction says so.
TEST(Measure, AWaitForWhatNoInstructionGathersIsPartOfTheCost) {
  const Schedule one{parse_program("0.0L0")};
  const RecordedStep step{{0, 8, 8, {{Kind::Wait, Queue::Gather, 0, 0, 3}, {Kind::Step, Queue::Compute, 0, 0, 8}}}};
  EXPECT_EQ(MeasuredCosts(one, {&step, 1}, Overlap::Queues).cost(0, one[0][0]), 8);
}

}  // namespace
}  // namespace trivet::pipeline
