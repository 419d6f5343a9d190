#include <fmt/format.h>

#include "engine/config/config.h"
#include "tests/config/support.h"

namespace trivet {
namespace {

std::string resolved(const BatchConfig& batch, int64_t data_parallel_size) {
  try {
    const ResolvedBatch b = resolve_batch(batch, data_parallel_size, "a.json");
    return std::to_string(b.train_batch_size) + " = " + std::to_string(b.micro_batch_size) + " x " +
           std::to_string(b.gradient_accumulation_steps);
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(ResolveBatch, AnyTwoGiveTheThird) {
  EXPECT_EQ(resolved({.train_batch_size = 32, .micro_batch_size = 2}, 4), "32 = 2 x 4");
  EXPECT_EQ(resolved({.train_batch_size = 32, .gradient_accumulation_steps = 2}, 4), "32 = 4 x 2");
  EXPECT_EQ(resolved({.micro_batch_size = 2, .gradient_accumulation_steps = 3}, 4), "24 = 2 x 3");
}

TEST(ResolveBatch, OneIsEnough) {
  EXPECT_EQ(resolved({.train_batch_size = 32}, 4), "32 = 8 x 1");
  EXPECT_EQ(resolved({.micro_batch_size = 2}, 4), "8 = 2 x 1");
}

TEST(ResolveBatch, AllThreeMustAgree) {
  EXPECT_EQ(resolved({.train_batch_size = 32, .micro_batch_size = 2, .gradient_accumulation_steps = 4}, 4), "32 = 2 x 4");
  EXPECT_EQ(resolved({.train_batch_size = 32, .micro_batch_size = 2, .gradient_accumulation_steps = 3}, 4),
            "a.json: train_batch_size 32 is not train_micro_batch_size_per_gpu 2 x gradient_accumulation_steps 3 x "
            "data-parallel size "
            "4 = 24; use train_batch_size 24 or gradient_accumulation_steps 4");
  EXPECT_EQ(resolved({.train_batch_size = 33, .micro_batch_size = 2, .gradient_accumulation_steps = 4}, 4),
            "a.json: train_batch_size 33 is not train_micro_batch_size_per_gpu 2 x gradient_accumulation_steps 4 x "
            "data-parallel size "
            "4 = 32; use train_batch_size 32");
}

TEST(ResolveBatch, AnImpossibleEquationPrintsTheNumbersAndTheNearestValidValues) {
  EXPECT_EQ(resolved({.train_batch_size = 30}, 4),
            "a.json: train_batch_size 30 is not a multiple of the data-parallel size 4; use train_batch_size 28 or 32");
  EXPECT_EQ(resolved({.train_batch_size = 3}, 4),
            "a.json: train_batch_size 3 is not a multiple of the data-parallel size 4; use train_batch_size 4");
  EXPECT_EQ(
      resolved({.train_batch_size = 30, .micro_batch_size = 3}, 4),
      "a.json: train_batch_size 30 is not a multiple of train_micro_batch_size_per_gpu 3 x data-parallel size 4 = 12; use "
      "train_batch_size 24 or 36");
  EXPECT_EQ(resolved({.train_batch_size = 30, .gradient_accumulation_steps = 4}, 4),
            "a.json: train_batch_size 30 is not a multiple of gradient_accumulation_steps 4 x data-parallel size 4 = 16; use "
            "train_batch_size 16 or 32");
  EXPECT_EQ(resolved({}, 4), "a.json: train_batch_size or train_micro_batch_size_per_gpu is needed; give one of them");
  EXPECT_EQ(resolved({.gradient_accumulation_steps = 2}, 4),
            "a.json: train_batch_size or train_micro_batch_size_per_gpu is needed; give one of them");
}

TEST(ResolveBatch, NumbersTooLargeForTheEquationAreRefused) {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(resolved({.micro_batch_size = huge, .gradient_accumulation_steps = 2}, 4),
            "a.json: the batch of a step, 9223372036854775807 x 2 x data-parallel size 4, is too large");
  EXPECT_EQ(resolved({.train_batch_size = 8, .micro_batch_size = huge}, 4),
            "a.json: the batch of a step, 9223372036854775807 x 1 x data-parallel size 4, is too large");
}

TEST(ResolveBatch, TheLargestBatchIsRefusedWithAMultipleThatExists) {
  EXPECT_EQ(resolved({.train_batch_size = std::numeric_limits<int64_t>::max()}, 4),
            "a.json: train_batch_size 9223372036854775807 is not a multiple of the data-parallel size 4; use "
            "train_batch_size 9223372036854775804");
}

TEST(ResolveBatch, EverySolutionSatisfiesTheEquation) {
  for (int64_t train = 0; train <= 24; ++train)
    for (int64_t micro = 0; micro <= 6; ++micro)
      for (int64_t steps = 0; steps <= 6; ++steps)
        for (int64_t ranks = 1; ranks <= 4; ++ranks) {
          try {
            const ResolvedBatch b = resolve_batch({train, micro, steps}, ranks, "a");
            EXPECT_EQ(b.train_batch_size, b.micro_batch_size * b.gradient_accumulation_steps * ranks);
            EXPECT_TRUE(train == 0 || train == b.train_batch_size);
            EXPECT_TRUE(micro == 0 || micro == b.micro_batch_size);
            EXPECT_TRUE(steps == 0 || steps == b.gradient_accumulation_steps);
          } catch (const ConfigError&) {
            EXPECT_TRUE(train == 0 || train % (ranks * std::max<int64_t>(1, micro) * std::max<int64_t>(1, steps)) != 0 ||
                        (micro && steps && train != micro * steps * ranks));
          }
        }
}

// What check_batch says about this config; "accepted" if nothing.
std::string checked(const std::string& text) {
  try {
    check_batch(parse_config(text, "a.json"));
    return "accepted";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(CheckBatch, RefusesABatchThatNoNumberOfRanksGives) {
  EXPECT_EQ(checked(R"({"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2})"),
            "a.json:1:2: train_batch_size: 7 is not a multiple of train_micro_batch_size_per_gpu 2 x "
            "gradient_accumulation_steps 2 = 4, so no number of data-parallel ranks can train it; use 4 or 8");
  EXPECT_EQ(checked(R"({"train_micro_batch_size_per_gpu": 8, "train_batch_size": 7})"),
            "a.json:1:39: train_batch_size: 7 is not a multiple of train_micro_batch_size_per_gpu 8, so no number of "
            "data-parallel ranks can train it; use 8");
  EXPECT_EQ(checked(R"({"train_batch_size": 7, "gradient_accumulation_steps": 2})"),
            "a.json:1:2: train_batch_size: 7 is not a multiple of gradient_accumulation_steps 2, so no number of "
            "data-parallel ranks can train it; use 6 or 8");
  EXPECT_EQ(checked(R"({"train_micro_batch_size_per_gpu": 4611686018427387904, "gradient_accumulation_steps": 2})"),
            "a.json:1:2: train_micro_batch_size_per_gpu: 4611686018427387904 x gradient_accumulation_steps 2 is too large; "
            "use smaller numbers, whose product is below 2^63");
}

TEST(CheckBatch, RefusesAConfigWithoutABatchSizeUnlessItIsForTuning) {
  const std::string missing =
      "a.json: train_batch_size: is missing, and so is train_micro_batch_size_per_gpu; give at least one of them, an integer "
      "from 1";
  EXPECT_EQ(checked("{}"), missing);
  EXPECT_EQ(checked(R"({"gradient_accumulation_steps": 2})"), missing);
  EXPECT_EQ(checked(R"({"autotuning": {"enabled": false}})"), missing);
  EXPECT_EQ(checked(R"({"autotuning": {"enabled": true}})"), "accepted");
  EXPECT_EQ(checked(R"({"autotuning": {"fast": false}})"), "accepted");
}

// The check before a run and the equation that a run solves never contradict each other.
TEST(CheckBatch, AcceptsWhatSomeNumberOfRanksCanTrain) {
  const auto given = [](const char* key, int64_t value) {
    return fmt::format("\"{}\": {}", key, value == 0 ? "null" : std::to_string(value));
  };
  for (int64_t train = 0; train <= 24; ++train)
    for (int64_t micro = 0; micro <= 6; ++micro)
      for (int64_t steps = 0; steps <= 6; ++steps) {
        bool some = false;
        for (int64_t ranks = 1; ranks <= 24; ++ranks) some |= resolved({train, micro, steps}, ranks).find(" = ") < 3;
        const std::string config =
            fmt::format("{{{}, {}, {}}}", given("train_batch_size", train), given("train_micro_batch_size_per_gpu", micro),
                        given("gradient_accumulation_steps", steps));
        EXPECT_EQ(checked(config) == "accepted", some) << config;
      }
}

}  // namespace
}  // namespace trivet
