// Steps that are launched as one CUDA graph have the bits of steps whose kernels are launched one by one, whatever changes
// between steps, and take one call of the host.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cuda_module.h"
#include "engine/engine.h"
#include "tests/cuda/shim/shim.h"
#include "tests/equivalence/tiny_run.h"
#include "tests/support/optimizer_types.h"
#include "tests/support/temporary_folder.h"

extern "C" const trivet::CudaModule* trivet_cuda_module();

namespace trivet::test {
namespace {

// GPT with everything that may change from step to step: dropout, a dynamic loss scale (overflows skip steps, then it grows),
// clipping, and a schedule of momentum and learning rate.
Config gpt_in_float16() {
  Config config = tiny_config(model::Type::Gpt);
  config.fp16.enabled = true;
  config.fp16.initial_scale_power = 17;
  config.fp16.hysteresis = 1;
  config.fp16.loss_scale_window = 2;
  config.gradient_clipping = 0.5;
  config.scheduler.type = SchedulerType::OneCycle;
  config.scheduler.cycle_min_lr = 1e-3;
  config.scheduler.cycle_max_lr = 1e-2;
  config.scheduler.cycle_first_step_size = 3;
  return config;
}

Config llama_in_bfloat16() {
  Config config = tiny_config(model::Type::Llama);
  config.bf16.enabled = true;
  config.scheduler.type = SchedulerType::WarmupLR;
  config.scheduler.warmup_num_steps = 4;
  return config;
}

Config with_optimizer(OptimizerType type) {
  Config config = tiny_config(model::Type::Gpt);
  config.model.layers = type == OptimizerType::Muon ? 3 : 1;
  config.optimizer.type = type;
  config.optimizer.momentum = type == OptimizerType::Sgd ? 0.9 : config.optimizer.momentum;
  config.scheduler.type = SchedulerType::WarmupLR;
  config.scheduler.warmup_num_steps = 4;
  config.reproducible = Reproducible::Layout;
  return config;
}

TinyRun run_of(Config config, CudaGraph graph, int64_t steps = 7) {
  use_cuda_module(*trivet_cuda_module());
  config.device = DeviceChoice::Cuda;
  config.cuda_graph = graph;
  config.batch.train_batch_size = 2;
  return {.steps = steps, .config = config};
}

void expect_same_bits(const Config& config, int64_t steps = 7) {
  const cuda_shim::Counts before = cuda_shim::counts();
  const Trace plain = run(run_of(config, CudaGraph::Off, steps));
  EXPECT_EQ(cuda_shim::counts().graph_launches, before.graph_launches);
  const Trace graph = run(run_of(config, CudaGraph::On, steps));
  EXPECT_EQ(cuda_shim::counts().graph_launches - before.graph_launches, steps - 1);
  EXPECT_EQ(difference(plain, graph), "");
}

TEST(CudaGraphs, GptInFloat16HasTheBitsOfPlainSteps) { expect_same_bits(gpt_in_float16()); }
TEST(CudaGraphs, GptInFloat16AndLayoutModeHasTheBitsOfPlainSteps) {
  Config config = gpt_in_float16();
  config.reproducible = Reproducible::Layout;
  expect_same_bits(config);
}
TEST(CudaGraphs, LlamaInBfloat16HasTheBitsOfPlainSteps) { expect_same_bits(llama_in_bfloat16()); }
TEST(CudaGraphs, OverlapAndRecomputationHaveTheBitsOfPlainSteps) {
  Config config = llama_in_bfloat16();
  config.zero.stage = 2;
  config.zero.overlap_comm = true;
  config.recompute = Recompute::Full;
  expect_same_bits(config);
}

class CudaGraphsWithOptimizer : public testing::TestWithParam<OptimizerType> {};
TEST_P(CudaGraphsWithOptimizer, HasTheBitsOfPlainSteps) { expect_same_bits(with_optimizer(GetParam()), 4); }
INSTANTIATE_TEST_SUITE_P(Types, CudaGraphsWithOptimizer, testing::ValuesIn(test::optimizer_types()),
                         [](const auto& instance) { return std::string(name_of(instance.param)); });

TEST(CudaGraphs, GoOnFromACheckpoint) {
  const TemporaryFolder folder;
  TinyRun first = run_of(gpt_in_float16(), CudaGraph::On, 4), second = run_of(gpt_in_float16(), CudaGraph::On, 8);
  first.save_to = second.load_from = folder.path();
  const Trace begun = run(first), ended = run(second), whole = run(run_of(gpt_in_float16(), CudaGraph::On, 8));
  EXPECT_EQ(begun.loss_bits.size(), 4);
  EXPECT_EQ(ended.loss_bits.size(), 4);
  EXPECT_EQ(ended.weights, whole.weights);
}

// Calls use(engine, batches); batches(first_sample) makes the microbatches of a step. The test runs the steps.
template <typename Use>
void with_engine_of_one_rank(Config config, const Use& use) {
  const TinyRun run = run_of(std::move(config), CudaGraph::Auto);
  comm::run_threads(1, [&](comm::World& world) {
    model::Model model = model::build(model::with_vocabulary(run.config.model, 61));
    Plan plan = make_plan(run.config, model, 1);
    Engine engine(std::move(plan), std::move(model), world);
    std::vector<int32_t> tokens(run.config.model.sequence_length);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7 % 61);
    const ConstTensorView view{tokens.data(), DType::Int32, {1, run.config.model.sequence_length}};
    const int64_t count = engine.plan().batch.gradient_accumulation_steps;
    use(engine, [&](int64_t first_sample) {
      std::vector<Microbatch> batches;
      for (int64_t i = 0; i < count; ++i) batches.push_back({view, view, first_sample + i});
      return batches;
    });
  });
}

TEST(CudaGraphs, AStepIsOneLaunchAndOneWaitOfTheHost) {
  with_engine_of_one_rank(gpt_in_float16(), [](Engine& engine, const auto& batches) {
    for (int step = 0; step < 2; ++step) engine.train_batch(batches(0));
    const cuda_shim::Counts before = cuda_shim::counts();
    engine.train_batch(batches(0));
    const cuda_shim::Counts after = cuda_shim::counts();
    EXPECT_EQ(after.graph_launches - before.graph_launches, 1);
    EXPECT_EQ(after.launches, before.launches);
    EXPECT_EQ(after.host_waits - before.host_waits, 1);
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.events_made, before.events_made);
    EXPECT_EQ(after.streams_made, before.streams_made);
    EXPECT_EQ(after.pageable_copies, before.pageable_copies);
  });
}

// Shows that the configuration of the tests above does what it is for: one graph skips steps and uses different loss scales.
TEST(CudaGraphs, TheLossScaleFallsAndGrowsWithinOneGraph) {
  with_engine_of_one_rank(gpt_in_float16(), [](Engine& engine, const auto& batches) {
    const cuda_shim::Counts before = cuda_shim::counts();
    int skipped = 0, fell = 0, grew = 0;
    for (int step = 0; step < 7; ++step) {
      const double scale = engine.loss_scale();
      skipped += engine.train_batch(batches(0)).skipped;
      fell += engine.loss_scale() < scale;
      grew += engine.loss_scale() > scale;
    }
    EXPECT_GE(skipped, 2);
    EXPECT_LE(skipped, 5);
    EXPECT_GE(fell, 2);
    EXPECT_GE(grew, 1);
    EXPECT_EQ(cuda_shim::counts().graph_launches - before.graph_launches, 6);
  });
}

// Each of these comes between two launches of the graph, and the weights are those of a run without graphs.
TEST(CudaGraphs, EvaluationsHalfStepsAndOtherSamplesMayComeBetween) {
  const auto weights = [](CudaGraph graph) {
    std::vector<float> embedding;
    Config config = llama_in_bfloat16();
    with_engine_of_one_rank(config, [&](Engine& engine, const auto& batches) {
      const auto step = [&](int64_t first_sample) {
        if (graph == CudaGraph::On) return static_cast<void>(engine.train_batch(batches(first_sample)));
        engine.forward_backward(batches(first_sample));
        engine.step();
      };
      for (const int64_t first_sample : {0, 0, 0}) step(first_sample);
      engine.evaluate(batches(0));
      step(0);
      engine.forward_backward(batches(0));
      engine.step();
      for (const int64_t first_sample : {0, 40, 40, 40, 0}) step(first_sample);
      embedding = engine.weight(engine.model().names[0] + "." + engine.model().layers[0]->parameters()[0].name);
    });
    return embedding;
  };
  EXPECT_EQ(weights(CudaGraph::On), weights(CudaGraph::Off));
}

TEST(CudaGraphs, AStepThatIsRecordedIsNotOne) {
  with_engine_of_one_rank(llama_in_bfloat16(), [](Engine& engine, const auto& batches) {
    for (int step = 0; step < 3; ++step) engine.train_batch(batches(0));
    const cuda_shim::Counts before = cuda_shim::counts();
    engine.record(true);
    engine.train_batch(batches(0));
    EXPECT_EQ(cuda_shim::counts().graph_launches, before.graph_launches);
    EXPECT_EQ(engine.take_recordings().size(), 1);
    engine.record(false);
    engine.train_batch(batches(0));
    EXPECT_EQ(cuda_shim::counts().graph_launches - before.graph_launches, 1);
  });
}

}  // namespace
}  // namespace trivet::test
