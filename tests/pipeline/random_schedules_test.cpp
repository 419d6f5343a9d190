// Ten thousand schedules of random sizes and costs: the clock completes what validate() accepts, with the data flow of a
// pipeline. Schedules that are broken at random are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "pipeline/schedules/schedules.h"
#include "pipeline/simulate.h"
#include "pipeline/validate.h"

namespace trivet::pipeline {
namespace {

constexpr auto kKinds = all_values<ScheduleKind>();

class Dice {
 public:
  int number(int least, int most) { return std::uniform_int_distribution(least, most)(random_); }
  double cost() { return std::uniform_real_distribution(0.1, 3.0)(random_); }

 private:
  std::mt19937 random_{2024};
};

struct Sample {
  ScheduleKind kind;
  ScheduleSizes sizes;
  Schedule schedule;
};

Sample draw(Dice& dice) {
  const ScheduleKind kind = kKinds[dice.number(0, static_cast<int>(kKinds.size()) - 1)];
  const ScheduleTraits traits = traits_of(kind);
  const int chunks = traits.any_chunks ? dice.number(2, 4) : traits.chunks;
  const ScheduleSizes sizes{dice.number(1, 6), dice.number(1, 12), chunks};
  return {kind, sizes, generate(kind, sizes)};
}

// A cost for each stage and kind of work, and for transfers.
std::function<double(int, const Instruction&)> random_costs(Dice& dice, int stages) {
  std::vector<double> costs;
  for (int n = 0; n < 8 * stages; ++n) costs.push_back(dice.cost());
  return [costs](int, const Instruction& i) {
    const int column = computes(i.op) ? static_cast<int>(i.op) : i.op == Op::SendForward ? 6 : 7;
    return costs[8 * i.stage + column];
  };
}

using Times = std::map<std::tuple<Op, int, int>, const TimedInstruction*>;

// Every instruction runs once, and a rank runs one at a time. F comes after the previous stage's F, I after F and after the
// next stage's I, and W after I.
void expect_data_flow(const Timeline& timeline, int stages, int microbatches) {
  Times times;
  for (const auto& rank : timeline.ranks) {
    double free = 0;
    for (const TimedInstruction& timed : rank) {
      if (timed.queue != Queue::Compute) continue;
      const Instruction& i = timed.instruction;
      EXPECT_GE(timed.start, free - 1e-9) << to_string(i);
      free = timed.end;
      EXPECT_TRUE(times.try_emplace({i.op, i.stage, i.microbatch}, &timed).second) << to_string(i);
    }
  }
  ASSERT_EQ(times.size(), static_cast<size_t>(3 * stages * microbatches));
  const auto after = [&](Op op, int stage, Op before, int other, int m) {
    EXPECT_GE(times.at({op, stage, m})->start, times.at({before, other, m})->end - 1e-9)
        << to_string(Instruction{op, stage, m}) << " after " << to_string(Instruction{before, other, m});
  };
  for (int stage = 0; stage < stages; ++stage)
    for (int m = 0; m < microbatches; ++m) {
      if (stage > 0) after(Op::Forward, stage, Op::Forward, stage - 1, m);
      after(Op::BackwardInput, stage, Op::Forward, stage, m);
      if (stage + 1 < stages) after(Op::BackwardInput, stage, Op::BackwardInput, stage + 1, m);
      after(Op::BackwardWeight, stage, Op::BackwardInput, stage, m);
    }
}

TEST(RandomSchedules, AreValidAndTheClockKeepsTheirDataFlow) {
  Dice dice;
  for (int n = 0; n < 10'000 && !testing::Test::HasFailure(); ++n) {
    const Sample s = draw(dice);
    SCOPED_TRACE(testing::Message() << name_of(s.kind) << " P " << s.sizes.ranks << " M " << s.sizes.microbatches << " V "
                                    << s.sizes.chunks);
    const int stages = s.sizes.ranks * s.sizes.chunks;
    const Schedule sending = insert_send_receive(s.schedule, backward_sends(s.kind));
    const ScheduleFacts facts = validate(s.schedule, s.sizes.microbatches);
    EXPECT_EQ(validate(sending, s.sizes.microbatches).peak_microbatches, facts.peak_microbatches);
    const Timeline timeline = simulate(sending, {.cost = random_costs(dice, stages)});
    expect_data_flow(timeline, stages, s.sizes.microbatches);
    EXPECT_GE(timeline.bubble_fraction, 0);
    EXPECT_LT(timeline.bubble_fraction, 1);
    for (size_t rank = 0; rank < facts.peak_microbatches.size(); ++rank) {
      EXPECT_LE(timeline.peak_microbatches[rank], facts.peak_microbatches[rank]);
      EXPECT_LE(facts.peak_until_backward[rank], facts.peak_microbatches[rank]);
    }
  }
}

size_t place(const Program& program, Op op, int number) {
  for (size_t at = 0; at < program.size(); ++at)
    if (program[at].op == op && number-- == 0) return at;
  return program.size();
}

std::string refusal(const Schedule& schedule, int microbatches) {
  try {
    validate(schedule, microbatches);
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RandomSchedules, BrokenOnesAreRefused) {
  Dice dice;
  int swapped = 0;
  for (int n = 0; n < 1000; ++n) {
    const Sample s = draw(dice);
    const int m = s.sizes.microbatches;
    const Schedule sending = insert_send_receive(s.schedule, backward_sends(s.kind));
    const int rank = dice.number(0, s.sizes.ranks - 1);
    const auto at = dice.number(0, static_cast<int>(s.schedule[rank].size()) - 1);
    const std::string token = to_string(s.schedule[rank][at]);

    Schedule missing = s.schedule;
    missing[rank].erase(missing[rank].begin() + at);
    EXPECT_NE(refusal(missing, m).find(token + " is missing"), std::string::npos) << refusal(missing, m);

    Schedule twice = s.schedule;
    twice[rank].push_back(twice[rank][at]);
    EXPECT_NE(refusal(twice, m).find(token + " runs twice"), std::string::npos) << refusal(twice, m);

    // The backward_input of a microbatch comes before its forward.
    Schedule early = s.schedule;
    const Instruction backward = early[rank][place(early[rank], Op::BackwardInput, 0)];
    std::erase(early[rank], backward);
    early[rank].insert(early[rank].begin(), backward);
    EXPECT_NE(refusal(early, m).find(to_string(backward) + " (instruction 0"), std::string::npos) << refusal(early, m);

    // Two receives of one stage change places.
    Schedule crossed = sending;
    const size_t first = place(crossed[rank], Op::ReceiveForward, 0), second = place(crossed[rank], Op::ReceiveForward, 1);
    if (second >= crossed[rank].size() || crossed[rank][first].stage != crossed[rank][second].stage) continue;
    std::swap(crossed[rank][first], crossed[rank][second]);
    EXPECT_NE(refusal(crossed, m).find("ranks disagree"), std::string::npos) << refusal(crossed, m);
    ++swapped;
  }
  EXPECT_GT(swapped, 300);
}

TEST(RandomSchedules, WeightGradientsOutOfOrderAreRefused) {
  Dice dice;
  int swapped = 0;
  for (int n = 0; n < 300; ++n) {
    Sample s = draw(dice);
    Program& program = s.schedule[0];
    const size_t first = place(program, Op::BackwardWeight, 0);
    const auto second =
        std::find_if(program.begin() + static_cast<std::ptrdiff_t>(first) + 1, program.end(),
                     [&](const Instruction& i) { return i.op == Op::BackwardWeight && i.stage == program[first].stage; });
    if (second == program.end()) continue;
    const std::string message = to_string(*second) + " runs before " + to_string(program[first]);
    std::swap(program[first], *second);
    EXPECT_NE(refusal(s.schedule, s.sizes.microbatches).find(message), std::string::npos);
    ++swapped;
  }
  EXPECT_GT(swapped, 200);
}

}  // namespace
}  // namespace trivet::pipeline
