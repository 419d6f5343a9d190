// Runs `trivet bench` as a user does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/program.h"

namespace trivet::test {
namespace {

using testing::HasSubstr;

class Bench : public testing::Test {
 protected:
  Bench() {
    folder.write("gpt.json",
                 R"({"model": {"layers": 2, "hidden_size": 32, "heads": 2, "sequence_length": 32, "vocabulary": "bytes"},
                                 "train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}})");
  }
  Folder folder;
};

TEST_F(Bench, MeasuresAProfileAndPredictsAStepWithIt) {
  const Output before = folder.run("bench step gpt.json --ranks 2 --steps 2");
  EXPECT_EQ(before.code, 0) << before.errors;
  EXPECT_THAT(before.text, HasSubstr(" ms a step (median of 2; "));
  EXPECT_THAT(before.text, HasSubstr("not predicted: trivet_profile.json does not exist"));
  const Output kernels = folder.run("bench kernels --ranks 2 --seconds 1 --device cpu");
  EXPECT_EQ(kernels.code, 0) << kernels.errors;
  EXPECT_THAT(kernels.text, HasSubstr("2 rank(s), "));
  EXPECT_THAT(kernels.text, HasSubstr(" kernels, 0 operations -> trivet_profile.json"));
  const Output half = folder.run("bench step gpt.json --ranks 2 --steps 2");
  EXPECT_EQ(half.code, 0);
  EXPECT_THAT(half.text, HasSubstr("not predicted: trivet_profile.json: has no comm measured with 2 ranks"));
  EXPECT_EQ(folder.run("bench comm --ranks 2 --seconds 1 --device cpu").code, 0);
  const Output after = folder.run("bench step gpt.json --ranks 2 --steps 2");
  EXPECT_EQ(after.code, 0) << after.errors;
  EXPECT_THAT(after.text, HasSubstr("\npredicted "));
  EXPECT_THAT(after.text, HasSubstr("optimizer "));
  const Output plan = folder.run("plan gpt.json --world-size 2 --profile trivet_profile.json --html plan.html");
  EXPECT_EQ(plan.code, 0) << plan.errors;
  EXPECT_THAT(plan.text, HasSubstr("measured with 2 ranks on "));
  EXPECT_THAT(plan.text, HasSubstr("\n  optimizer "));
  EXPECT_THAT(folder.read("plan.html"), HasSubstr("measured with 2 ranks on "));
  EXPECT_THAT(plan.text, testing::Not(HasSubstr("\nprice ")));
  EXPECT_THAT(folder.run("plan gpt.json --world-size 2 --profile trivet_profile.json --price 2").text, HasSubstr("\nprice "));
  const Output json = folder.run("plan gpt.json --world-size 2 --profile trivet_profile.json --json");
  EXPECT_GT(nlohmann::json::parse(json.text)["step_seconds"].get<double>(), 0);
  EXPECT_EQ(folder.run("plan gpt.json --world-size 2 --profile trivet_profile.json --cluster h100").code, 2);
  EXPECT_THAT(folder.run("bench step gpt.json --steps 1").text,
              HasSubstr("not predicted: trivet_profile.json: was measured with 2 ranks, but the plan has 1;"));
}

// Each line of a kernel: kernel, variant, type, sizes, calls, us a call, ms a step, share, rate.
TEST_F(Bench, TimesEachKernelOfAStep) {
  const Output output =
      folder.run("bench step gpt.json --kernels --steps 2 --set train_micro_batch_size_per_gpu=2 --set device=cpu");
  ASSERT_EQ(output.code, 0) << output.errors;
  std::istringstream lines(output.text);
  double products = 0, milliseconds = 0, calls = 0, before = 1e30;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kernel, variant, type, sizes;
    double calls_here = 0, us = 0, ms = 0;
    if (!(words >> kernel >> variant >> type >> sizes >> calls_here >> us >> ms)) continue;
    if (kernel == "matmul") products += calls_here;
    milliseconds += ms, calls += calls_here;
    EXPECT_LE(ms, before) << line;
    before = ms;
  }
  // Two microbatches, two blocks of four products, and the head: each forward, for the input's gradient and for the weight's.
  EXPECT_EQ(products, 2 * 3 * (2 * 4 + 1)) << output.text;
  double sum = 0, count = 0, step = 0;
  ASSERT_EQ(std::sscanf(output.text.c_str() + output.text.rfind("kernels "), "kernels %lf ms in %lf calls, step %lf ms", &sum,
                        &count, &step),
            3);
  EXPECT_NEAR(milliseconds, sum, 0.001 * calls);
  EXPECT_EQ(calls, count);
  EXPECT_GE(step, sum / 2);
  EXPECT_THAT(output.text, HasSubstr(" TFLOP/s\n"));
  const Output offload = folder.run(
      "bench step gpt.json --kernels --set zero_optimization.stage=2 --set zero_optimization.offload_optimizer.device=cpu");
  EXPECT_EQ(offload.code, 2) << offload.text;
  EXPECT_THAT(offload.errors, HasSubstr("zero_optimization.offload_optimizer"));
}

TEST_F(Bench, RefusesWhatCannotBeMeasured) {
  const Output alone = folder.run("bench comm --ranks 1 --device cpu");
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.errors, HasSubstr("bench comm: one rank has nobody to communicate with"));
  for (const char* none : {"no-such-profile.json", "gpt.json"})
    EXPECT_EQ(folder.run(std::string("bench step gpt.json --steps 1 --profile ") + none).code, 2) << none;
  folder.write("trivet_profile.json", "{}");
  const Output profile = folder.run("bench kernels --ranks 2 --device cpu");
  EXPECT_EQ(profile.code, 2);
  EXPECT_THAT(profile.errors, HasSubstr("trivet_profile.json: is not a \"trivet hardware profile 2\""));
  const Output device = folder.run("bench kernels --device tpu");
  EXPECT_EQ(device.code, 2);
  EXPECT_THAT(device.errors, HasSubstr("--device"));
}

}  // namespace
}  // namespace trivet::test
