#include "pipeline/passes/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "pipeline/schedules/schedules.h"
#include "pipeline/validate.h"

namespace trivet::pipeline {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Three blocks: an embedding, one block, a head tied to the embedding.
BlockParameters tied_head() { return {{{0}, {1}, {2, 0}}, {{0}, {1}, {2, 0}}, {100, 50, 10}, {100, 50, 10}}; }

Program one_rank(int microbatches, int blocks, bool recompute = false) {
  Program program = fuse_loss(expand_blocks(one_forward_one_backward(1, microbatches)[0], {0, blocks}), blocks - 1);
  return recompute ? insert_recompute(program, std::vector<bool>(blocks, true)) : program;
}

TEST(Instruction, PrintsAndParsesBack) {
  const std::string text =
      "0F0 1I12 2.3W4 0.1B2 0.2L0 0SEND_F3 1RECV_F3 1SEND_B0 0RECV_B0 0.4UNSHARD 0.4RESHARD 0.4REDUCE 0.1R7 0.1OFFLOAD7 "
      "0.1FETCH7";
  EXPECT_EQ(to_string(parse_program(text)), text);
  EXPECT_TRUE(parse_program("  \n").empty());
  EXPECT_THAT([] { parse_program("0F0 0X1"); }, ThrowsMessage<ConfigError>(HasSubstr("\"0X1\" is not an instruction")));
  for (const char* bad : {"F0", "0", "0.F0", "0F0x", "0.1", "zero"}) EXPECT_THROW(parse_program(bad), ConfigError) << bad;
}

TEST(Schedules, OneForwardOneBackwardIsItsText) {
  EXPECT_EQ(to_string(one_forward_one_backward(2, 3)[0]), "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2");
  EXPECT_EQ(to_string(one_forward_one_backward(2, 3)[1]), "1F0 1I0 1W0 1F1 1I1 1W1 1F2 1I2 1W2");
  EXPECT_EQ(to_string(gpipe(1, 2)[0]), "0F0 0F1 0I0 0W0 0I1 0W1");
}

TEST(Passes, ExpandBlocksFusesBackwardsThatStandSideBySide) {
  EXPECT_EQ(to_string(expand_blocks(gpipe(1, 1)[0], {0, 3})), "0.0F0 0.1F0 0.2F0 0.2B0 0.1B0 0.0B0");
  EXPECT_EQ(to_string(expand_blocks(parse_program("0F0 0I0 0F1 0W0"), {0, 2})),
            "0.0F0 0.1F0 0.1I0 0.0I0 0.0F1 0.1F1 0.1W0 0.0W0");
}

TEST(Passes, TheLossBlockRunsOnceWhereItsBackwardIs) {
  EXPECT_EQ(to_string(one_rank(2, 3)), "0.0F0 0.1F0 0.2L0 0.1B0 0.0B0 0.0F1 0.1F1 0.2L1 0.1B1 0.0B1");
  EXPECT_EQ(to_string(fuse_loss(expand_blocks(gpipe(1, 2)[0], {0, 2}), 1)), "0.0F0 0.0F1 0.1L0 0.0B0 0.1L1 0.0B1");
}

TEST(Passes, RecomputeRunsForwardAgainBeforeEachBackwardButNotForTheLoss) {
  EXPECT_EQ(to_string(one_rank(1, 3, true)), "0.0F0 0.1F0 0.2L0 0.1R0 0.1B0 0.0R0 0.0B0");
}

TEST(Passes, RecomputeRunsOnceWhereBackwardIsInTwoParts) {
  EXPECT_EQ(to_string(insert_recompute(parse_program("0.0F0 0.0I0 0.0F1 0.0W0"), {true})), "0.0F0 0.0R0 0.0I0 0.0F1 0.0W0");
}

TEST(Passes, ReceivesStandBeforeTheComputationThatPrecedesTheirUse) {
  const Schedule schedule = one_forward_one_backward(2, 2);
  const Schedule after_weights = insert_send_receive(schedule, BackwardSends::AfterWeights);
  EXPECT_EQ(to_string(after_weights[0]), "0F0 0SEND_F0 0RECV_B0 0F1 0SEND_F1 0RECV_B1 0I0 0W0 0I1 0W1");
  EXPECT_EQ(to_string(after_weights[1]), "1RECV_F0 1F0 1RECV_F1 1I0 1W0 1SEND_B0 1F1 1I1 1W1 1SEND_B1");
  const Schedule after_input = insert_send_receive(schedule, BackwardSends::AfterInput);
  EXPECT_EQ(to_string(after_input[0]), "0F0 0SEND_F0 0RECV_B0 0F1 0SEND_F1 0I0 0RECV_B1 0W0 0I1 0W1");
  EXPECT_EQ(to_string(after_input[1]), "1RECV_F0 1F0 1I0 1SEND_B0 1RECV_F1 1W0 1F1 1I1 1SEND_B1 1W1");
}

TEST(Passes, RecomputeComesBeforeTheGradientOfTheInputWhereWeightGradientsWait) {
  EXPECT_EQ(to_string(insert_recompute(parse_program("0.0F0 0.1F0 0.1I0 0.0I0 0.1W0 0.0W0"), {true, false})),
            "0.0F0 0.1F0 0.1I0 0.0R0 0.0I0 0.1W0 0.0W0");
}

TEST(Passes, OffloadedInputsAreFetchedOneComputationAhead) {
  const auto offload = [](const Program& program) {
    return to_string(insert_offload(program, {false, true, true, true, false}));
  };
  EXPECT_EQ(offload(one_rank(1, 5, true)),
            "0.0F0 0.1OFFLOAD0 0.1F0 0.2OFFLOAD0 0.2F0 0.3F0 0.4L0 0.3R0 0.2FETCH0 0.3B0 0.2R0 0.1FETCH0 0.2B0 0.1R0 0.1B0 "
            "0.0R0 0.0B0");
  EXPECT_EQ(offload(parse_program("0.1F0 0.2F0 0.1F1 0.2F1 0.2R0 0.2I0 0.1R0 0.1I0 0.2W0")),
            "0.1OFFLOAD0 0.1F0 0.2OFFLOAD0 0.2F0 0.1F1 0.2FETCH0 0.2F1 0.2R0 0.1FETCH0 0.2I0 0.1R0 0.1I0 0.2W0");
}

TEST(Passes, ReduceFollowsTheLastContribution) {
  const Program program = one_rank(2, 3);
  EXPECT_EQ(to_string(insert_reduce(program, tied_head(), ReduceWhen::EveryMicrobatch)),
            "0.0F0 0.1F0 0.2L0 0.2REDUCE 0.1B0 0.1REDUCE 0.0B0 0.0REDUCE 0.0F1 0.1F1 0.2L1 0.2REDUCE 0.1B1 0.1REDUCE 0.0B1 "
            "0.0REDUCE");
  EXPECT_EQ(to_string(insert_reduce(program, tied_head(), ReduceWhen::LastMicrobatch)),
            "0.0F0 0.1F0 0.2L0 0.1B0 0.0B0 0.0F1 0.1F1 0.2L1 0.2REDUCE 0.1B1 0.1REDUCE 0.0B1 0.0REDUCE");
}

TEST(Passes, UnshardSurroundsEachUseWhenNothingMayBeKept) {
  const UnshardLimits limits{.max_live_elements = 1'000'000, .max_reuse_distance = 0, .prefetch_elements = 0};
  const Program program = insert_unshard(one_rank(1, 3), tied_head(), limits);
  EXPECT_EQ(to_string(program),
            "0.0UNSHARD 0.0F0 0.0RESHARD 0.1UNSHARD 0.1F0 0.1RESHARD 0.2UNSHARD 0.0UNSHARD 0.2L0 0.0RESHARD 0.2RESHARD "
            "0.1UNSHARD 0.1B0 0.1RESHARD 0.0UNSHARD 0.0B0 0.0RESHARD");
}

TEST(Passes, UnshardKeepsWhatIsUsedAgainSoon) {
  const UnshardLimits limits{.max_live_elements = 1'000'000, .max_reuse_distance = 1'000'000, .prefetch_elements = 0};
  EXPECT_EQ(to_string(insert_unshard(one_rank(1, 3), tied_head(), limits)),
            "0.0UNSHARD 0.0F0 0.1UNSHARD 0.1F0 0.2UNSHARD 0.2L0 0.2RESHARD 0.1B0 0.1RESHARD 0.0B0 0.0RESHARD");
  // A recomputed block is used twice in a row, so it is never released in between, whatever the distance.
  const UnshardLimits none{.max_live_elements = 0, .max_reuse_distance = 0, .prefetch_elements = 0};
  EXPECT_THAT(to_string(insert_unshard(one_rank(1, 3, true), tied_head(), none)),
              HasSubstr("0.1UNSHARD 0.1R0 0.1B0 0.1RESHARD"));
}

// Two microbatches overlap (F0 F1 B0 B1), as on the first rank of 1F1B, or do not overlap (F0 B0 F1 B1).
TEST(Passes, UnshardKeepsWeightsOverTheWindowThatIsChosen) {
  const BlockParameters two{{{0}, {1}}, {{0}, {1}}, {100, 50}, {100, 50}};
  const auto lowered = [&](const char* program, UnshardRelease release) {
    return insert_unshard(parse_program(program), two, {.release = release, .max_reuse_distance = 0});
  };
  const char* apart = "0.0F0 0.1F0 0.1B0 0.0B0 0.1W0 0.0F1 0.1F1 0.1B1 0.0B1";
  EXPECT_EQ(to_string(lowered(apart, UnshardRelease::Use)),
            "0.0UNSHARD 0.0F0 0.0RESHARD 0.1UNSHARD 0.1F0 0.1B0 0.1RESHARD 0.0UNSHARD 0.0B0 0.0RESHARD 0.1W0 0.0UNSHARD 0.0F1 "
            "0.0RESHARD 0.1UNSHARD 0.1F1 0.1B1 0.1RESHARD 0.0UNSHARD 0.0B1 0.0RESHARD");
  EXPECT_EQ(to_string(lowered(apart, UnshardRelease::Microbatch)),
            "0.0UNSHARD 0.0F0 0.1UNSHARD 0.1F0 0.1B0 0.1RESHARD 0.0B0 0.0RESHARD 0.1W0 0.0UNSHARD 0.0F1 0.1UNSHARD 0.1F1 0.1B1 "
            "0.1RESHARD 0.0B1 0.0RESHARD");
  EXPECT_EQ(to_string(lowered(apart, UnshardRelease::Step)),
            "0.0UNSHARD 0.0F0 0.1UNSHARD 0.1F0 0.1B0 0.0B0 0.1W0 0.0F1 0.1F1 0.1B1 0.1RESHARD 0.0B1 0.0RESHARD");
  const char* overlapping = "0.0F0 0.1F0 0.0F1 0.1F1 0.1B0 0.0B0 0.1B1 0.0B1";
  EXPECT_EQ(lowered(overlapping, UnshardRelease::Microbatch), lowered(overlapping, UnshardRelease::Step));
}

TEST(Passes, UnshardKeepsNoMoreThanMayLive) {
  const BlockParameters two{{{0}, {1}}, {{0}, {1}}, {100, 50}, {100, 50}};
  const UnshardLimits little{.release = UnshardRelease::Step, .max_live_elements = 120};
  EXPECT_EQ(to_string(insert_unshard(parse_program("0.0F0 0.1F0 0.0F1 0.1F1 0.1B0 0.0B0 0.1B1 0.0B1"), two, little)),
            "0.0UNSHARD 0.0F0 0.1UNSHARD 0.1F0 0.1RESHARD 0.0F1 0.1UNSHARD 0.1F1 0.1B0 0.1RESHARD 0.0B0 0.1UNSHARD 0.1B1 "
            "0.1RESHARD 0.0B1 0.0RESHARD");
}

// As in DeepSpeed, the live elements may reach their limit, and a reuse must come sooner than the distance.
TEST(Passes, UnshardKeepsUpToTheLiveLimitAndOnlyWhatComesBackSooner) {
  const BlockParameters two{{{0}, {1}}, {{0}, {1}}, {100, 50}, {100, 50}};
  const auto lowered = [&](const UnshardLimits& limits) {
    return to_string(insert_unshard(parse_program("0.0F0 0.1F0 0.0B0"), two, limits));
  };
  const std::string kept = "0.0UNSHARD 0.0F0 0.1UNSHARD 0.1F0 0.1RESHARD 0.0B0 0.0RESHARD";
  const std::string released = "0.0UNSHARD 0.0F0 0.0RESHARD 0.1UNSHARD 0.1F0 0.1RESHARD 0.0UNSHARD 0.0B0 0.0RESHARD";
  EXPECT_EQ(lowered({.release = UnshardRelease::Step, .max_live_elements = 100}), kept);
  EXPECT_EQ(lowered({.release = UnshardRelease::Step, .max_live_elements = 99}), released);
  // Between its uses block 0 sees the 50 elements of block 1.
  EXPECT_EQ(lowered({.max_live_elements = 1000, .max_reuse_distance = 51}), kept);
  EXPECT_EQ(lowered({.max_live_elements = 1000, .max_reuse_distance = 50}), released);
}

TEST(Passes, PrefetchFillsBothOfItsLimitsAndNoMore) {
  const BlockParameters two{{{0}, {1}}, {{0}, {1}}, {100, 50}, {100, 50}};
  const auto ahead = [&](int64_t live, int64_t elements) {
    const UnshardLimits limits{.max_live_elements = live, .max_reuse_distance = 0, .prefetch_elements = elements};
    return to_string(prefetch(parse_program("0.0UNSHARD 0.0F0 0.0RESHARD 0.1UNSHARD 0.1F0 0.1RESHARD"), two, limits));
  };
  const std::string early = "0.0UNSHARD 0.1UNSHARD 0.0F0 0.0RESHARD 0.1F0 0.1RESHARD";
  const std::string late = "0.0UNSHARD 0.0F0 0.0RESHARD 0.1UNSHARD 0.1F0 0.1RESHARD";
  EXPECT_EQ(ahead(150, 50), early);
  EXPECT_EQ(ahead(149, 50), late);
  EXPECT_EQ(ahead(150, 49), late);
}

TEST(Passes, WholeWeightsAreThoseBetweenUnshardAndReshard) {
  const BlockParameters two{{{0}, {1}}, {{0}, {1}}, {100, 50}, {100, 50}};
  const Program program =
      parse_program("0.0UNSHARD 0.0F0 0.0RESHARD 0.1UNSHARD 0.1F0 0.1B0 0.0UNSHARD 0.1RESHARD 0.0B0 0.0RESHARD");
  EXPECT_EQ(most_whole_elements(program, two), 150);
}

TEST(Passes, PrefetchStartsGathersBeforeEarlierComputationsWithinItsLimit) {
  const UnshardLimits one{.max_live_elements = 1'000'000, .max_reuse_distance = 0, .prefetch_elements = 60};
  const Program program = prefetch(insert_unshard(one_rank(1, 3), tied_head(), one), tied_head(), one);
  EXPECT_THAT(to_string(program), HasSubstr("0.0UNSHARD 0.1UNSHARD 0.2UNSHARD 0.0F0 0.0RESHARD 0.1F0"));
  const UnshardLimits little{.max_live_elements = 150, .max_reuse_distance = 0, .prefetch_elements = 1000};
  const Program tight = prefetch(insert_unshard(one_rank(1, 3), tied_head(), little), tied_head(), little);
  EXPECT_THAT(to_string(tight), HasSubstr("0.0UNSHARD 0.1UNSHARD 0.0F0 0.0RESHARD 0.2UNSHARD 0.1F0"));
}

// A block that is released and used again cannot be gathered while it is still whole, however many elements may live; nor can
// blocks that come after it in the order of gathers.
TEST(Passes, PrefetchDoesNotGatherABlockBeforeItIsReleased) {
  const BlockParameters two{{{0}, {1}}, {{0}, {1}}, {100, 50}, {100, 50}};
  const std::string program = "0.0UNSHARD 0.0F0 0.0RESHARD 0.0UNSHARD 0.0B0 0.0RESHARD 0.1UNSHARD 0.1F0 0.1RESHARD";
  EXPECT_EQ(to_string(prefetch(parse_program(program), two, {.max_live_elements = 1000, .prefetch_elements = 1000})),
            "0.0UNSHARD 0.0F0 0.0RESHARD 0.0UNSHARD 0.1UNSHARD 0.0B0 0.0RESHARD 0.1F0 0.1RESHARD");
}

TEST(Passes, EveryCombinationKeepsLifetimesValid) {
  const auto parameters = tied_head();
  for (int microbatches : {1, 2, 5})
    for (bool recompute : {false, true})
      for (int64_t reuse : {int64_t{0}, int64_t{60}, int64_t{1000}})
        for (int64_t ahead : {int64_t{0}, int64_t{60}, int64_t{1000}})
          for (auto when : {ReduceWhen::LastMicrobatch, ReduceWhen::EveryMicrobatch})
            for (const auto& [name, release] : EnumNames<UnshardRelease>::table) {
              const UnshardLimits limits{
                  .release = release, .max_live_elements = 120, .max_reuse_distance = reuse, .prefetch_elements = ahead};
              Program program = insert_reduce(one_rank(microbatches, 3, recompute), parameters, when);
              program = prefetch(insert_unshard(program, parameters, limits), parameters, limits);
              EXPECT_NO_THROW(validate_lifetimes(program, parameters)) << to_string(program);
            }
}

TEST(Validate, FindsWeightsUsedWhileSharded) {
  const BlockParameters sharded{{{0}}, {{0}}, {10}, {10}}, whole{{{0}}, {{0}}, {0}, {10}};
  EXPECT_THAT([&] { validate_lifetimes(parse_program("0.0F0"), sharded); },
              ThrowsMessage<std::logic_error>(HasSubstr("an UNSHARD is missing")));
  EXPECT_THAT([&] { validate_lifetimes(parse_program("0.0UNSHARD 0.0F0"), sharded); },
              ThrowsMessage<std::logic_error>(HasSubstr("still whole at the end")));
  EXPECT_THAT([&] { validate_lifetimes(parse_program("0.0F0 0.0B0 0.0REDUCE 0.0B1"), whole); },
              ThrowsMessage<std::logic_error>(HasSubstr("never reduced")));
}

TEST(Validate, FindsInputsUsedWhileInHostMemory) {
  const BlockParameters none{{{0}}, {{0}}, {0}, {0}};
  EXPECT_NO_THROW(validate_lifetimes(parse_program("0.0OFFLOAD0 0.0F0 0.0FETCH0 0.0R0 0.0B0"), none));
  EXPECT_THAT([&] { validate_lifetimes(parse_program("0.0OFFLOAD0 0.0F0 0.0FETCH1 0.0R0"), none); },
              ThrowsMessage<std::logic_error>(HasSubstr("0.0FETCH1 fetches an input that is not in host memory")));
  EXPECT_THAT([&] { validate_lifetimes(parse_program("0.0OFFLOAD0 0.0F0 0.0R0"), none); },
              ThrowsMessage<std::logic_error>(HasSubstr("a FETCH is missing")));
}

}  // namespace
}  // namespace trivet::pipeline
