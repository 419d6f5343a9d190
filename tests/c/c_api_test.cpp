// The functions of trivet/c.h, called from C (job.c) and with wrong arguments from here.
#include "tests/c/c_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string sgd(int stage) {
  return R"({"optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "gradient_clipping": 0, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": )" +
         std::to_string(stage) + R"(, "stage3_param_persistence_threshold": 0}})";
}

TEST(CApi, TrainsFromCAtEveryStage) {
  for (const int ranks : {1, 2, 3})
    for (const int stage : {0, 1, 2, 3})
      for (const int in_place : {0, 1}) {
        const std::string config = sgd(stage);
        job job{};
        job.config = config.c_str();
        job.steps = 4;
        job.in_place = in_place;
        ASSERT_EQ(trivet_run_threads(ranks, run_job, &job), TRIVET_OK) << trivet_last_error();
        for (int i = 0; i < A_ELEMENTS; ++i)
          EXPECT_NEAR(job.a[i], static_cast<float>(i + 1) - 4 * 0.5f * static_cast<float>(i + 1), 1e-5);  // 1/3 is rounded
        for (int i = 0; i < B_ELEMENTS; ++i) EXPECT_NEAR(job.b[i], -4 * 0.5f * static_cast<float>(i + 1), 1e-5);
        EXPECT_EQ(job.last.size, sizeof(trivet_step_report));
        EXPECT_EQ(job.last.loss, 1.0);
        EXPECT_EQ(job.last.learning_rate, 0.5);
        EXPECT_EQ(job.last.steps, 4);
        EXPECT_EQ(job.last.updates, 4);
        EXPECT_EQ(job.last.skipped, 0);
        EXPECT_NEAR(job.last.gradient_norm, std::sqrt(91.0 + 14.0), 1e-12);
        EXPECT_GT(job.memory.parameter_bytes, 0);
        EXPECT_GT(job.memory.gradient_bytes, 0);
        EXPECT_GT(job.memory.buffer_bytes, 0);
        EXPECT_EQ(job.memory.optimizer_bytes, 0);  // SGD without momentum has no states
      }
}

TEST(CApi, SavesAndLoads) {
  const TemporaryFolder folder;
  const std::string first_config = sgd(2), second_config = sgd(3);
  job first{}, second{};
  first.config = first_config.c_str();
  second.config = second_config.c_str();
  first.directory = second.directory = folder.path().c_str();
  first.steps = 3;
  first.save = second.load = first.load = 1;
  second.steps = 1;
  ASSERT_EQ(trivet_run_threads(2, run_job, &first), TRIVET_OK) << trivet_last_error();
  EXPECT_EQ(first.found, 0);
  ASSERT_EQ(trivet_run_threads(3, run_job, &second), TRIVET_OK) << trivet_last_error();
  EXPECT_EQ(second.found, 1);
  EXPECT_EQ(second.last.steps, 4);
  EXPECT_NEAR(second.a[5], 6 - 4 * 0.5f * 6, 1e-5);
}

TEST(CApi, AnErrorOfOneRankEndsTheJobAndKeepsItsText) {
  const auto body = [](trivet_world* world, void*) -> trivet_status {
    job job{};
    job.config = trivet_world_rank(world) == 1 ? R"({"optimizer": {"type": "Nonsense"}})" : "{}";
    return run_job(world, &job);
  };
  EXPECT_EQ(trivet_run_threads(2, body, nullptr), TRIVET_USAGE);
  EXPECT_THAT(trivet_last_error(), AllOf(HasSubstr("optimizer.type"), HasSubstr("\"Nonsense\" is not accepted")));
}

TEST(CApi, ErrorsBelongToTheirThread) {
  ASSERT_EQ(trivet_world_connect(nullptr), TRIVET_USAGE);
  EXPECT_THAT(trivet_last_error(), HasSubstr("world is NULL"));
  std::string other = "untouched";
  std::thread([&] { other = trivet_last_error(); }).join();
  EXPECT_EQ(other, "");
}

TEST(CApi, VersionsAreThoseOfTheHeader) { EXPECT_EQ(trivet_c_version(), TRIVET_C_MAJOR * 65536u + TRIVET_C_MINOR); }

TEST(CApi, AProcessAloneIsAWorldOfOne) {
  trivet_world* world = nullptr;
  ASSERT_EQ(trivet_world_connect(&world), TRIVET_OK) << trivet_last_error();
  EXPECT_EQ(trivet_world_rank(world), 0);
  EXPECT_EQ(trivet_world_size(world), 1);
  EXPECT_EQ(trivet_world_close(world), TRIVET_OK);
  trivet_world_destroy(world);
}

// ---- wrong arguments

// Each call with NULL in one of its places.
TEST(CApi, RefusesNull) {
  const auto refused = [](trivet_status status, const char* text) {
    EXPECT_EQ(status, TRIVET_USAGE);
    EXPECT_THAT(trivet_last_error(), HasSubstr(text));
  };
  int32_t number = 0;
  void* data = nullptr;
  const void* weight = nullptr;
  trivet_memory memory{};
  memory.size = sizeof memory;
  const float value = 1;
  refused(trivet_run_threads(2, nullptr, nullptr), "body is NULL");
  refused(trivet_world_close(nullptr), "world is NULL");
  refused(trivet_optimizer_unit_of(nullptr, 0, &number), "optimizer is NULL");
  refused(trivet_optimizer_weight(nullptr, 0, &weight), "optimizer is NULL");
  refused(trivet_optimizer_prefetch(nullptr, 0), "optimizer is NULL");
  refused(trivet_optimizer_gather(nullptr, 0), "optimizer is NULL");
  refused(trivet_optimizer_release(nullptr, 0), "optimizer is NULL");
  refused(trivet_optimizer_add_gradient(nullptr, 0, TRIVET_FLOAT32, &value), "optimizer is NULL");
  refused(trivet_optimizer_add_gradient(nullptr, 0, TRIVET_FLOAT32, nullptr), "data is NULL");
  refused(trivet_optimizer_gradient(nullptr, 0, &number, &data, &number), "optimizer is NULL");
  refused(trivet_optimizer_gradient(nullptr, 0, nullptr, &data, &number), "dtype is NULL");
  refused(trivet_optimizer_gradient_ready(nullptr, 0), "optimizer is NULL");
  refused(trivet_optimizer_end_microbatch(nullptr, 0, 1), "optimizer is NULL");
  refused(trivet_optimizer_step(nullptr, nullptr), "optimizer is NULL");
  refused(trivet_optimizer_memory(nullptr, &memory), "optimizer is NULL");
  refused(trivet_optimizer_save(nullptr, "x"), "optimizer is NULL");
  refused(trivet_optimizer_load(nullptr, "x", &number), "optimizer is NULL");
  EXPECT_EQ(trivet_world_rank(nullptr), -1);
  EXPECT_EQ(trivet_world_size(nullptr), -1);
  EXPECT_EQ(trivet_optimizer_units(nullptr), -1);
  EXPECT_EQ(trivet_optimizer_dtype(nullptr), -1);
  EXPECT_EQ(trivet_optimizer_steps(nullptr), -1);
  EXPECT_TRUE(std::isnan(trivet_optimizer_loss_scale(nullptr)));
  EXPECT_TRUE(std::isnan(trivet_optimizer_learning_rate(nullptr)));
  trivet_world_destroy(nullptr);
  trivet_optimizer_destroy(nullptr);
}

constexpr int64_t kShape[] = {2};

trivet_parameter parameter_named(const char* name) {
  trivet_parameter parameter{};
  parameter.size = sizeof parameter;
  parameter.name = name;
  parameter.shape = kShape;
  parameter.dims = 1;
  return parameter;
}

class CApiOfOneRank : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(trivet_world_connect(&world), TRIVET_OK) << trivet_last_error(); }
  void TearDown() override {
    trivet_optimizer_destroy(optimizer);
    EXPECT_EQ(trivet_world_close(world), TRIVET_OK);
    trivet_world_destroy(world);
  }
  trivet_status create(const std::vector<trivet_parameter>& parameters, const char* config = "{}",
                       const trivet_options* options = nullptr) {
    return trivet_optimizer_create(world, config, parameters.data(), static_cast<int64_t>(parameters.size()), options,
                                   &optimizer);
  }
  void expect_refused(const std::vector<trivet_parameter>& parameters, const char* text, const char* config = "{}",
                      const trivet_options* options = nullptr) {
    EXPECT_EQ(create(parameters, config, options), TRIVET_USAGE);
    EXPECT_THAT(trivet_last_error(), HasSubstr(text));
    EXPECT_EQ(optimizer, nullptr);
  }

  trivet_world* world = nullptr;
  trivet_optimizer* optimizer = nullptr;
};

TEST_F(CApiOfOneRank, RefusesParametersThatMakeNoSense) {
  trivet_parameter changed = parameter_named("a");
  expect_refused({}, "with 0 parameters");
  changed.size = 8;
  expect_refused({changed}, "size of a trivet_parameter is 8; set it to sizeof(trivet_parameter), at least 48");
  for (const size_t size : {sizeof(trivet_parameter) + 1, ~size_t{7}}) {  // such as a member that nobody set
    changed.size = size;
    expect_refused({changed}, "set it to sizeof(trivet_parameter)");
  }
  changed = parameter_named(nullptr);
  expect_refused({changed}, "trivet_parameter::name is NULL");
  changed = parameter_named("a");
  changed.dims = 7;
  expect_refused({changed}, "parameter \"a\" has 7 dims; at most 6");
  changed.dims = 1;
  changed.shape = nullptr;
  expect_refused({changed}, "trivet_parameter::shape is NULL");
  changed.shape = kShape;
  changed.flags = 16;
  expect_refused({changed}, "parameter \"a\" has unknown flags 16");
  changed.flags = 0;
  const std::vector<float> wrong{1, std::numeric_limits<float>::quiet_NaN()};
  changed.values = wrong.data();
  expect_refused({parameter_named("z"), changed}, "parameter \"a\": values[1] is nan; initial values must be finite");
  expect_refused({parameter_named("a"), parameter_named("a")}, "two parameters are named \"a\"");
  expect_refused({parameter_named("a")}, "config_json", "nonsense");
  trivet_options options{};
  expect_refused({parameter_named("a")}, "size of a trivet_options is 0", "{}", &options);
  options.size = sizeof options;
  options.bucket_elements = -1;
  expect_refused({parameter_named("a")}, "must not be negative", "{}", &options);
  options.bucket_elements = 0;
  options.reserved = 1;
  expect_refused({parameter_named("a")}, "reserved must be 0", "{}", &options);
}

TEST_F(CApiOfOneRank, TellsWhatItHolds) {
  trivet_parameter scalar = parameter_named("scalar");
  scalar.dims = 0;
  scalar.shape = nullptr;
  trivet_options options{};
  options.size = sizeof options;
  options.bucket_elements = 1;
  ASSERT_EQ(create({parameter_named("a"), scalar}, R"({"bf16": {"enabled": true}})", &options), TRIVET_OK)
      << trivet_last_error();
  EXPECT_EQ(trivet_optimizer_units(optimizer), 2);  // both are larger than a bucket, or fill it
  EXPECT_EQ(trivet_optimizer_dtype(optimizer), TRIVET_BFLOAT16);
  EXPECT_EQ(trivet_optimizer_loss_scale(optimizer), 1);
  EXPECT_EQ(trivet_optimizer_learning_rate(optimizer), 1e-3);
  EXPECT_EQ(trivet_optimizer_steps(optimizer), 0);
  int32_t unit = -1;
  EXPECT_EQ(trivet_optimizer_unit_of(optimizer, 1, &unit), TRIVET_OK);
  EXPECT_EQ(unit, 1);
}

TEST_F(CApiOfOneRank, AFailedCallLeavesItsResultsAndTheOptimizerAsTheyWere) {
  ASSERT_EQ(create({parameter_named("a")}), TRIVET_OK) << trivet_last_error();
  int32_t unit = 77;
  EXPECT_EQ(trivet_optimizer_unit_of(optimizer, 1, &unit), TRIVET_USAGE);
  EXPECT_EQ(unit, 77);
  EXPECT_EQ(trivet_optimizer_unit_of(optimizer, -1, &unit), TRIVET_USAGE);
  EXPECT_EQ(trivet_optimizer_unit_of(optimizer, int64_t{1} << 32, &unit), TRIVET_USAGE);
  EXPECT_EQ(unit, 77);
  EXPECT_EQ(trivet_optimizer_weight(optimizer, 0, nullptr), TRIVET_USAGE);
  EXPECT_THAT(trivet_last_error(), HasSubstr("data is NULL"));
  const float gradient[] = {1, 1};
  EXPECT_EQ(trivet_optimizer_add_gradient(optimizer, 0, 4, gradient), TRIVET_USAGE);
  EXPECT_THAT(trivet_last_error(), HasSubstr("dtype 4 is not accepted"));
  trivet_step_report report{};
  EXPECT_EQ(trivet_optimizer_step(optimizer, &report), TRIVET_USAGE);
  EXPECT_THAT(trivet_last_error(), HasSubstr("size of a trivet_step_report is 0"));
  report.size = sizeof report;
  EXPECT_EQ(trivet_optimizer_step(optimizer, &report), TRIVET_USAGE);
  EXPECT_THAT(trivet_last_error(), HasSubstr("step() after 0 of 1 microbatches"));
  EXPECT_EQ(report.steps, 0);
  EXPECT_EQ(trivet_optimizer_end_microbatch(optimizer, 1, -1), TRIVET_USAGE);
  EXPECT_THAT(trivet_last_error(), HasSubstr("a count of -1 losses"));
  trivet_memory memory{};
  EXPECT_EQ(trivet_optimizer_memory(optimizer, &memory), TRIVET_USAGE);
  EXPECT_EQ(trivet_optimizer_add_gradient(optimizer, 0, TRIVET_FLOAT32, gradient), TRIVET_OK);
  EXPECT_EQ(trivet_optimizer_end_microbatch(optimizer, 1, 1), TRIVET_OK);
  EXPECT_EQ(trivet_optimizer_step(optimizer, &report), TRIVET_OK);
  EXPECT_EQ(report.steps, 1);
}

TEST_F(CApiOfOneRank, NamesACheckpointThatDoesNotFit) {
  const TemporaryFolder folder;
  ASSERT_EQ(create({parameter_named("a")}), TRIVET_OK) << trivet_last_error();
  ASSERT_EQ(trivet_optimizer_save(optimizer, folder.path().c_str()), TRIVET_OK) << trivet_last_error();
  trivet_optimizer_destroy(optimizer);
  optimizer = nullptr;
  ASSERT_EQ(create({parameter_named("b")}), TRIVET_OK) << trivet_last_error();
  int32_t found = 7;
  EXPECT_EQ(trivet_optimizer_load(optimizer, folder.path().c_str(), &found), TRIVET_USAGE);
  EXPECT_THAT(trivet_last_error(), HasSubstr("\"b\""));
  EXPECT_EQ(found, 7);
}

TEST(CApi, AWorldOfRunThreadsIsNotClosedByItsRank) {
  const auto body = [](trivet_world* world, void*) -> trivet_status { return trivet_world_close(world); };
  EXPECT_EQ(trivet_run_threads(1, body, nullptr), TRIVET_USAGE);
  EXPECT_THAT(trivet_last_error(), HasSubstr("trivet_world_close of a world of trivet_run_threads"));
}

TEST(CApi, AStatusThatARankMadeUpHasAText) {
  const auto body = [](trivet_world*, void*) -> trivet_status { return 77; };
  EXPECT_EQ(trivet_run_threads(1, body, nullptr), 77);
  EXPECT_THAT(trivet_last_error(), HasSubstr("the function of trivet_run_threads returned 77"));
}

TEST(CApi, EveryFunctionHasTheSignatureOfVersionOne) { EXPECT_EQ(kSignatures.c_version, &trivet_c_version); }

}  // namespace
}  // namespace trivet::test
