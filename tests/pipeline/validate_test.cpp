// Schedules that can run are accepted, with and without transfers and with all passes; others are refused, and the message
// names what is wrong.
#include "pipeline/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "pipeline/passes/passes.h"
#include "pipeline/schedules/schedules.h"

namespace trivet::pipeline {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

Schedule programs(const std::vector<const char*>& texts) {
  Schedule schedule;
  for (const char* text : texts) schedule.push_back(parse_program(text));
  return schedule;
}

void expect_refused(const Schedule& schedule, int microbatches, const testing::Matcher<const std::string&>& message) {
  EXPECT_THAT([&] { validate(schedule, microbatches); }, ThrowsMessage<std::logic_error>(message));
}

// Each stage has two blocks; the last block computes the loss and shares its weights with the first.
Schedule lowered(const Schedule& schedule, int stages) {
  std::vector<int> first_blocks, stage_of_block;
  for (int stage = 0; stage <= stages; ++stage) first_blocks.push_back(2 * stage);
  for (int block = 0; block < 2 * stages; ++block) stage_of_block.push_back(block / 2);
  const int last = 2 * stages - 1;
  Schedule out;
  for (const Program& program : schedule) {
    std::vector<bool> here(2 * stages, false);
    for (const Instruction& i : program)
      for (int block : {2 * i.stage, 2 * i.stage + 1}) here[block] = true;
    BlockParameters parameters;
    for (int block = 0; block <= last; ++block) {
      parameters.weights_of.push_back({block});
      parameters.gradients_of.push_back({block});
      parameters.sharded_elements.push_back(here[block] ? 10 : 0);
      parameters.gradient_elements.push_back(here[block] ? 10 : 0);
    }
    Program lower = fuse_loss(expand_blocks(program, first_blocks), last);
    lower = insert_recompute(lower, std::vector<bool>(2 * stages, true));
    lower = insert_reduce(lower, parameters, ReduceWhen::EveryMicrobatch);
    if (here[0] || here[last]) lower = insert_tie(lower, {{0, last}}, stage_of_block);
    const UnshardLimits limits{.max_live_elements = 40, .max_reuse_distance = 0, .prefetch_elements = 20};
    lower = prefetch(insert_unshard(lower, parameters, limits), parameters, limits);
    out.push_back(insert_sum_loss(lower));
  }
  return out;
}

TEST(Validate, AcceptsSchedulesAndStatesPeakMicrobatches) {
  for (int stages : {1, 2, 4})
    for (int microbatches : {1, 3, 8}) {
      const auto flat = one_forward_one_backward(stages, microbatches);
      const auto facts = validate(insert_send_receive(flat, BackwardSends::AfterWeights), microbatches);
      for (int s = 0; s < stages; ++s) EXPECT_EQ(facts.peak_microbatches[s], std::min(microbatches, stages - s));
      EXPECT_EQ(validate(insert_send_receive(gpipe(stages, microbatches), BackwardSends::AfterWeights), microbatches)
                    .peak_microbatches[0],
                microbatches);
    }
}

TEST(Validate, StatesWhatWaitsForItsWeightGradientsApart) {
  const ScheduleFacts facts = validate(zero_bubble_h1(4, 8), 8);
  EXPECT_THAT(facts.peak_until_backward, ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(facts.peak_microbatches, ElementsAre(4, 4, 4, 4));
}

TEST(Validate, AcceptsProgramsWithAllPasses) {
  for (int ranks : {1, 2, 4})
    for (int microbatches : {1, 2, 7}) {
      const auto accepted = [&](const Schedule& schedule, int stages, BackwardSends sends) {
        const Schedule all = lowered(insert_send_receive(schedule, sends), stages);
        EXPECT_NO_THROW(validate(all, microbatches)) << ranks << ' ' << microbatches << '\n' << to_string(all[0]);
        EXPECT_EQ(validate(all, microbatches).peak_microbatches[0], validate(schedule, microbatches).peak_microbatches[0]);
      };
      accepted(gpipe(ranks, microbatches), ranks, BackwardSends::AfterWeights);
      accepted(one_forward_one_backward(ranks, microbatches), ranks, BackwardSends::AfterWeights);
      accepted(interleaved(ranks, microbatches, 3), 3 * ranks, BackwardSends::AfterWeights);
      accepted(zero_bubble_h1(ranks, microbatches), ranks, BackwardSends::AfterInput);
      accepted(zero_bubble_2p(ranks, microbatches), ranks, BackwardSends::AfterInput);
      accepted(zero_bubble_v(ranks, microbatches), 2 * ranks, BackwardSends::AfterInput);
    }
}

TEST(Validate, AcceptsAStageThatIsTheLossBlockAlone) {
  validate(programs({"0.0F0 0SEND_F0 0RECV_B0 0.0B0", "1RECV_F0 1.1L0 1SEND_B0"}), 1);
}

TEST(Validate, NamesEveryRankThatWaitsForEver) {
  auto schedule = one_forward_one_backward(2, 2);
  std::swap(schedule[1][0], schedule[1][1]);
  expect_refused(schedule, 2, HasSubstr("rank 1 waits forever at 1I0 (instruction 0 of 6)"));
  expect_refused(insert_send_receive(schedule, BackwardSends::AfterWeights), 2,
                 AllOf(HasSubstr("rank 0 waits forever at 0I0"), HasSubstr("rank 1 waits forever at 1I0")));
}

TEST(Validate, NamesWhatRunsTwiceNeverOrOutOfTurn) {
  auto twice = gpipe(1, 1);
  twice[0].push_back({Op::Forward, 0, 0});
  expect_refused(twice, 1, HasSubstr("0F0 runs twice"));
  expect_refused(gpipe(1, 1), 2, HasSubstr("0F1 is missing"));
  expect_refused(gpipe(1, 2), 1, HasSubstr("0F1 does not belong to any of the 1 microbatches"));
  expect_refused(programs({"0F0 0F1 0I0 0I1 0W1 0W0"}), 2, HasSubstr("0W1 runs before 0W0"));
  expect_refused(programs({"0F0 0F1 0I1 0W1 0I0 0W0"}), 2, HasSubstr("0I1 runs before 0I0"));
  expect_refused(programs({"0.0F0 0.1L0 0.0I0"}), 1, HasSubstr("0.0W0 is missing"));
}

TEST(Validate, NamesTheRanksThatDisagreeAboutATransfer) {
  expect_refused(programs({"0F0 0F1 0SEND_F1 0SEND_F0 0RECV_B0 0RECV_B1 0I0 0W0 0I1 0W1",
                           "1RECV_F0 1F0 1I0 1W0 1SEND_B0 1RECV_F1 1F1 1I1 1W1 1SEND_B1"}),
                 2,
                 HasSubstr("ranks disagree about transfer 0 from rank 0 to rank 1 (forward): rank 0 has 0SEND_F1, but rank 1 "
                           "has 1RECV_F0"));
  expect_refused(programs({"0F0 0SEND_F0 0RECV_B0 0I0 0W0", "1RECV_F0 1F0 1I0 1W0"}), 1,
                 HasSubstr("from rank 1 to rank 0 (backward): rank 1 has nothing, but rank 0 has 0RECV_B0"));
  expect_refused(programs({"0F0 0SEND_F0 0I0 0W0"}), 1, HasSubstr("0SEND_F0 has no stage at the other end"));
  expect_refused(programs({"0F0 1F0 1SEND_F0 1I0 1W0 0I0 0W0"}), 1, HasSubstr("has no stage at the other end"));
}

// Rank 0 sends all activations before it receives any gradient: rank 1 gets stuck with its third gradient, and rank 0 with the
// third activation after those that rank 1 has received.
Schedule all_sends_first(int microbatches) {
  Schedule schedule(2);
  for (int m = 0; m < microbatches; ++m)
    for (Op op : {Op::Forward, Op::SendForward}) schedule[0].push_back({op, 0, m});
  for (int m = 0; m < microbatches; ++m)
    for (Op op : {Op::ReceiveBackward, Op::BackwardInput, Op::BackwardWeight}) schedule[0].push_back({op, 0, m});
  for (int m = 0; m < microbatches; ++m)
    for (Op op : {Op::ReceiveForward, Op::Forward, Op::BackwardInput, Op::BackwardWeight, Op::SendBackward})
      schedule[1].push_back({op, 1, m});
  return schedule;
}

TEST(Validate, AThirdSendWaitsForTheFirst) {
  validate(all_sends_first(5), 5);
  expect_refused(all_sends_first(6), 6,
                 AllOf(HasSubstr("rank 0 waits forever at 0SEND_F5"), HasSubstr("rank 1 waits forever at 1SEND_B2")));
}

TEST(Validate, RanksMeetAtTiesAndAtTheSumOfTheLoss) {
  const char *first = "0.0F0 0SEND_F0 0RECV_B0 0.0B0", *last = "1RECV_F0 1.1L0 1SEND_B0";
  const auto with = [](const char* program, const char* end) { return parse_program(std::string(program) + " " + end); };
  validate({with(first, "1.1TIE 0SUM_LOSS"), with(last, "1.1TIE 1SUM_LOSS")}, 1);
  expect_refused({with(first, "1.1TIE 0SUM_LOSS"), with(last, "1SUM_LOSS 1.1TIE")}, 1,
                 AllOf(HasSubstr("rank 0 waits forever at 1.1TIE"), HasSubstr("rank 1 waits forever at 1SUM_LOSS")));
  expect_refused({with(first, "0SUM_LOSS"), with(last, "")}, 1, HasSubstr("1 of 2 ranks have a SUM_LOSS"));
}

TEST(Validate, AMicrobatchIsKeptUntilTheLastOfItsBlocksHasGoneBack) {
  const Schedule schedule = programs({"0.0F0 0.1F0 0.1B0 0.0F1 0.1F1 0.0B0 0.1B1 0.0B1"});
  EXPECT_EQ(validate(schedule, 2).peak_microbatches, (std::vector<int>{2}));
}

TEST(Validate, ForwardAloneIsComplete) {
  const Schedule schedule = programs({"0F0 0SEND_F0", "1RECV_F0 1F0"});
  validate_forward(schedule, 1);
  expect_refused(schedule, 1, HasSubstr("0I0 is missing"));
}

}  // namespace
}  // namespace trivet::pipeline
