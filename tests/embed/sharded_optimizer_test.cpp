#include "embed/sharded_optimizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "core/dtype.h"
#include "embed/agreement.h"
#include "embed/refusals.h"
#include "engine/checkpoint/steps.h"
#include "interchange/hugging_face/export.h"
#include "tests/embed/foreign_trainer.h"
#include "tests/support/temporary_folder.h"
#include "trainer/resume.h"
#include "trainer/saved_model.h"

namespace trivet::embed {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int kSteps = 20;

std::string zero(int stage, bool overlap = false, const std::string& more = "") {
  return fmt::format(R"("zero_optimization": {{"stage": {}, "overlap_comm": {}, "stage3_param_persistence_threshold": 0}}{})",
                     stage, overlap, more);
}
const std::string kLayout = R"(, "reproducible": "layout")";

const Bits& alone() {
  static const Bits bits = train(zero(0, false, kLayout), 1, kSteps);
  return bits;
}

TEST(ShardedOptimizer, LearnsTheSameBitsAtEveryStageOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4})
    for (const int stage : {0, 1, 2, 3})
      for (const bool overlap : {false, true})
        EXPECT_EQ(train(zero(stage, overlap, kLayout), ranks, kSteps), alone())
            << ranks << " ranks, stage " << stage << ", overlap " << overlap;
}

TEST(ShardedOptimizer, LearnsTheSameBitsWithReplicasOfShardsAndSecondCopies) {
  const std::string persistent = R"("stage3_param_persistence_threshold": 30, )",
                    whole = R"("stage3_param_persistence_threshold": 0, )";
  for (const std::string& keys :
       {whole + R"("stage": 2, "mics_shard_size": 2)", whole + R"("stage": 3, "mics_shard_size": 2)",
        whole + R"("stage": 3, "zero_hpz_partition_size": 2)", persistent + R"("stage": 3, "overlap_comm": true)",
        whole + R"("stage": 1, "reduce_bucket_size": 64, "allgather_bucket_size": 64)"}) {
    const auto reordered = [](ForeignTrainer& trainer, int rank) {
      if (rank % 2 == 1) trainer.order = {kW1, kB1, kW2, kB2};
    };
    EXPECT_EQ(train(R"("zero_optimization": {)" + keys + "}" + kLayout, 4, kSteps, reordered), alone()) << keys;
  }
}

TEST(ShardedOptimizer, LearnsSomething) {
  comm::run_threads(2, [](comm::World& world) {
    ForeignTrainer trainer(config_of(zero(2), 2), world);
    const double before = trainer.step().loss;
    double after = 0;
    for (int i = 0; i < 150; ++i) after = trainer.step().loss;
    EXPECT_LT(after, 0.3 * before);
  });
}

TEST(ShardedOptimizer, DoesNotDependOnBucketsOrOnTheOrderInWhichGradientsArrive) {
  for (const int stage : {1, 2})
    for (const bool overlap : {false, true})
      for (const bool units : {false, true}) {
        const Bits bits = train(
            zero(stage, overlap, kLayout), 2, kSteps,
            [](ForeignTrainer& trainer, int rank) {
              if (rank == 1) trainer.order = {kW1, kB2, kB1, kW2};
              trainer.in_place = rank == 0;
            },
            units);
        EXPECT_EQ(bits, alone()) << "stage " << stage << ", overlap " << overlap << ", units " << units;
      }
}

// The loss is known in closed form: its gradient with respect to each element is the element's number, times the weight of the
// microbatch. All numbers are small integers over powers of two, so float arithmetic is exact.
TEST(ShardedOptimizer, AnSgdStepIsTheWeightMinusTheRateTimesTheMeanGradient) {
  const Config config = parse_config(
      R"({"optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "gradient_clipping": 0, "gradient_accumulation_steps": 2,
          "zero_optimization": {"stage": 2}})",
      "test.json");
  comm::run_threads(2, [&](comm::World& world) {
    const std::vector<float> initial(10, 3.0f);
    const std::vector<Parameter> parameters{{.name = "w", .shape = {2, 5}, .values = initial.data()}};
    ShardedOptimizer optimizer(config, parameters, world);
    for (int m = 0; m < 2; ++m) {
      std::vector<float> gradient(10);
      const auto weight = static_cast<float>(1 + m + 2 * world.rank());  // 1, 2, 3, 4 over both ranks
      for (int i = 0; i < 10; ++i) gradient[i] = weight * static_cast<float>(i);
      optimizer.add_gradient(0, {gradient.data(), DType::Float32, {10}});
      optimizer.end_microbatch(weight, 2 * m + 1);  // counts 1 and 3 on each rank
    }
    const StepReport report = optimizer.step();
    EXPECT_EQ(report.loss, 10.0 / 8);  // the losses' sum and the counts' sum
    EXPECT_EQ(report.gradient_norm, 10.0 / 8 * std::sqrt(285.0));
    EXPECT_EQ(report.updates, 1);
    const float* weights = optimizer.weight(0).as<float>();
    for (int i = 0; i < 10; ++i) EXPECT_EQ(weights[i], 3.0f - 0.5f * 10.0f / 8.0f * static_cast<float>(i)) << i;
  });
}

TEST(ShardedOptimizer, TakesTheInitialValuesOfRankZero) {
  constexpr int64_t kMany = (int64_t{1} << 20) + 4097;  // more than are sent at a time
  for (const int stage : {0, 1, 3})
    comm::run_threads(3, [&](comm::World& world) {
      std::vector<float> values(kMany);
      for (int64_t i = 0; i < kMany; ++i) values[i] = static_cast<float>(i + 1000 * world.rank());
      const std::vector<Parameter> parameters{{.name = "small", .shape = {7}, .init = {Init::Kind::Ones}},
                                              {.name = "large", .shape = {kMany}, .values = values.data()}};
      ShardedOptimizer optimizer(config_of(zero(stage), 3), parameters, world);
      std::fill(values.begin(), values.end(), -1.0f);  // they were copied
      for (int p = 0; p < 2; ++p) optimizer.gather(optimizer.unit_of(p));
      const float* large = optimizer.weight(1).as<float>();
      int64_t wrong = 0;
      for (int64_t i = 0; i < kMany; ++i) wrong += large[i] != static_cast<float>(i);
      EXPECT_EQ(wrong, 0) << "stage " << stage;
      EXPECT_EQ(optimizer.weight(0).as<float>()[6], 1.0f);
    });
}

// All ranks refuse the values of rank 0 with one message, before anything depends on them, and may go on with others.
TEST(ShardedOptimizer, RefusesInitialValuesThatAreNotFinite) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  struct Case {
    const char* config;
    float value;
    int of_rank;
    std::string text;  // empty: accepted
  };
  const std::string of_f16 = R"({"fp16": {"enabled": true}})";
  const std::vector<Case> cases{{"{}", kNan, 0, "parameter \"b\": values[3] is nan; initial values must be finite"},
                                {"{}", -kInfinite, 0, "parameter \"b\": values[3] is -inf; initial values must be finite"},
                                {"{}", kNan, 1, ""},  // only those of rank 0 are read
                                {"{}", 1e30f, 0, ""},
                                {of_f16.c_str(), 1e30f, 0,
                                 "parameter \"b\": values[3] is 1e+30, infinite in float16; train in bf16 or float32, or give "
                                 "smaller values"}};
  comm::run_threads(2, [&](comm::World& world) {
    for (const Case& one : cases) {
      std::vector<float> good(4, 1.0f), values(5, 1.0f);
      if (world.rank() == one.of_rank) values[3] = one.value;
      const std::vector<Parameter> parameters{{.name = "a", .shape = {4}, .values = good.data()},
                                              {.name = "b", .shape = {5}, .values = values.data()}};
      const auto make = [&] { ShardedOptimizer(parse_config(one.config, "t.json"), parameters, world); };
      if (one.text.empty())
        EXPECT_NO_THROW(make()) << one.value;
      else
        EXPECT_THAT(make, ThrowsMessage<ConfigError>(one.text)) << one.value;
    }
  });
}

TEST(ShardedOptimizer, AGradientThatNeverArrivesIsZero) {
  const std::string sgd = R"(, "optimizer": {"type": "SGD", "params": {"lr": 0.1}})";
  for (const int stage : {0, 2, 3})
    for (const std::string& mode : {sgd, sgd + kLayout})
      comm::run_threads(2, [&](comm::World& world) {
        ForeignTrainer trainer(config_of(zero(stage, false, mode), 2), world);
        const Bits before = trainer.weights();
        trainer.order = {kB2, kB1, kW1};  // the gradient of w2 is left out
        trainer.step();
        const Bits after = trainer.weights();
        const int64_t first = kElements[kW1] + kElements[kB1];
        for (int64_t i = 0; i < kElements[kW2]; ++i) EXPECT_EQ(after[first + i], before[first + i]);
        EXPECT_NE(after.front(), before.front());
        EXPECT_NE(after.back(), before.back());  // of the same unit as w2
      });
}

enum class Unused { AddsZeros, AddsNothing };

// Two steps of units of one parameter each, of two microbatches, in which rank 1 does not use `unused`. Gradients are powers of
// two, so that their sums are exact. Returns the weights at the end.
std::vector<float> weights_after_steps_without(int unused, int stage, bool overlap, const std::string& mode, Unused how) {
  std::vector<float> weights;
  const std::string more =
      R"(, "optimizer": {"type": "SGD", "params": {"lr": 1}}, "gradient_clipping": 0, "gradient_accumulation_steps": 2, )"
      R"("train_micro_batch_size_per_gpu": 1, "train_batch_size": 4)" +
      mode;
  const auto job = [&](comm::World& world) {
    const std::vector<Parameter> parameters{{.name = "a", .shape = {4}, .unit = "a"},
                                            {.name = "b", .shape = {4}, .unit = "b"},
                                            {.name = "c", .shape = {4}, .unit = "c"}};
    ShardedOptimizer optimizer(parse_config("{" + zero(stage, overlap, more) + "}", "t"), parameters, world);
    for (int microbatch = 0; microbatch < 4; ++microbatch) {
      for (int unit = 2; unit >= 0; --unit) {
        optimizer.gather(unit);
        const bool is_used = unit != unused || world.rank() == 0;
        const auto value = is_used ? static_cast<float>(1 << unit) : 0;
        const float gradient[4] = {value, value, value, value};
        if (is_used || how == Unused::AddsZeros) optimizer.add_gradient(unit, {gradient, DType::Float32, {4}});
        optimizer.release(unit);
      }
      optimizer.end_microbatch(0);
      if (microbatch % 2 == 1) optimizer.step();
    }
    for (int unit = 0; unit < 3; ++unit) {
      optimizer.gather(unit);
      if (world.rank() == 0) weights.push_back(optimizer.weight(unit).as<float>()[3]);
      optimizer.release(unit);
    }
  };
  comm::run_threads(2, job, {.operation_deadline = std::chrono::seconds(20)});
  return weights;
}

TEST(ShardedOptimizer, ARankNeedNotUseAParameterThatOthersUse) {
  for (const int stage : {0, 1, 2, 3})
    for (const bool overlap : {false, true})
      for (const std::string& mode : {std::string(), std::string(kLayout)})
        for (int unused = 0; unused < 3; ++unused) {
          std::vector<float> expected{-2, -4, -8};  // two steps of the mean over both microbatches of both ranks
          expected[unused] /= 2;
          for (const Unused how : {Unused::AddsZeros, Unused::AddsNothing})
            EXPECT_EQ(weights_after_steps_without(unused, stage, overlap, mode, how), expected)
                << "stage " << stage << (overlap ? ", overlap" : "") << mode << ", unused " << unused;
        }
}

TEST(ShardedOptimizer, FrozenParametersKeepTheirValues) {
  comm::run_threads(2, [&](comm::World& world) {
    const std::vector<float> ones(6, 1.0f);
    const std::vector<Parameter> parameters{
        {.name = "frozen", .shape = {6}, .unit = "u", .values = ones.data(), .trainable = false},
        {.name = "w", .shape = {6}, .unit = "u", .values = ones.data()}};
    ShardedOptimizer optimizer(
        parse_config(R"({"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}})", "t"), parameters,
        world);
    EXPECT_THAT(
        [&] {
          optimizer.add_gradient(0, {ones.data(), DType::Float32, {6}});
        },
        ThrowsMessage<Error>(HasSubstr("\"frozen\", which is frozen")));
    optimizer.add_gradient(1, {ones.data(), DType::Float32, {6}});
    optimizer.end_microbatch(1);
    optimizer.step();
    optimizer.gather(0);
    EXPECT_EQ(optimizer.weight(0).as<float>()[5], 1.0f);
    EXPECT_LT(optimizer.weight(1).as<float>()[5], 1.0f);
  });
}

// ---- memory

// One parameter of 4 x 64 x 1024 elements in each of eight units: shards need no padding.
MemoryBytes memory_of(int stage, int ranks, bool overlap = false) {
  MemoryBytes memory;
  comm::run_threads(ranks, [&](comm::World& world) {
    constexpr int64_t kElementsOfUnit = int64_t{1} << 18;
    std::vector<Parameter> parameters;
    for (int i = 0; i < 8; ++i)
      parameters.push_back({.name = fmt::format("w{}", i), .shape = {kElementsOfUnit}, .unit = fmt::format("u{}", i)});
    const std::string two_microbatches = R"(, "gradient_accumulation_steps": 2)";
    ShardedOptimizer optimizer(parse_config(fmt::format("{{{}}}", zero(stage, overlap, two_microbatches)), "t"), parameters,
                               world);
    const std::vector<float> gradient(kElementsOfUnit, 1.0f);
    for (int m = 0; m < 2; ++m) {
      for (int i = 7; i >= 0; --i) {
        optimizer.gather(i);
        optimizer.release(i);
        optimizer.add_gradient(i, {gradient.data(), DType::Float32, {kElementsOfUnit}});
      }
      optimizer.end_microbatch(0);
    }
    optimizer.step();
    if (world.rank() == 0) memory = optimizer.measured_memory();
  });
  return memory;
}

TEST(ShardedOptimizer, TakesTheMemoryThatTheStageSays) {
  constexpr int64_t kWhole = int64_t{8} << 20, kUnit = int64_t{1} << 20;  // bytes of float32
  for (const int ranks : {1, 2, 4})
    for (const int stage : {0, 1, 2, 3}) {
      const MemoryBytes memory = memory_of(stage, ranks);
      const auto held = [&](int from) { return stage >= from ? kWhole / ranks : kWhole; };
      EXPECT_EQ(memory[MemoryCategory::Optimizer], 2 * held(1)) << stage << " " << ranks;  // Adam's two moments
      EXPECT_EQ(memory[MemoryCategory::Gradients], held(2)) << stage << " " << ranks;
      EXPECT_EQ(memory[MemoryCategory::Parameters], held(3)) << stage << " " << ranks;
    }
  EXPECT_LT(memory_of(0, 2)[MemoryCategory::Buffers], kUnit / 8);  // the norm's and the loss's
  // One unit at a time is whole, because it is summed as soon as it is complete.
  EXPECT_LT(memory_of(2, 2)[MemoryCategory::Buffers], kUnit + kUnit / 8);
  EXPECT_LT(memory_of(3, 2, true)[MemoryCategory::Buffers], 3 * kUnit + kUnit / 8);  // with overlap, one more is in flight
}

// ---- precision

TEST(ShardedOptimizer, WeightsHaveTheTypeOfTheConfig) {
  comm::run_threads(2, [&](comm::World& world) {
    ForeignTrainer trainer(config_of(zero(1, false, R"(, "bf16": {"enabled": true})"), 2), world);
    EXPECT_EQ(trainer.optimizer().dtype(), DType::BFloat16);
    EXPECT_EQ(trainer.optimizer().weight(0).dtype, DType::BFloat16);
    EXPECT_EQ(trainer.optimizer().weight(0).as<bfloat16>()[5], bfloat16(foreign_values(0)[kW1][5]));
    const double before = trainer.step().loss;
    double after = 0;
    for (int i = 0; i < 100; ++i) after = trainer.step().loss;
    EXPECT_LT(after, 0.5 * before);
    EXPECT_EQ(trainer.optimizer().measured_memory()[MemoryCategory::Parameters],
              trainer.optimizer().measured_memory()[MemoryCategory::Gradients] / 2);
  });
}

TEST(ShardedOptimizer, ConvertsGradientsOfOtherTypes) {
  comm::run_threads(1, [&](comm::World& world) {
    const Config config = parse_config(
        R"({"optimizer": {"type": "SGD", "params": {"lr": 1}}, "gradient_clipping": 0, "gradient_accumulation_steps": 3})",
        "t");
    const std::vector<Parameter> parameters{{.name = "w", .shape = {2}}};
    ShardedOptimizer optimizer(config, parameters, world);
    const double as_double[] = {0.5, 1};
    const bfloat16 as_bfloat16[] = {bfloat16(0.25f), bfloat16(2)};
    const float16 as_float16[] = {float16(0.125f), float16(4)};
    const std::pair<const void*, DType> given[] = {
        {as_double, DType::Float64}, {as_bfloat16, DType::BFloat16}, {as_float16, DType::Float16}};
    for (const auto& [data, dtype] : given) {
      optimizer.add_gradient(0, {data, dtype, {2}});
      optimizer.end_microbatch(0);
    }
    optimizer.step();
    EXPECT_FLOAT_EQ(optimizer.weight(0).as<float>()[0], -0.875f / 3);
    EXPECT_FLOAT_EQ(optimizer.weight(0).as<float>()[1], -7.0f / 3);
  });
}

TEST(ShardedOptimizer, SkipsAStepWhoseGradientsAreNotFiniteAndLowersTheLossScale) {
  for (const int stage : {0, 2})
    comm::run_threads(2, [&](comm::World& world) {
      ForeignTrainer trainer(
          config_of(zero(stage, false, R"(, "fp16": {"enabled": true, "initial_scale_power": 4, "hysteresis": 1},
              "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10, "warmup_min_lr": 0.01, "warmup_max_lr": 0.1}})"),
                    2),
          world);
      ShardedOptimizer& optimizer = trainer.optimizer();
      const double learning_rate = optimizer.learning_rate();
      EXPECT_EQ(optimizer.loss_scale(), 16);
      const Bits before = trainer.weights();
      const float infinity = std::numeric_limits<float>::infinity();
      for (int m = 0; m < optimizer.microbatches(); ++m) {
        if (world.rank() == 1 && m == 2) optimizer.add_gradient(kB2, {&infinity, DType::Float32, {1}});
        optimizer.end_microbatch(0);
      }
      const StepReport report = optimizer.step();
      EXPECT_TRUE(report.skipped);
      EXPECT_EQ(report.steps, 1);
      EXPECT_EQ(report.updates, 0);
      EXPECT_EQ(optimizer.loss_scale(), 8);
      EXPECT_EQ(optimizer.learning_rate(), learning_rate);  // schedules count updates
      EXPECT_EQ(trainer.weights(), before);
      for (int step = 0; step < 2; ++step) {  // WarmupLR has the same rate for the first two updates, as DeepSpeed's
        const StepReport taken = trainer.step();
        EXPECT_FALSE(taken.skipped);
        EXPECT_EQ(taken.learning_rate, learning_rate);
      }
      EXPECT_NE(optimizer.learning_rate(), learning_rate);
      EXPECT_NE(trainer.weights(), before);
    });
}

TEST(ShardedOptimizer, TheLossScaleIsTakenOutOfTheGradients) {
  const auto moved = [](const std::string& fp16) {
    std::vector<float> weights;
    comm::run_threads(1, [&](comm::World& world) {
      const std::vector<Parameter> parameters{{.name = "w", .shape = {1}}};
      ShardedOptimizer optimizer(
          parse_config(R"({"optimizer": {"type": "SGD", "params": {"lr": 1}}, "gradient_clipping": 0, )" + fp16 + "}", "t"),
          parameters, world);
      const auto gradient = static_cast<float>(0.5 * optimizer.loss_scale());
      optimizer.add_gradient(0, {&gradient, DType::Float32, {1}});
      optimizer.end_microbatch(0);
      optimizer.step();
      weights.push_back(static_cast<float>(optimizer.weight(0).as<float16>()[0]));
    });
    return weights;
  };
  EXPECT_EQ(moved(R"("fp16": {"enabled": true, "loss_scale": 64})"), std::vector<float>{-0.5f});
  EXPECT_EQ(
      moved(
          R"("train_batch_size": 1, "train_micro_batch_size_per_gpu": 1, "reproducible": "layout", "fp16": {"enabled": true, "loss_scale": 64})"),
      std::vector<float>{-0.5f});
}

TEST(ShardedOptimizer, EndsARunInWhichTooManyStepsAreSkipped) {
  comm::run_threads(1, [&](comm::World& world) {
    const std::vector<Parameter> parameters{{.name = "w", .shape = {1}}};
    ShardedOptimizer optimizer(parse_config(R"({"training": {"stop_after_skipped": 2}})", "t"), parameters, world);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (int i = 0; i < 2; ++i) {
      optimizer.add_gradient(0, {&nan, DType::Float32, {1}});
      optimizer.end_microbatch(0);
      EXPECT_TRUE(optimizer.step().skipped);
    }
    EXPECT_THAT(
        [&] {
          optimizer.add_gradient(0, {&nan, DType::Float32, {1}});
        },
        ThrowsMessage<NumericsError>(AllOf(HasSubstr("not finite 2 times in a row"),
                                           HasSubstr("; lower optimizer.params.lr or gradient_clipping and"))));
    ShardedOptimizer unclipped(parse_config(R"({"training": {"stop_after_skipped": 1}, "gradient_clipping": 0})", "t"),
                               parameters, world);
    unclipped.add_gradient(0, {&nan, DType::Float32, {1}});
    unclipped.end_microbatch(0);
    unclipped.step();
    EXPECT_THAT([&] { unclipped.end_microbatch(0); },
                ThrowsMessage<NumericsError>(HasSubstr("; lower optimizer.params.lr, or clip with gradient_clipping, and")));
    ShardedOptimizer scaled(
        parse_config(R"({"training": {"stop_after_skipped": 1}, "fp16": {"enabled": true, "loss_scale": 64}})", "t"),
        parameters, world);
    scaled.add_gradient(0, {&nan, DType::Float32, {1}});
    scaled.end_microbatch(0);
    scaled.step();
    EXPECT_THAT([&] { scaled.end_microbatch(0); }, ThrowsMessage<NumericsError>(HasSubstr("lower fp16.loss_scale and resume")));
  });
}

// ---- mistakes of a trainer

TEST(ShardedOptimizer, RefusesCallsAtTheWrongTimeAndGoesOn) {
  const auto usage = [](const char* text) { return ThrowsMessage<Error>(HasSubstr(text)); };
  comm::run_threads(2, [&](comm::World& world) {
    const std::vector<Parameter> parameters{{.name = "a", .shape = {4}, .unit = "ua"},
                                            {.name = "b", .shape = {4}, .unit = "ub"}};
    ShardedOptimizer optimizer(
        parse_config(R"({"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}})", "t"), parameters,
        world);
    const std::vector<float> values(5, 1.0f);
    const ConstTensorView gradient{values.data(), DType::Float32, {4}};
    EXPECT_THAT([&] { optimizer.weight(0); }, usage("weight of \"a\": its unit \"ua\" is not whole; call gather(0)"));
    EXPECT_THAT([&] { optimizer.weight(2); }, usage("parameter 2 does not exist; there are 2"));
    EXPECT_THAT([&] { optimizer.save(""); }, usage("save(): no directory is named"));
    EXPECT_THAT([&] { optimizer.load(""); }, usage("load(): no directory is named"));
    EXPECT_THAT([&] { optimizer.gather(-1); }, usage("unit -1 does not exist; there are 2"));
    EXPECT_THAT([&] { optimizer.release(1); }, usage("release of unit \"ub\", which is not gathered"));
    EXPECT_THAT([&] { optimizer.step(); }, usage("step() after 0 of 1 microbatches"));
    EXPECT_THAT([&] { optimizer.gradient_ready(0); }, usage("gradient_ready of \"a\" without gradient() before it"));
    EXPECT_THAT(
        [&] {
          optimizer.add_gradient(0, {values.data(), DType::Float32, {5}});
        },
        usage("gradient of \"a\" has 5 elements of float32; it must have 4"));
    EXPECT_THAT([&] { optimizer.add_gradient(0, {values.data(), DType::Int32, {4}}); }, usage("4 elements of int32"));
    optimizer.add_gradient(0, gradient);
    EXPECT_THAT([&] { optimizer.add_gradient(0, gradient); }, usage("a second gradient of \"a\" in one microbatch"));
    EXPECT_THAT([&] { optimizer.gradient_ready(0); }, usage("gradient_ready of \"a\""));
    EXPECT_THAT([&] { optimizer.save("nowhere"); }, usage("save() after gradients of a step have arrived"));
    optimizer.end_microbatch(0);
    EXPECT_THAT([&] { optimizer.add_gradient(1, gradient); }, usage("gradient of \"b\" after 1 microbatches"));
    EXPECT_THAT([&] { optimizer.end_microbatch(0); }, usage("end_microbatch() after 1 microbatches"));
    optimizer.gather(1);
    EXPECT_THAT([&] { optimizer.step(); }, usage("step() while unit \"ub\" is gathered; release it first"));
    optimizer.release(1);
    EXPECT_EQ(optimizer.step().updates, 1);
    optimizer.prefetch(0);
    EXPECT_THAT([&] { optimizer.load("nowhere"); }, usage("load() while unit \"ua\" is gathered"));
    optimizer.release(0);
  });
}

TEST(ShardedOptimizer, EndsNoMicrobatchInWhichAGradientIsStillWritten) {
  comm::run_threads(1, [&](comm::World& world) {
    const std::vector<Parameter> parameters{{.name = "a", .shape = {4}}, {.name = "b", .shape = {4}}};
    ShardedOptimizer optimizer(parse_config(R"({"optimizer": {"type": "SGD", "params": {"lr": 1}}})", "t"), parameters, world);
    const Gradient gradient = optimizer.gradient(0);
    EXPECT_FALSE(gradient.accumulate);
    EXPECT_THAT([&] { optimizer.gradient(0); }, ThrowsMessage<Error>(HasSubstr("a second gradient of \"a\"")));
    EXPECT_THAT([&] { optimizer.gradient_ready(1); },
                ThrowsMessage<Error>(HasSubstr("gradient_ready of \"b\" without gradient() before it")));
    EXPECT_THAT([&] { optimizer.end_microbatch(0); },
                ThrowsMessage<Error>(HasSubstr("after gradient() of \"a\" without its gradient_ready()")));
    std::fill_n(gradient.view.as<float>(), 4, 0.25f);
    optimizer.gradient_ready(0);
    optimizer.end_microbatch(0);
    optimizer.step();
    EXPECT_EQ(optimizer.weight(0).as<float>()[3], -0.25f);
    EXPECT_EQ(optimizer.weight(1).as<float>()[3], 0.0f);
  });
}

TEST(ShardedOptimizer, GathersMayBeNested) {
  comm::run_threads(2, [&](comm::World& world) {
    const std::vector<Parameter> parameters{{.name = "a", .shape = {4}, .init = {Init::Kind::Ones}}};
    ShardedOptimizer optimizer(
        parse_config(R"({"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}})", "t"), parameters,
        world);
    optimizer.prefetch(0);
    optimizer.gather(0);
    optimizer.gather(0);
    optimizer.release(0);
    EXPECT_EQ(optimizer.weight(0).as<float>()[3], 1.0f);
    optimizer.release(0);
    EXPECT_THROW(optimizer.weight(0), Error);
  });
}

TEST(ShardedOptimizer, RefusesWhatItCannotDo) {
  const auto refused = [](const std::string& config, const char* text) {
    comm::run_threads(1, [&](comm::World& world) {
      const std::vector<Parameter> parameters{{.name = "a", .shape = {4}}};
      EXPECT_THAT([&] { ShardedOptimizer(parse_config(config, "t.json"), parameters, world); },
                  ThrowsMessage<ConfigError>(HasSubstr(text)));
    });
  };
  refused(R"({"device": "cuda"})", "device: \"cuda\" is not accepted for an embedded optimizer");
  refused(
      R"({"audit": {"every_steps": 2}, "reproducible": "layout", "train_batch_size": 1, "train_micro_batch_size_per_gpu": 1})",
      "audit.every_steps: 2 is not accepted");
  refused(R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})",
          "offload_optimizer.device: is not accepted");
  for (const char* steps : {"1048577", "2147483648", "4294967297", "1152921504606846976"})
    refused("{\"gradient_accumulation_steps\": " + std::string(steps) + "}",
            "is not accepted for an embedded optimizer; use at most 1048576");
  refused(R"({"training": {"epochs": 3}, "scheduler": {"type": "Cosine"}})", "its epochs can only be counted by a trainer");
  refused(R"({"optimizer": {"lr_scaling": {"rule": "linear", "base_batch_size": 1, "warmup_epochs": 5}}})",
          "optimizer.lr_scaling.warmup_epochs: its epochs can only be counted");
  comm::run_threads(1, [&](comm::World& world) {
    EXPECT_THAT([&] { ShardedOptimizer(parse_config("{}", "t.json"), {}, world); },
                ThrowsMessage<ConfigError>(HasSubstr("none were registered")));
    const std::vector<Parameter> twice{{.name = "a", .shape = {4}}, {.name = "a", .shape = {4}}};
    EXPECT_THAT([&] { ShardedOptimizer(parse_config("{}", "t.json"), twice, world); },
                ThrowsMessage<ConfigError>(HasSubstr("two parameters are named \"a\"")));
  });
  comm::run_threads(2, [&](comm::World& world) {
    const std::vector<Parameter> parameters{{.name = "a", .shape = {4}}};
    EXPECT_THAT([&] { ShardedOptimizer(parse_config(R"({"parallel": {"pipeline": 2}})", "t.json"), parameters, world); },
                ThrowsMessage<ConfigError>(HasSubstr("parallel.pipeline: 2 is not accepted")));
  });
  // Also where the ranks are too few for such a grid.
  refused(R"({"parallel": {"pipeline": 2}})", "parallel.pipeline: 2 is not accepted");
}

TEST(ShardedOptimizer, NamesKeysThatAreForTheTrainer) {
  const Config config = parse_config(R"({"model": {"layers": 2, "heads": 2}, "train_batch_size": 1, "steps_per_print": 3,
      "checkpoint": {"directory": "here", "keep": 3}, "training": {"steps": 5, "evaluate_every": 2},
      "optimizer": {"type": "Adam"}, "data": {"train": "a.txt"}})",
                                     "t.json");
  EXPECT_THAT(unused_keys(config),
              testing::ElementsAre("model", "steps_per_print", "checkpoint.keep", "training.evaluate_every", "data"));
  EXPECT_THAT(unused_keys(parse_config(R"({"train_batch_size": 1, "zero_optimization": {"stage": 2}})", "t.json")),
              testing::IsEmpty());
}

TEST(ShardedOptimizer, RefusesToReadWeightsAsAnotherType) {
  comm::run_threads(1, [](comm::World& world) {
    const std::vector<Parameter> parameters{{.name = "a", .shape = {4}}};
    ShardedOptimizer optimizer(parse_config(R"({"bf16": {"enabled": true}})", "t.json"), parameters, world);
    EXPECT_EQ(optimizer.weight(0).as<bfloat16>()[0], bfloat16(0.0f));
    EXPECT_THAT([&] { optimizer.weight(0).as<float>(); },
                ThrowsMessage<Error>(HasSubstr("the tensor is of bfloat16, not of float32; look at its dtype first")));
  });
}

// The sum of the counts of a step must not overflow.
TEST(ShardedOptimizer, RefusesCountsThatAreTooLarge) {
  comm::run_threads(2, [](comm::World& world) {
    const std::vector<Parameter> parameters{{.name = "a", .shape = {4}}};
    ShardedOptimizer optimizer(parse_config("{}", "t.json"), parameters, world);
    for (const int64_t count : {int64_t{-1}, (int64_t{1} << 52) + 1, int64_t{1} << 62, std::numeric_limits<int64_t>::max()})
      EXPECT_THAT([&] { optimizer.end_microbatch(1, count); },
                  ThrowsMessage<Error>(HasSubstr("end_microbatch() with a count of")));
    optimizer.end_microbatch(1, int64_t{1} << 52);
    EXPECT_EQ(optimizer.step().loss, 0x1p-52);
  });
}

TEST(ShardedOptimizer, NamesTheFirstDifferenceBetweenRanks) {
  EXPECT_THAT(
      [] {
        comm::run_threads(3, [](comm::World& world) {
          const std::vector<Parameter> parameters{{.name = "a", .shape = {4}},
                                                  {.name = "b", .shape = {world.rank() == 2 ? 5 : 4}}};
          ShardedOptimizer(parse_config("{}", "t"), parameters, world);
        });
      },
      ThrowsMessage<CommError>(
          AllOf(HasSubstr("rank 0 has parameter \"b\" [4]"), HasSubstr("rank 2 has parameter \"b\" [5]"))));
  EXPECT_THAT(
      [] {
        comm::run_threads(2, [](comm::World& world) {
          const std::vector<Parameter> parameters{{.name = "a", .shape = {4}}};
          const int stage = world.rank();
          ShardedOptimizer(parse_config(fmt::format(R"({{"zero_optimization": {{"stage": {}}}}})", stage), "t"), parameters,
                           world);
        });
      },
      ThrowsMessage<CommError>(HasSubstr("rank 0 has config zero_optimization.stage: 0, but rank 1 has config")));
  EXPECT_THAT(
      [] {
        comm::run_threads(2, [](comm::World& world) {
          const float values[4] = {};
          const std::vector<Parameter> parameters{{.name = "a", .shape = {4}, .values = world.rank() == 0 ? values : nullptr}};
          ShardedOptimizer(parse_config("{}", "t"), parameters, world);
        });
      },
      ThrowsMessage<CommError>(HasSubstr("rank 1 has parameter \"a\" [4] in unit \"bucket 0\", no values")));
  const auto differ = [](const Parameter& first, const Parameter& second) {
    return [=] {
      comm::run_threads(2, [&](comm::World& world) {
        const std::vector<Parameter> parameters{world.rank() == 0 ? first : second};
        ShardedOptimizer(parse_config("{}", "t"), parameters, world);
      });
    };
  };
  EXPECT_THAT(differ({.name = "a", .shape = {4}, .role = LayerRole::Loss}, {.name = "a", .shape = {4}}),
              ThrowsMessage<CommError>(HasSubstr("rank 0 has parameter \"a\" [4] in unit \"bucket 0\", of a loss layer")));
  EXPECT_THAT(differ({.name = "a", .shape = {4}}, {.name = "a", .shape = {4}, .init = {Init::Kind::Normal, 0.5}}),
              ThrowsMessage<CommError>(HasSubstr("no values but normal numbers of scale 0.5")));
}

// Forwards to another world, and keeps the reason for which that was aborted.
class KeepsReason final : public comm::World {
 public:
  explicit KeepsReason(comm::World& world) : world_(world) {}
  comm::ProcessGroup& group() const override { return world_.group(); }
  std::string host() const override { return world_.host(); }
  void close() override { world_.close(); }
  void abort(const std::string& why) noexcept override {
    reason = why;
    world_.abort(why);
  }
  std::string reason;

 private:
  comm::World& world_;
};

TEST(ShardedOptimizer, TellsTheOtherRanksWhyItCouldNotBeMade) {
  const Config config = parse_config(R"({"zero_optimization": {"stage": 2, "overlap_comm": true}})", "t");
  const std::vector<Parameter> parameters{{.name = "a", .shape = {4}}};
  const auto job = [&] {
    comm::run_threads(2, [&](comm::World& world) {
      if (world.rank() == 1) {  // fails after the ranks have agreed
        const auto group = world.group().subgroup({0, 1}, "checkpoint");
        check_agreement(config, parameters, make_units(parameters, Options().bucket_elements), comm::over_group(*group));
        throw OutOfMemoryError("no memory for weights");
      }
      KeepsReason keeping(world);
      EXPECT_THROW(ShardedOptimizer(config, parameters, keeping), CommError);
      EXPECT_THAT(keeping.reason, HasSubstr("no memory for weights"));
    });
  };
  EXPECT_THAT(job, ThrowsMessage<OutOfMemoryError>("no memory for weights"));
}

TEST(ShardedOptimizer, FindsATrainerThatWritesToItsWeights) {
  EXPECT_THAT(
      [] {
        comm::run_threads(3, [](comm::World& world) {
          ForeignTrainer trainer(config_of(zero(0, false, R"(, "audit": {"weights_every": 2})"), 3), world);
          trainer.step();
          if (world.rank() == 1) const_cast<float*>(trainer.optimizer().weight(0).as<float>())[0] += 1;
          trainer.step();
        });
      },
      ThrowsMessage<CommError>(AllOf(HasSubstr("rank 1"), HasSubstr("first.weight"))));
}

TEST(ShardedOptimizer, SavesNoWeightsThatDifferBetweenRanks) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(
      [&] {
        comm::run_threads(3, [&](comm::World& world) {
          ForeignTrainer trainer(config_of(zero(0), 3), world);
          trainer.step();
          if (world.rank() == 1) const_cast<float*>(trainer.optimizer().weight(0).as<float>())[0] += 1;
          trainer.optimizer().save(folder.path());
        });
      },
      ThrowsMessage<CommError>(AllOf(HasSubstr("rank 1"), HasSubstr("first.weight"))));
}

// ---- checkpoints

TEST(ShardedOptimizer, ContinuesOnAnotherNumberOfRanksAndStageWithTheSameBits) {
  struct Place {
    int ranks, stage;
  };
  for (const auto& places : {std::pair<Place, Place>{{2, 2}, {3, 3}}, {{4, 3}, {1, 0}}, {{1, 0}, {2, 1}}}) {
    const Place from = places.first, to = places.second;
    const test::TemporaryFolder folder;
    comm::run_threads(from.ranks, [&](comm::World& world) {
      ForeignTrainer trainer(config_of(zero(from.stage, false, kLayout), world.size()), world);
      for (int i = 0; i < kSteps / 2; ++i) trainer.step();
      trainer.optimizer().save(folder.path());
    });
    Bits bits;
    comm::run_threads(to.ranks, [&](comm::World& world) {
      ForeignTrainer trainer(config_of(zero(to.stage, false, kLayout), world.size()), world);
      ASSERT_TRUE(trainer.optimizer().load(folder.path()));
      EXPECT_EQ(trainer.optimizer().steps(), kSteps / 2);
      for (int i = kSteps / 2; i < kSteps; ++i) trainer.step();
      const Bits own = trainer.weights();
      if (world.rank() == 0) bits = own;
    });
    EXPECT_EQ(bits, alone()) << from.ranks << " ranks at stage " << from.stage << " -> " << to.ranks << " at stage "
                             << to.stage;
  }
}

TEST(ShardedOptimizer, LoadsNothingFromAnEmptyDirectory) {
  const test::TemporaryFolder folder;
  comm::run_threads(2, [&](comm::World& world) {
    ForeignTrainer trainer(config_of(zero(2), 2), world);
    const Bits before = trainer.weights();
    EXPECT_FALSE(trainer.optimizer().load(folder.path()));
    EXPECT_EQ(trainer.weights(), before);
  });
}

// The advice has no flag of another program.
TEST(ShardedOptimizer, RefusesStatesOfAnotherOptimizer) {
  const test::TemporaryFolder folder;
  comm::run_threads(1, [&](comm::World& world) {
    const std::vector<Parameter> parameters{{.name = "a", .shape = {4}}};
    const auto with = [](const std::string& type) {
      return parse_config(R"({"optimizer": {"type": ")" + type + "\"}}", "t.json");
    };
    ShardedOptimizer(with("Adam"), parameters, world).save(folder.path());
    EXPECT_THAT(
        [&] { ShardedOptimizer(with("Lion"), parameters, world).load(folder.path()); },
        ThrowsMessage<ConfigError>(AllOf(HasSubstr("\"Lion\" cannot continue from "), EndsWith("; set it to \"Adam\""))));
  });
}

TEST(ShardedOptimizer, RefusesACheckpointOfOtherParameters) {
  const test::TemporaryFolder folder;
  comm::run_threads(1, [&](comm::World& world) {
    ForeignTrainer trainer(config_of(""), world);
    trainer.optimizer().save(folder.path());
    const std::vector<Parameter> parameters{{.name = "first.weight", .shape = {3}}};
    ShardedOptimizer other(config_of(""), parameters, world);
    EXPECT_THAT([&] { other.load(folder.path()); }, ThrowsMessage<CheckpointError>(HasSubstr("first.weight")));
  });
}

// Whatever command or run is given it says so, in place of a default model that it would not fit.
TEST(ShardedOptimizer, SavesWhatNoCommandTakesForAModelOfItsOwn) {
  const test::TemporaryFolder folder;
  comm::run_threads(1, [&](comm::World& world) { ForeignTrainer(config_of(""), world).optimizer().save(folder.path()); });
  const auto refusal = [&](const std::string& key) {
    return ThrowsMessage<ConfigError>(
        AllOf(testing::StartsWith(key + ": " + folder.path() + "/step-00000000 was saved by a trainer"),
              HasSubstr("load it in that trainer")));
  };
  EXPECT_THAT([&] { trainer::SavedModel(folder.path(), "generate"); }, refusal("generate"));
  const checkpoint::LoadedStep step = checkpoint::open_path(real_file_system(), folder.path());
  EXPECT_THAT([&] { trainer::refuse_imported(step, "--resume"); }, refusal("--resume"));
  EXPECT_THAT([&] { hugging_face::export_model(real_file_system(), folder.path(), {.output = folder.path() + "/exported"}); },
              refusal("checkpoint export"));
}

// Each rank reads only its part: here only rank 1's lacks a tensor.
TEST(ShardedOptimizer, AllRanksRefuseACheckpointThatLacksATensorAndGoOn) {
  constexpr int64_t kEach = 1024;
  const test::TemporaryFolder folder;
  const std::vector<float> ones(kEach, 1.0f), twos(kEach, 2.0f);
  const Config config = parse_config(R"({"zero_optimization": {"stage": 1}, "optimizer": {"type": "SGD"}})", "t");
  comm::run_threads(1, [&](comm::World& world) {
    const std::vector<Parameter> parameters{{.name = "a", .shape = {kEach}, .values = ones.data()}};
    ShardedOptimizer(config, parameters, world).save(folder.path());
  });
  const auto load = [&](comm::World& world) {
    const std::vector<Parameter> parameters{{.name = "a", .shape = {kEach}, .unit = "u", .values = twos.data()},
                                            {.name = "b", .shape = {kEach}, .unit = "u", .values = twos.data()}};
    ShardedOptimizer optimizer(config, parameters, world);
    EXPECT_THAT([&] { optimizer.load(folder.path()); }, ThrowsMessage<CheckpointError>(HasSubstr("tensor \"b\"")));
    EXPECT_EQ(optimizer.weight(0).as<float>()[0], 2.0f);  // nothing changed
    optimizer.end_microbatch(0);
    EXPECT_EQ(optimizer.step().steps, 1);
  };
  comm::run_threads(2, load, {.operation_deadline = std::chrono::seconds(10)});
}

TEST(ShardedOptimizer, RefusesCheckpointsThatDifferBetweenRanks) {
  const test::TemporaryFolder folders[2];
  for (const test::TemporaryFolder& folder : folders)
    comm::run_threads(1, [&](comm::World& world) {
      const float value = &folder == folders ? 1.0f : 2.0f;
      const std::vector<Parameter> parameters{{.name = "a", .shape = {1}, .values = &value}};
      ShardedOptimizer(parse_config("{}", "t"), parameters, world).save(folder.path());
    });
  const auto load = [&](comm::World& world) {
    const std::vector<Parameter> parameters{{.name = "a", .shape = {1}}};
    ShardedOptimizer(parse_config("{}", "t"), parameters, world).load(folders[world.rank()].path());
  };
  EXPECT_THAT([&] { comm::run_threads(2, load); },
              ThrowsMessage<CommError>(HasSubstr("all ranks must find the same file at this path")));
}

TEST(ShardedOptimizer, AResumedRunKeepsItsLossScaleAndItsSchedule) {
  const test::TemporaryFolder folder;
  const std::string config = zero(1, false, R"(, "fp16": {"enabled": true, "initial_scale_power": 3, "loss_scale_window": 2},
      "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10, "warmup_max_lr": 1}})");
  comm::run_threads(1, [&](comm::World& world) {
    ForeignTrainer first(config_of(config), world), second(config_of(config), world);
    for (int i = 0; i < 5; ++i) first.step();
    first.optimizer().save(folder.path());
    EXPECT_NE(first.optimizer().loss_scale(), second.optimizer().loss_scale());
    EXPECT_NE(first.optimizer().learning_rate(), second.optimizer().learning_rate());
    EXPECT_TRUE(second.optimizer().load(folder.path()));
    EXPECT_EQ(first.optimizer().loss_scale(), second.optimizer().loss_scale());
    EXPECT_EQ(first.optimizer().learning_rate(), second.optimizer().learning_rate());
    EXPECT_EQ(first.step().loss, second.step().loss);
    EXPECT_EQ(first.weights(), second.weights());
  });
}

}  // namespace
}  // namespace trivet::embed
