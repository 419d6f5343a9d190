// `trivet bench` measures the kernels and operations that steps use, on all ranks, and gives back the cores that it takes.
#include "autotune/bench/bench.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <set>

#include "autotune/bench/kernel_timer.h"
#include "autotune/bench/run_steps.h"
#include "autotune/bench/shapes.h"
#include "tests/engine/small_plan.h"

namespace trivet::autotune {
namespace {

// A clock whose time the test sets.
class SaidClock final : public StreamClock {
 public:
  explicit SaidClock(const Moment& now) : now_(now) {}
  Moment now() override { return now_; }
  Moment turn(Moment, Moment) override { return now_; }
  double milliseconds(Moment moment) override { return static_cast<double>(moment) * 1e-3; }  // moments are microseconds

 private:
  const Moment& now_;
};

TEST(KernelTimer, TakesTheMeanOfCallsThatAreAlikeAndTheGapsBetween) {
  StreamClock::Moment now = 0;
  KernelTimer timer;
  const auto call = [&](const char* name, int64_t size, int64_t takes, int64_t then) {
    timer.begins();
    now += takes;
    timer.ended({.kernel = name, .sizes = {size}, .flops = 1, .bytes = 2});
    now += then;
  };
  call("copy", 1, 100, 0);  // not timed
  timer.start(std::make_unique<SaidClock>(now));
  call("copy", 8, 10, 4);
  call("copy", 8, 30, 6);
  call("copy", 8, 12, 1000);   // waiting
  call("copy", 8, 900, 1000);  // counts as 3 x 30
  call("copy", 9, 5, 0);
  const KernelTimer::Times times = timer.take();
  ASSERT_EQ(times.samples.size(), 2);
  EXPECT_EQ(times.samples[0].sizes[0], 8);
  EXPECT_NEAR(times.samples[0].seconds, 35.5e-6, 1e-12);
  EXPECT_NEAR(times.samples[1].seconds, 5e-6, 1e-12);
  EXPECT_NEAR(times.gap_seconds, 5e-6, 1e-12);
  call("copy", 1, 100, 0);  // no longer timed
  timer.start(std::make_unique<SaidClock>(now));
  EXPECT_TRUE(timer.take().samples.empty());
}

TEST(BenchShapes, AreSpreadOverWhatConfigsCanBe) {
  std::set<int64_t> hidden, layers;
  std::set<DType> types;
  std::set<model::Type> models;
  std::set<int> stages;
  std::set<int64_t> tensor, context;
  std::set<Reproducible> modes;
  std::set<OptimizerType> optimizers;
  int made = 0;
  for (int n = 0; made < 24; ++n)
    if (const auto config = bench_config(n, 2, DeviceChoice::Cpu)) {
      ++made;
      hidden.insert(config->model.hidden_size), layers.insert(config->model.layers), types.insert(config->model_dtype());
      models.insert(config->model.type), stages.insert(config->zero.stage), tensor.insert(config->parallel.tensor);
      context.insert(config->parallel.context);
      modes.insert(config->reproducible), optimizers.insert(config->optimizer.type);
      EXPECT_FALSE(config->zero.overlap_comm);
    }
  EXPECT_GE(hidden.size(), 10);
  EXPECT_EQ(layers.size(), 3);
  EXPECT_EQ(types.size(), 3);
  EXPECT_EQ(models.size(), 2);
  EXPECT_EQ(stages.size(), 4);
  EXPECT_EQ(tensor.size(), 2);
  EXPECT_EQ(context.size(), 2);
  EXPECT_EQ(modes.size(), 2);
  EXPECT_GE(optimizers.size(), 3);
  const auto again = bench_config(7, 2, DeviceChoice::Cpu), once = bench_config(7, 2, DeviceChoice::Cpu);
  ASSERT_EQ(again.has_value(), once.has_value());
  if (once) {
    EXPECT_EQ(once->model.hidden_size, again->model.hidden_size);
  }
}

TEST(Bench, TimesTheKernelsOfSteps) {
  MeasuredSetup setup;
  comm::run_threads(2, [&](comm::World& world) {
    MeasuredSetup mine = measure_kernels(world, {.threads = 1, .seconds = 0.001});
    if (world.rank() == 0) setup = std::move(mine);
  });
  EXPECT_EQ(setup.ranks, 2);
  EXPECT_EQ(setup.threads, 1);
  EXPECT_FALSE(setup.machine.empty());
  std::set<std::string> kernels;
  for (const KernelSample& sample : setup.kernels) {
    kernels.insert(sample.kernel);
    EXPECT_GT(sample.seconds, 0) << sample.kernel;
  }
  for (const char* kernel : {"matmul", "attention", "attention_backward", "embedding", "sum_of_squares", "copy_runs"})
    EXPECT_TRUE(kernels.contains(kernel)) << kernel;
  EXPECT_GT(setup.call_seconds, 0);
}

TEST(Bench, TimesOperationsOfEachGroupSize) {
  MeasuredSetup setup;
  comm::run_threads(4, [&](comm::World& world) {
    MeasuredSetup mine = measure_operations(world, {.threads = 1, .seconds = 0.01});
    if (world.rank() == 0) setup = std::move(mine);
  });
  std::set<int> sizes;
  std::set<comm::Operation> operations;
  for (const OperationSample& sample : setup.operations) {
    sizes.insert(sample.ranks);
    operations.insert(sample.operation);
    EXPECT_GT(sample.seconds, 0);
  }
  EXPECT_EQ(sizes, (std::set<int>{2, 4}));
  for (const auto operation : {comm::Operation::Send, comm::Operation::ReduceScatter, comm::Operation::AllToAll})
    EXPECT_TRUE(operations.contains(operation)) << name_of(operation);
  EXPECT_GE(setup.handover_seconds, 0);  // may be 0 on a busy machine
  const auto time = [&](int64_t bytes) {
    for (const OperationSample& sample : setup.operations)
      if (sample.operation == comm::Operation::AllReduce && sample.dtype == DType::Float32 && sample.ranks == 4 &&
          sample.reduce == comm::ReduceOp::Sum && sample.bytes == bytes)
        return sample.seconds;
    return 0.0;
  };
  EXPECT_GT(time(1 << 26), 10 * time(1 << 10));  // 65,536 times as many bytes
}

TEST(Bench, StepsAreAsLongAsTheSlowestRanks) {
  Config config = small_config();
  const Plan plan = plan_of(config, 2);
  std::vector<std::vector<double>> seconds(2);
  comm::run_threads(2, [&](comm::World& world) {
    seconds[world.rank()] = measure_step(world, plan, model_of(config), 3, {.threads = 1}).seconds;
  });
  ASSERT_EQ(seconds[0].size(), 3);
  EXPECT_EQ(seconds[0], seconds[1]);
  for (const double step : seconds[0]) EXPECT_GT(step, 0);
}

TEST(OwnCores, AreGivenBack) {
  const auto allowed = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    return CPU_COUNT(&set);
  };
  comm::run_threads(2, [&](comm::World& world) {
    const int before = allowed();
    {
      const OwnCores cores(world, true);
      EXPECT_EQ(allowed(), before % 2 == 0 ? before / 2 : before);
    }
    EXPECT_EQ(allowed(), before);
  });
}

}  // namespace
}  // namespace trivet::autotune
