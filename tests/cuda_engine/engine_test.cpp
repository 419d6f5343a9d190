// The engine on GPUs (the tests' fake ones) keeps the same promises as on the CPU, and gives the CPU's losses within rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/file_system.h"
#include "engine/backend/cuda_module.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "tests/cuda/shim/shim.h"
#include "tests/equivalence/tiny_run.h"
#include "tests/support/temporary_folder.h"
#include "trainer/generation.h"

extern "C" const trivet::CudaModule* trivet_cuda_module();

namespace trivet::test {
namespace {

struct Grid {
  int data = 1, tensor = 1, pipeline = 1, stage = 0, context = 1;
  bool overlap = false, recompute = false;
};

class CudaEngine : public testing::TestWithParam<model::Type> {
 protected:
  CudaEngine() {
    use_cuda_module(*trivet_cuda_module());
    cuda_shim::Configuration four = cuda_shim::configuration();
    four.devices = 4;
    cuda_shim::configure(four);
  }

  static TinyRun on(DeviceChoice device, const Grid& grid, Config config) {
    config.device = device;
    config.parallel.tensor = grid.tensor;
    config.parallel.context = grid.context;
    config.parallel.pipeline = grid.pipeline;
    config.zero.stage = grid.stage;
    config.zero.overlap_comm = grid.overlap;
    config.recompute = grid.recompute ? Recompute::Full : Recompute::None;
    return {.ranks = grid.data * grid.tensor * grid.pipeline * grid.context, .steps = 2, .config = config};
  }
};

TEST_P(CudaEngine, TrainsAsTheCpuDoesWithinRounding) {
  const Config config = tiny_config(GetParam());
  const Trace cpu = run(on(DeviceChoice::Cpu, {}, config)), cuda = run(on(DeviceChoice::Cuda, {}, config));
  EXPECT_NE(difference(cpu, cuda), "");  // so it was another device
  EXPECT_EQ(difference_beyond_rounding(cpu, cuda), "");
  EXPECT_EQ(difference(cuda, run(on(DeviceChoice::Cuda, {}, config))), "");
}

// Biases of routers change on the device, be the optimizer's states there or on the host.
TEST_P(CudaEngine, ChangesBiasesOfRoutersAsTheCpuDoes) {
  if (GetParam() != model::Type::Llama) return;  // no other family has experts
  Config config = tiny_config(GetParam());
  config.model.experts = {.count = 4,
                          .per_token = 2,
                          .feed_forward_size = 8,
                          .shared_feed_forward_size = 8,
                          .shared_gate = true,
                          .correction_bias = true};
  const Trace cpu = run(on(DeviceChoice::Cpu, {}, config));
  for (const OffloadDevice states : {OffloadDevice::None, OffloadDevice::Cpu}) {
    config.zero.offload_optimizer.device = states;
    const Trace cuda = run(on(DeviceChoice::Cuda, {.data = 2, .stage = 3}, config));
    EXPECT_EQ(difference_beyond_rounding(cpu, cuda), "");
    for (const char* bias : {"blocks.0.mlp.router.correction_bias", "blocks.1.mlp.router.correction_bias"})
      EXPECT_EQ(cuda.weights.at(bias), cpu.weights.at(bias));
  }
}

// Four context ranks of the Llama model share its two key/value heads.
TEST_P(CudaEngine, ContextRanksTrainOnDocumentsAsTheCpuDoesWithinRounding) {
  Config config = tiny_config(GetParam());
  config.model.isolated_documents = true;
  const Grid grid = GetParam() == model::Type::Gpt ? Grid{.data = 2, .stage = 3, .context = 2} : Grid{.context = 4};
  const Trace cpu = run(on(DeviceChoice::Cpu, {}, config)), cuda = run(on(DeviceChoice::Cuda, grid, config));
  EXPECT_NE(difference(cpu, cuda), "");
  EXPECT_EQ(difference_beyond_rounding(cpu, cuda), "");
}

TEST_P(CudaEngine, ComparesPairsOfAnswersAsTheCpuDoesAndKeepsTheirBits) {
  Config config = tiny_config(GetParam());
  config.model.objective = model::Objective::Dpo;
  const Trace cpu = run(on(DeviceChoice::Cpu, {}, config)), cuda = run(on(DeviceChoice::Cuda, {}, config));
  EXPECT_NE(difference(cpu, cuda), "");
  EXPECT_EQ(difference_beyond_rounding(cpu, cuda), "");
  EXPECT_NE(cpu.rewards.at(0), cpu.rewards.at(1));
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(cuda.rewards.at(i), cpu.rewards.at(i), 1e-3 * std::abs(cpu.rewards.at(i)));
  config.reproducible = Reproducible::Layout;
  const Trace one = run(on(DeviceChoice::Cuda, {}, config));
  const bool gpt = GetParam() == model::Type::Gpt;
  EXPECT_EQ(difference(one, run(on(DeviceChoice::Cuda, gpt ? Grid{.data = 2, .stage = 3} : Grid{.tensor = 2}, config))), "");
}

TEST_P(CudaEngine, LayoutModeGivesTheSameBitsOnEveryLayout) {
  Config config = tiny_config(GetParam());
  config.reproducible = Reproducible::Layout;
  const Trace one = run(on(DeviceChoice::Cuda, {}, config));
  // Each model takes some of the layouts, because the fake device is slow.
  const std::vector<Grid> of_gpt{
      {.data = 2, .stage = 1, .overlap = true}, {.data = 2, .pipeline = 2, .stage = 2}, {.tensor = 2, .stage = 1}};
  const std::vector<Grid> of_llama{
      {.data = 2, .stage = 3, .overlap = true}, {.data = 3, .stage = 2, .recompute = true}, {.tensor = 2, .stage = 1}};
  for (const Grid& grid : GetParam() == model::Type::Gpt ? of_gpt : of_llama)
    EXPECT_EQ(difference(one, run(on(DeviceChoice::Cuda, grid, config))), "")
        << grid.data << " x " << grid.tensor << " x " << grid.pipeline << ", stage " << grid.stage;
}

TEST_P(CudaEngine, RunModeGivesTheSameBitsWhereverWorkOnlyMoves) {
  const Config config = tiny_config(GetParam());
  for (int stage : GetParam() == model::Type::Gpt ? std::vector{0, 3} : std::vector{2, 3}) {
    const Trace plain = run(on(DeviceChoice::Cuda, {.data = 2, .stage = stage}, config));
    EXPECT_EQ(difference(plain, run(on(DeviceChoice::Cuda, {.data = 2, .stage = stage, .overlap = true}, config))), "");
    EXPECT_EQ(
        difference(plain, run(on(DeviceChoice::Cuda, {.data = 2, .pipeline = 2, .stage = stage, .overlap = true}, config))),
        "");
  }
}

TEST_P(CudaEngine, GoesOnFromACheckpointOfTheOtherDevice) {
  const Config config = tiny_config(GetParam());
  const TemporaryFolder folder;
  for (const auto& [first, second] :
       {std::pair{DeviceChoice::Cuda, DeviceChoice::Cpu}, {DeviceChoice::Cpu, DeviceChoice::Cuda}}) {
    const std::string directory = folder.at(first == DeviceChoice::Cpu ? "cpu" : "cuda");
    TinyRun before = on(first, {.data = 2, .stage = 2}, config), after = on(second, {}, config), whole = on(second, {}, config);
    before.steps = 1, before.save_to = directory;
    after.load_from = directory;
    run(before);
    const Trace end = run(after), straight = run(whole);
    ASSERT_EQ(end.loss_bits.size(), 1);  // it continued from step 1
    // One step of Adam lies between, as in difference_beyond_rounding.
    const auto last_loss = [](const Trace& trace) { return std::bit_cast<float>(trace.loss_bits.back()); };
    EXPECT_NEAR(last_loss(end), last_loss(straight), 3e-4 * last_loss(straight));
    EXPECT_NEAR(end.evaluation, straight.evaluation, 3e-4 * straight.evaluation);
    EXPECT_NEAR(end.grad_norms.back(), straight.grad_norms.back(), 1e-3 * straight.grad_norms.back());
  }
}

// Tensor cores take heads of size 64 in bfloat16. A bfloat16 has 8 bits: the first loss differs by half a unit of the logits at
// most, relative to a loss of about 4.
TEST_P(CudaEngine, TensorCoresTrainAsTheCpuDoesAndKeepTheirBits) {
  Config config = tiny_config(GetParam());
  config.model.layers = 1;
  config.model.hidden_size = 128;
  config.model.heads = 2;
  config.model.key_value_heads = GetParam() == model::Type::Llama ? 1 : 0;
  config.bf16.enabled = true;
  config.reproducible = Reproducible::Layout;
  const Trace cpu = run(on(DeviceChoice::Cpu, {}, config)), cuda = run(on(DeviceChoice::Cuda, {}, config));
  const auto first_loss = [](const Trace& trace) { return std::bit_cast<float>(trace.loss_bits.front()); };
  EXPECT_NEAR(first_loss(cuda), first_loss(cpu), 0x1p-9 * first_loss(cpu));
  EXPECT_NEAR(cuda.grad_norms.front(), cpu.grad_norms.front(), 0x1p-6 * cpu.grad_norms.front());
  EXPECT_EQ(difference(cuda, run(on(DeviceChoice::Cuda, {.data = 2, .stage = 3, .overlap = true}, config))), "");
}

// Runs ranks as threads. `use` gets the engine after its first step, a function that runs another step, and the rank.
template <typename Use>
void with_engine(Config config, int ranks, const Use& use) {
  config.device = DeviceChoice::Cuda;
  comm::run_threads(ranks, [&](comm::World& world) {
    const bool images = config.model.type == model::Type::Sequential;
    model::Model model = model::build(images ? config.model : model::with_vocabulary(config.model, 61));
    Plan plan = make_plan(config, model, world.size());
    Engine engine(std::move(plan), std::move(model), world);
    const SampleSpec& sample = engine.model().sample;
    const int64_t samples = engine.plan().batch.micro_batch_size;
    const Shape input = sample.inputs_of(samples), targets = sample.targets_of(samples);
    const std::vector<int32_t> words(std::max(input.elements(), targets.elements()), images ? 0 : 7);  // 0 is 0.0f, too
    const std::vector<Microbatch> batches(
        engine.plan().batch.gradient_accumulation_steps,
        {{words.data(), sample.input_dtype, input}, {words.data(), DType::Int32, targets}, 0});
    const auto step = [&] { engine.train_batch(batches); };
    step();
    use(engine, step, world.rank());
  });
}

TEST_P(CudaEngine, AStepWaitsForTheDeviceOnceAndAllocatesNothing) {
  Config config = tiny_config(GetParam());
  config.gradient_clipping = 1;
  config.cuda_graph = CudaGraph::Off;
  with_engine(config, 1, [](Engine&, const auto& step, int) {
    step();
    const cuda_shim::Counts before = cuda_shim::counts();
    step();
    const cuda_shim::Counts after = cuda_shim::counts();
    EXPECT_GT(after.launches - before.launches, 50);
    EXPECT_EQ(after.host_waits - before.host_waits, 1);
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.events_made, before.events_made);
    EXPECT_EQ(after.streams_made, before.streams_made);
    EXPECT_EQ(after.pageable_copies, before.pageable_copies);
  });
}

// Instructions run one after another on the compute stream, gathers and reductions at the same time on streams of their own,
// all within the step and in the host's time. A step after that is not recorded.
TEST_P(CudaEngine, RecordsWhatTheDeviceDid) {
  Config config = tiny_config(GetParam());
  config.zero.stage = 3;
  config.zero.overlap_comm = true;
  config.zero.stage3_param_persistence_threshold = 0;
  const auto now = [] { return static_cast<double>(system_clock().now().count()) * 1e-6; };
  with_engine(config, 2, [&](Engine& engine, const auto& step, int rank) {
    using pipeline::Recording;
    const double before = now();
    engine.record(true);
    step();
    const std::vector<Recording> steps = engine.take_recordings();
    const double after = now();
    ASSERT_EQ(steps.size(), 1);
    const Recording& recording = steps.front();
    // The two clocks are read at different moments, and other processes may run in between.
    EXPECT_GE(recording.begin, before - 100);
    EXPECT_LE(recording.end, after + 100);
    size_t instructions = 0, works = 0;
    double free = recording.begin;
    for (const Recording::Span& span : recording.spans) {
      EXPECT_LE(span.start, span.end);
      EXPECT_GE(span.start, recording.begin);
      EXPECT_LE(span.end, recording.end);
      works += span.kind == Recording::Kind::Work && span.queue == pipeline::Queue::Gather;
      if (span.kind != Recording::Kind::Step) continue;
      EXPECT_EQ(span.at, static_cast<int>(instructions++));
      EXPECT_GE(span.start, free);
      free = span.end;
    }
    EXPECT_EQ(instructions, engine.plan().rank(rank).programs.train.size());
    EXPECT_GT(works, 0);
    engine.record(false);
    step();
    EXPECT_TRUE(engine.take_recordings().empty());
  });
}

// The CPU wrote the checkpoint; logits differ as losses do (difference_beyond_rounding).
TEST_P(CudaEngine, GeneratesFromTheCpusWeights) {
  const Config config = tiny_config(GetParam());
  const TemporaryFolder folder;
  TinyRun cpu = on(DeviceChoice::Cpu, {}, config);
  cpu.save_to = folder.path();
  run(cpu);
  const auto step = checkpoint::open_newest(real_file_system(), folder.path());
  const auto logits = [&](Device device, std::span<const int32_t> tokens) {
    return Generator(model::build(model::with_vocabulary(config.model, 61)), step, device, 1).next_logits(tokens);
  };
  const std::vector<int32_t> tokens{3, 1, 4, 1, 5};
  const std::vector<float> on_cpu = logits(Device::Cpu, tokens), on_cuda = logits(Device::Cuda, tokens);
  ASSERT_EQ(on_cuda.size(), 61);
  for (size_t i = 0; i < on_cpu.size(); ++i) EXPECT_NEAR(on_cuda[i], on_cpu[i], 1e-5) << i;
  EXPECT_NE(logits(Device::Cuda, {{3, 1}}), on_cuda);
  EXPECT_THAT(
      [&] {
        logits(Device::Cuda, {{3, 61}});
      },
      testing::ThrowsMessage<DataError>("generate: token 61 is not in the vocabulary of 61"));
}

// The caller may make each microbatch in the memory of the previous one.
TEST_P(CudaEngine, EvaluatesWhatTheHostHadWhenItWasAsked) {
  with_engine(tiny_config(GetParam()), 1, [](Engine& engine, const auto&, int) {
    constexpr int64_t kBatches = 4, kTokens = 16;
    std::vector<std::vector<int32_t>> all(kBatches, std::vector<int32_t>(kTokens));
    for (int64_t b = 0; b < kBatches; ++b)
      for (int64_t t = 0; t < kTokens; ++t) all[b][t] = static_cast<int32_t>((b * 17 + t * (b + 3)) % 61);
    const auto view_of = [](const std::vector<int32_t>& ids) {
      const ConstTensorView view{ids.data(), DType::Int32, {1, kTokens}};
      return Microbatch{view, view, 0};
    };
    std::vector<int32_t> one(kTokens);
    const double apart = engine.evaluate(kBatches, [&](int64_t b) { return view_of(all[b]); }).loss;
    const double reused = engine
                              .evaluate(kBatches,
                                        [&](int64_t b) {
                                          one = all[b];
                                          return view_of(one);
                                        })
                              .loss;
    double each = 0;
    for (int64_t b = 0; b < kBatches; ++b) each += engine.evaluate(1, [&](int64_t) { return view_of(all[b]); }).loss / kBatches;
    EXPECT_EQ(reused, apart);
    EXPECT_NEAR(apart, each, 1e-6);
  });
}

TEST_P(CudaEngine, MemoryIsWhatThePlanSays) {
  for (const int ranks : {1, 2, 4})
    for (const Reproducible mode : {Reproducible::Run, Reproducible::Layout}) {
      Config config = tiny_config(GetParam());
      config.zero.stage = ranks == 1 ? 0 : 2;
      config.parallel.pipeline = ranks == 4 ? 2 : 1;
      config.parallel.context = ranks > 1 && mode == Reproducible::Run ? 2 : 1;
      config.reproducible = mode;
      with_engine(config, ranks, [](Engine& engine, const auto& step, int rank) {
        step();
        const MemoryBytes planned = engine.plan().rank(rank).memory, measured = engine.measured_memory();
        for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
          EXPECT_EQ(measured[category], planned[category]) << name;
      });
    }
}

TEST(CudaMemory, OfTheCtcLossIsWhatThePlanSays) {
  use_cuda_module(*trivet_cuda_module());
  std::vector<int64_t> activations;
  for (const char* loss : {"ctc 1", "ctc 5"}) {
    Config config = tiny_config(model::Type::Sequential);
    config.model.network = {"columns", "dense 6", loss};
    with_engine(config, 1, [&](Engine& engine, const auto& step, int rank) {
      step();
      const MemoryBytes planned = engine.plan().rank(rank).memory, measured = engine.measured_memory();
      for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
        EXPECT_EQ(measured[category], planned[category]) << name;
      EXPECT_EQ(engine.activations().peak_bytes(), engine.plan().rank(rank).activation_arena_bytes);
      activations.push_back(planned[MemoryCategory::Activations]);
    });
  }
  EXPECT_GT(activations[1], activations[0]);
}

// The error comes before anything is allocated, and says what a rank would hold and what would fit.
TEST(CudaMemory, APlanThatDoesNotFitSaysWhatWould) {
  use_cuda_module(*trivet_cuda_module());
  Config config = tiny_config(model::Type::Gpt);
  config.model.layers = 8;
  config.batch.micro_batch_size = 12;
  config.device = DeviceChoice::Cuda;
  const int64_t needs = make_plan(config, model::build(model::with_vocabulary(config.model, 61)), 1).heaviest().memory.total();
  const cuda_shim::Configured small({.memory_bytes = needs - (int64_t{1} << 20)});
  EXPECT_THAT([&] { with_engine(config, 1, [](Engine&, const auto&, int) {}); },
              testing::ThrowsMessage<OutOfMemoryError>(testing::AllOf(
                  testing::StartsWith("rank 0: the plan does not fit into cuda:0 shim"), testing::HasSubstr("activations 0.0"),
                  testing::HasSubstr("what would fit: activation_checkpointing.mode \"full\" ("),
                  testing::HasSubstr("; or train_micro_batch_size_per_gpu 6 ("))));
  const cuda_shim::Configured tiny({.memory_bytes = int64_t{1} << 20});
  EXPECT_THAT([&] { with_engine(config, 1, [](Engine&, const auto&, int) {}); },
              testing::ThrowsMessage<OutOfMemoryError>(
                  testing::AllOf(testing::HasSubstr("the smallest config that was found needs"),
                                 testing::HasSubstr("; use more ranks, a smaller model or offload"))));
}

INSTANTIATE_TEST_SUITE_P(Models, CudaEngine, testing::Values(model::Type::Gpt, model::Type::Llama),
                         [](const auto& instance) { return std::string(name_of(instance.param)); });

}  // namespace
}  // namespace trivet::test
