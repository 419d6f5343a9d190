// Runs that read easy samples first: equal bits on every layout and after a restart, and what a run says.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "comm/world.h"
#include "engine/config/explain.h"
#include "engine/config/load.h"
#include "tests/support/temporary_folder.h"
#include "trainer/checkpoints.h"
#include "trainer/resume.h"
#include "trainer/run.h"
#include "trainer/trainer.h"

namespace trivet {
namespace {

class CurriculumRun : public testing::Test {
 protected:
  // Documents of 3 to 13 letters. Those with a higher number have rarer ones.
  CurriculumRun() {
    std::string lines;
    for (int i = 0; i < 60; ++i) {
      std::string text;
      for (int j = 0; j < 3 + i * 7 % 11; ++j) text += static_cast<char>('a' + (i * 5 + j * j * 3) % (2 + i / 3));
      lines += fmt::format("{{\"text\": \"{}\"}}\n", text);
    }
    folder.write("texts.jsonl", lines);
  }

  static constexpr const char* kSchedule = R"("schedule_config": {"total_curriculum_step": 8, "difficulty_step": 1}})";

  Config config(const std::string& metrics, const std::vector<std::string>& keys = {}) const {
    return parse_config(fmt::format(R"({{"model": {{"layers": 2, "hidden_size": 16, "heads": 2, "sequence_length": 12}},
            "data": {{"train": "{}", "packing": "single", "validation_fraction": 0}}, "reproducible": "layout", "training": {{"steps": 10}},
            "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "steps_per_print": 1000000,
            "checkpoint": {{"every_steps": 4}}, "optimizer": {{"params": {{"lr": 0.01}}}},
            "data_efficiency": {{"enabled": true, "data_sampling": {{"enabled": true, "curriculum_learning": {{"enabled": true,
            "curriculum_metrics": {{{}}}}}}}}}}})",
                                    folder.at("texts.jsonl"), metrics),
                        "easy.json", keys);
  }
  std::string rarity() const {
    return std::string(R"("vocabularyrarity": {"difficulty_type": "percentile", "clustering_type": "schedule_based",
        "min_difficulty": 20, "max_difficulty": 100, )") +
           kSchedule;
  }
  std::string length() const {
    return std::string(R"("seqlen": {"difficulty_type": "value", "clustering_type": "schedule_based", "min_difficulty": 5,
        "max_difficulty": 12, )") +
           kSchedule;
  }

  // What the loop of the trainer computes.
  static std::map<int64_t, uint32_t> train(const Config& config, int ranks, TrainOptions options = {}) {
    std::map<int64_t, uint32_t> loss_bits;
    options.config_text = explain_as_json(config);
    comm::run_threads(ranks, [&](comm::World& world) {
      trainer::Run run(config, world, options);
      trainer::Checkpoints checkpoints(run);
      trainer::resume_if_asked(run, checkpoints);
      while (run.steps_done() < run.total_steps()) {
        const int64_t step = run.steps_done() + 1;
        const StepResult result = run.engine.train_batch(run.batches.fill(step - 1));
        if (checkpoints.saves() && checkpoints.is_due()) checkpoints.save(checkpoint::OnFailure::End);
        if (world.rank() == 0) loss_bits[step] = std::bit_cast<uint32_t>(static_cast<float>(result.loss));
      }
      checkpoints.finish();
    });
    return loss_bits;
  }

  const test::TemporaryFolder folder;
};

// Against the tokens themselves: the input of a sample has as many as its targets, because each document ends with its last.
TEST_F(CurriculumRun, AStepReadsOnlySamplesUpToItsLength) {
  const Config easy = config(length());
  comm::run_threads(1, [&](comm::World& world) {
    trainer::Run run(easy, world, {});
    std::set<int64_t> lengths;
    for (int64_t step = 0; step < 10; ++step) {
      const int64_t most = std::min<int64_t>(12, 5 + (step + 1) * 7 / 8);
      for (const Microbatch& microbatch : run.batches.fill(step)) {
        const auto* const targets = static_cast<const int32_t*>(microbatch.targets.data);
        const int64_t tokens = std::count_if(targets, targets + 12, [](int32_t target) { return target >= 0; });
        EXPECT_LE(tokens, most) << "step " << step + 1;
        lengths.insert(tokens);
      }
    }
    EXPECT_EQ(*lengths.rbegin(), 12) << "long ones come in the end";
  });
}

TEST_F(CurriculumRun, HasTheSameBitsOnEveryLayoutAndAfterARestart) {
  const std::string both = length() + ", " + rarity();
  for (const std::string& metrics : {rarity(), both}) {
    const std::string saved = folder.at(fmt::format("steps-{}", metrics.size()));
    const auto one = train(config(metrics, {"checkpoint.directory=" + saved}), 1);
    ASSERT_EQ(one.size(), 10u);
    const std::vector<std::pair<int, std::vector<std::string>>> layouts{
        {2, {}},
        {2, {"zero_optimization.stage=3"}},
        {2, {"parallel.pipeline=2"}},
        {4, {"parallel.pipeline=2", "zero_optimization.stage=1"}}};
    for (const auto& [ranks, layout] : layouts) {
      EXPECT_EQ(train(config(metrics, layout), ranks), one) << ranks << " ranks";
      for (const int64_t step : {4, 8}) {
        auto expected = one;
        std::erase_if(expected, [&](const auto& loss) { return loss.first <= step; });
        EXPECT_EQ(train(config(metrics, layout), ranks,
                        {.resume = true, .resume_directory = fmt::format("{}/step-{:08}", saved, step)}),
                  expected)
            << "from step " << step << " on " << ranks << " ranks";
      }
    }
  }
}

TEST_F(CurriculumRun, ReadsOtherSamplesThanARunWithoutACurriculum) {
  const auto plain = train(config(rarity(), {"data_efficiency.enabled=false"}), 1), easy = train(config(rarity()), 1);
  EXPECT_NE(plain, easy);
  EXPECT_NE(train(config(length()), 1), easy);
  EXPECT_NE(train(config(rarity(), {"data.shuffle=false"}), 1), easy);
  EXPECT_NE(train(config(rarity(), {"training.seed=2"}), 1), easy);
}

TEST_F(CurriculumRun, AlsoCutsSamples) {
  const std::string cuts = std::string(R"(, "seqlen_truncate": {"min_difficulty": 2, "max_difficulty": 6, )") + kSchedule;
  const auto one = train(config(rarity() + cuts), 1);
  EXPECT_EQ(train(config(rarity() + cuts), 2), one);
  EXPECT_NE(train(config(rarity()), 1), one);
}

// Both answers of a pair make it difficult.
TEST_F(CurriculumRun, AlsoChoosesPairsOfAnswers) {
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += fmt::format("{{\"prompt\": \"{}=\", \"chosen\": \"{}\", \"rejected\": \"no\"}}\n", i % 10,
                         std::string(1 + i % 6, static_cast<char>('a' + i % 7)));
  folder.write("pairs.jsonl", lines);
  const auto losses = [&](const std::string& metrics, int ranks) {
    const std::string file = folder.at("metrics.jsonl");
    const Config pairs = config(metrics, {"data.train=" + folder.at("pairs.jsonl"), "data.packing=stream",
                                          "training.objective=dpo", "zero_optimization.stage=3"});
    comm::run_threads(ranks, [&](comm::World& world) { trivet::train(pairs, world, {.metrics_file = file}); });
    std::vector<std::string> bits;
    const std::string text = folder.read("metrics.jsonl"), key = "\"loss_bits\":";
    for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) bits.push_back(text.substr(at, 24));
    return bits;
  };
  testing::internal::CaptureStdout();
  const auto one = losses(length() + ", " + rarity(), 1), two = losses(length() + ", " + rarity(), 2),
             other = losses(length(), 1);
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(one.size(), 10u);
  EXPECT_EQ(one, two);
  EXPECT_NE(one, other);
}

TEST_F(CurriculumRun, SaysWhatItReads) {
  const Config easy = config(length() + ", " + rarity(), {"training.steps=1"});
  testing::internal::CaptureStdout();
  comm::run_threads(1, [&](comm::World& world) { trivet::train(easy, world, {}); });
  EXPECT_THAT(
      testing::internal::GetCapturedStdout(),
      testing::ContainsRegex("samples +seqlen at most 5 in step 1, 12 from step 8 on and vocabularyrarity percentile 30 "
                             "of 100 in step 1, 100 from step 8 on: [0-9]+ of 60 samples in step 1, all from step 8 on"));
  comm::run_threads(1, [&](comm::World& world) {
    const trainer::Run run(easy, world, {});
    EXPECT_THAT(to_text(run.engine.plan()), testing::HasSubstr("samples   easy ones first: seqlen at most 5 in step 1"));
  });
}

}  // namespace
}  // namespace trivet
