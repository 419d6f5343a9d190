#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "autotune/tune/tuning_space.h"
#include "core/error.h"
#include "engine/plan.h"

namespace trivet::autotune {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

// A document with a model of 2 heads and 4 blocks, and with `rest`.
ConfigDocument document(const std::string& rest) {
  return {R"({"model": {"type": "gpt", "layers": 2, "hidden_size": 16, "heads": 2, "sequence_length": 8})" +
              (rest.empty() ? std::string() : ", " + rest) + "}",
          "gpt.json",
          {}};
}

std::vector<std::string> names(const TuningSpace& space) {
  std::vector<std::string> all;
  for (const TrialConfig& trial : space.trials) all.push_back(trial.name);
  return all;
}

constexpr const char* kDataParallel = R"("parallel": {"tensor": 1, "pipeline": 1}, "train_batch_size": 8)";

// The space as all ranks plan it. They must agree.
TuningSpace planned(const ConfigDocument& given, int ranks, int64_t memory_bytes = int64_t{1} << 40) {
  std::mutex mutex;
  std::vector<TuningSpace> spaces;
  comm::run_threads(ranks, [&](comm::World& world) {
    const Config config = given.config();
    TuningSpace space = plan_space(enumerate(given, ranks), config, model::build(model::with_vocabulary(config.model, 64)),
                                   memory_bytes, world);
    const std::lock_guard lock(mutex);
    spaces.push_back(std::move(space));
  });
  for (const TuningSpace& space : spaces) EXPECT_EQ(names(space), names(spaces[0]));
  return spaces[0];
}

TEST(TuningSpace, FastIsMeshesByStagesByMicrobatches) {
  const TuningSpace space = enumerate(document(R"("train_batch_size": 4)"), 2);
  EXPECT_THAT(names(space),
              ElementsAre("z0_gas2_tmbspg1", "z0_gas1_tmbspg2", "z1_gas2_tmbspg1", "z1_gas1_tmbspg2", "z2_gas2_tmbspg1",
                          "z2_gas1_tmbspg2", "z3_gas2_tmbspg1", "z3_gas1_tmbspg2", "z0_gas4_tmbspg1_pp2", "z0_gas2_tmbspg2_pp2",
                          "z0_gas1_tmbspg4_pp2", "z0_gas4_tmbspg1_tp2", "z0_gas2_tmbspg2_tp2", "z0_gas1_tmbspg4_tp2"));
  const Config& config = space.trials[8].config;
  EXPECT_EQ(config.parallel.pipeline, 2);
  EXPECT_EQ(config.batch.train_batch_size, 4);
  EXPECT_EQ(config.batch.gradient_accumulation_steps, 4);
  EXPECT_TRUE(space.trials[6].config.zero.overlap_comm);  // stage 3's own default
  EXPECT_FALSE(space.trials[4].config.zero.overlap_comm);
}

// Experts are divided among data and context ranks; schedules that delay gradients of weights are not tried with that.
TEST(TuningSpace, TriesRanksThatShareExperts) {
  const auto space = [](const std::string& rest) {
    const std::string model = R"({"model": {"type": "llama", "layers": 2, "hidden_size": 16, "heads": 2, "sequence_length": 8,
      "experts": {"count": 6, "per_token": 2}}, "train_batch_size": 4, "parallel": {"tensor": 1)";
    return enumerate({model + rest + "}", "mixture.json", {}}, 4);
  };
  const TuningSpace all = space(R"(}, "autotuning": {"fast": false})");
  EXPECT_THAT(names(all), Contains("z1_gas1_tmbspg1_ep2_overlap"));
  EXPECT_THAT(names(all), Contains("z1_gas2_tmbspg1_ep2_pp2_1f1b_overlap"));
  EXPECT_THAT(names(all), Contains("z1_gas2_tmbspg1_pp2_zb-h1_overlap"));
  EXPECT_THAT(names(all), Not(Contains(HasSubstr("_ep4"))));
  EXPECT_THAT(names(all), Not(Contains(AllOf(HasSubstr("_ep"), HasSubstr("_zb")))));
  for (const TrialConfig& trial : all.trials) EXPECT_EQ(trial.config.parallel.expert, trial.name.find("_ep2") < 99 ? 2 : 1);
  const TuningSpace kept = space(R"(, "expert": 2})");
  EXPECT_THAT(kept.kept, Contains("parallel.expert 2"));
  for (const TrialConfig& trial : kept.trials) EXPECT_EQ(trial.config.parallel.expert, 2);
  EXPECT_THAT(names(space(R"(}, "device": "cuda")")), Not(Contains(HasSubstr("_ep"))));
}

TEST(TuningSpace, KeepsTheContextRanksOfTheDocument) {
  const ConfigDocument given = document(R"("sequence_parallel_size": 2, "train_batch_size": 4, "parallel": {"pipeline": 1})");
  const TuningSpace space = enumerate(given, 4);
  EXPECT_THAT(space.kept, ElementsAre("parallel.context 2", "parallel.pipeline 1"));
  EXPECT_THAT(names(space), Contains("z3_gas2_tmbspg1_cp2"));  // 2 data ranks
  for (const TrialConfig& trial : space.trials) EXPECT_EQ(trial.config.parallel.context, 2);
  EXPECT_EQ(space.context, "");
  EXPECT_THAT([&] { enumerate(given, 3); },
              ThrowsMessage<ConfigError>(HasSubstr("sequence_parallel_size: 2 does not divide the 3 ranks; use a divisor")));
}

// With 2 heads, and only for sequences that are long.
TEST(TuningSpace, HasContextRanksForLongSequences) {
  ConfigDocument given = document(kDataParallel);
  const TuningSpace without = enumerate(given, 4);
  EXPECT_EQ(without.context, "ranks are not tried, because sequences have 8 tokens, less than 16384");
  given.overrides = {"model.sequence_length=16384"};
  const TuningSpace with = enumerate(given, 4);
  EXPECT_EQ(with.context, "ranks are tried, because sequences have 16384 tokens");
  std::set<int64_t> sizes;
  for (const TrialConfig& trial : with.trials) sizes.insert(trial.config.parallel.context);
  EXPECT_EQ(sizes, (std::set<int64_t>{1, 2}));
  EXPECT_TRUE(with.refused.empty());
  given.overrides.insert(given.overrides.end(), {"reproducible=layout", "train_micro_batch_size_per_gpu=1"});
  for (const TrialConfig& trial : enumerate(given, 4).trials) EXPECT_EQ(trial.config.parallel.context, 1);
}

// A batch of one sequence for two ranks, or a few bytes less than what is needed without.
TEST(TuningSpace, HasContextRanksWhereNothingElseIsAcceptedOrFits) {
  const auto of = [](int64_t batch, int64_t memory_bytes) {
    const ConfigDocument given =
        document(fmt::format(R"("parallel": {{"tensor": 1, "pipeline": 1}}, "train_batch_size": {})", batch));
    TuningSpace found;
    comm::run_threads(2, [&](comm::World& world) {
      const Config config = given.config();
      const model::Model model = model::build(model::with_vocabulary(config.model, 64));
      TuningSpace space = planned_space(given, config, model, memory_bytes, world);
      if (world.rank() == 0) found = std::move(space);
    });
    return found;
  };
  const auto least = [](const TuningSpace& space) {
    return std::ranges::min_element(space.trials, {}, &TrialConfig::memory_bytes)->memory_bytes;
  };
  constexpr int64_t kMuch = int64_t{1} << 40;
  const TuningSpace one = of(1, kMuch), two = of(2, kMuch), less = of(2, least(two) - 1);
  EXPECT_THAT(names(one), Contains("z1_gas1_tmbspg1_cp2"));
  EXPECT_THAT(names(two), Not(Contains(HasSubstr("cp2"))));
  EXPECT_EQ(less.context, "ranks are tried, because no config without them is accepted and fits");
  for (const TrialConfig& trial : less.trials) EXPECT_EQ(trial.fits, trial.config.parallel.context == 2 && trial.fits);
  EXPECT_LT(least(less), least(two));
  EXPECT_THROW(of(2, 1000), OutOfMemoryError);
}

TEST(TuningSpace, FullAddsWhatMeansSomethingOnEachMesh) {
  const auto all = names(enumerate(document(R"("train_batch_size": 4, "autotuning": {"fast": false})"), 2));
  EXPECT_THAT(all, Contains("z2_gas1_tmbspg2_selective_overlap"));
  EXPECT_THAT(all, Contains("z0_gas2_tmbspg2_pp2_zb-v_full"));
  EXPECT_THAT(all, Contains("z0_gas2_tmbspg2_pp2_interleaved2"));
  EXPECT_THAT(all, Contains("z0_gas4_tmbspg1_tp2_sp"));
  for (const std::string& name : all) {
    EXPECT_FALSE(name.find("pp2") == std::string::npos && name.find("1f1b") != std::string::npos) << name;
    EXPECT_FALSE(name.find("tp2") != std::string::npos && name.find("overlap") != std::string::npos) << name;
  }
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
  // data: 4 stages x 2 x 3 recomputations x 2 overlaps; pipeline: 3 x 5 schedules x 3; tensor: 3 x 3 x 2
  EXPECT_EQ(all.size(), 4u * 2 * 3 * 2 + 3 * 5 * 3 + 3 * 3 * 2);
}

TEST(TuningSpace, WhatTheDocumentGivesIsKeptAndSaid) {
  const TuningSpace space = enumerate(
      document(R"("train_batch_size": 8, "zero_optimization": {"stage": 2, "overlap_comm": true}, "pipeline": {"stages": 1},
                  "autotuning": {"fast": false, "mp_size": 1})"),
      2);
  EXPECT_THAT(space.kept,
              ElementsAre("parallel.pipeline 1", "zero_optimization.stage 2", "zero_optimization.overlap_comm true"));
  EXPECT_EQ(space.trials.size(), 9u);
  for (const TrialConfig& trial : space.trials) {
    EXPECT_EQ(trial.config.zero.stage, 2);
    EXPECT_TRUE(trial.config.zero.overlap_comm);
    EXPECT_EQ(trial.config.parallel.tensor, 1);
  }
}

TEST(TuningSpace, WithoutATrainBatchSizeMicrobatchesDoubleBetweenTheLimits) {
  const auto all = names(enumerate(document(R"("train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2,
      "zero_optimization": {"stage": 1}, "parallel": {"tensor": 1, "pipeline": 1},
      "autotuning": {"min_train_batch_size": 8, "max_train_batch_size": 40})"),
                                   2));
  EXPECT_THAT(all, ElementsAre("z1_gas2_tmbspg2", "z1_gas2_tmbspg4", "z1_gas2_tmbspg8"));
}

// With reproducible "layout" the microbatch is part of the mathematics.
TEST(TuningSpace, TheSameBitsOnEveryLayoutKeepTheMicrobatch) {
  const auto all = names(enumerate(document(R"("train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
      "reproducible": "layout", "zero_optimization": {"stage": 1}, "parallel": {"tensor": 1, "pipeline": 1})"),
                                   2));
  EXPECT_THAT(all, ElementsAre("z1_gas2_tmbspg2"));
}

TEST(TuningSpace, SpreadsTheMicrobatchesThatFitAndKeepsTheOthersAsResults) {
  const std::string rest =
      R"("zero_optimization": {"stage": 0}, "parallel": {"tensor": 1, "pipeline": 1}, "train_batch_size": 64)";
  const TuningSpace all = planned(document(rest), 2);
  EXPECT_THAT(names(all), ElementsAre("z0_gas32_tmbspg1", "z0_gas4_tmbspg8", "z0_gas1_tmbspg32"));
  const TuningSpace some = planned(document(rest), 2, all.trials[1].memory_bytes);
  // the last two do not fit
  EXPECT_THAT(names(some),
              ElementsAre("z0_gas32_tmbspg1", "z0_gas8_tmbspg4", "z0_gas4_tmbspg8", "z0_gas2_tmbspg16", "z0_gas1_tmbspg32"));
  for (const TrialConfig& trial : some.trials) EXPECT_EQ(trial.fits, trial.memory_bytes <= all.trials[1].memory_bytes);
  EXPECT_EQ(std::ranges::count_if(some.trials, &TrialConfig::fits), 3);
}

TEST(TuningSpace, CountsWhatThePlanRefusesByReason) {
  const TuningSpace space = planned(document(R"("train_batch_size": 4, "zero_optimization": {"stage": 1})"), 4);
  const auto four_heads = std::ranges::find_if(space.refused, [](const RefusedConfigs& r) {
    return r.reason.find("does not divide model.heads 2") != std::string::npos;
  });
  ASSERT_NE(four_heads, space.refused.end());
  EXPECT_EQ(four_heads->reason, "parallel.tensor: 4 does not divide model.heads 2; use 1 or 2");
  EXPECT_EQ(four_heads->configs, 3);  // microbatches 1, 2 and 4
  EXPECT_EQ(four_heads->example, "z1_gas4_tmbspg1_tp4");
}

TEST(TuningSpace, SaysWhatIsMissingWhereNothingFits) {
  EXPECT_THAT(
      [] { planned(document(kDataParallel), 2, 1000); },
      ThrowsMessage<OutOfMemoryError>(AllOf(
          HasSubstr("gpt.json: autotuning: no config fits into 0.00 GiB a rank; the smallest, z"), HasSubstr(" needs "))));
}

std::string refusal(const std::string& rest) {
  try {
    check_autotuning(document(rest).config());
    return "accepted";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(CheckAutotuning, RefusesByKeyWhatContradictsOrCannotBe) {
  EXPECT_EQ(refusal(R"("autotuning": {"enabled": true, "metric_path": null, "arg_mappings": {"a": "--b"}})"), "accepted");
  EXPECT_EQ(refusal(R"("autotuning": {})"), "accepted");
  EXPECT_THAT(refusal(R"("autotuning": {"enabled": false})"),
              HasSubstr("autotuning.enabled: false contradicts `trivet tune`; remove it or use true"));
  EXPECT_THAT(
      refusal(R"("autotuning": {"metric_path": "m.json"})"),
      HasSubstr("autotuning.metric_path: \"m.json\" is not accepted: trials are measured here, not by a script that writes "
                "a file; remove it, each trial's metrics are in autotuning_results/NAME/metrics.json"));
  EXPECT_THAT(refusal(R"("autotuning": {"start_profile_step": 6})"),
              HasSubstr("autotuning.start_profile_step: 6 is later than end_profile_step 5; use at most 5"));
  EXPECT_THAT(refusal(R"("autotuning": {"min_train_micro_batch_size_per_gpu": 8, "max_train_micro_batch_size_per_gpu": 4})"),
              HasSubstr("autotuning.min_train_micro_batch_size_per_gpu: 8 is more than max_train_micro_batch_size_per_gpu 4"));
  EXPECT_THAT(refusal(R"("train_batch_size": 8, "autotuning": {"max_train_batch_size": 4})"),
              HasSubstr("autotuning.max_train_batch_size: 4 contradicts train_batch_size 8, which is kept; remove one"));
  EXPECT_THAT(refusal(R"("autotuning": {"results_dir": ""})"), HasSubstr("autotuning.results_dir: is empty; name a folder"));
}

TEST(TuningSpace, AnMpSizeThatNoMeshHasIsRefused) {
  EXPECT_THAT([] { enumerate(document(R"("train_batch_size": 8, "autotuning": {"mp_size": 3})"), 4); },
              ThrowsMessage<ConfigError>(HasSubstr(
                  "autotuning.mp_size: no mesh of 4 ranks has tensor x pipeline 3 and the axes that the config gives")));
}

TEST(ConfigDocument, IsWrittenWithTheOverridesAndWithoutTheSection) {
  const ConfigDocument given{
      "{ // why\n\"train_batch_size\": 8, \"autotuning\": {\"enabled\": true},}", "a.json", {"zero_optimization.stage=1"}};
  EXPECT_EQ(
      given.json({"zero_optimization.stage=2", "bf16.enabled=true"}),
      "{\n  \"train_batch_size\": 8,\n  \"zero_optimization\": {\n    \"stage\": 2\n  },\n  \"bf16\": {\n    \"enabled\": "
      "true\n  }\n}\n");
}

}  // namespace
}  // namespace trivet::autotune
