// Tests offload to host memory and to files, from a device with memory of its own (the tests' fake one).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <tuple>
#include <utility>

#include "comm/world.h"
#include "engine/backend/cuda_module.h"
#include "engine/engine.h"
#include "tests/cuda/shim/shim.h"
#include "tests/equivalence/tiny_run.h"
#include "tests/support/temporary_folder.h"

extern "C" const trivet::CudaModule* trivet_cuda_module();

namespace trivet::test {
namespace {

// What is offloaded, and where to.
struct Offload {
  OffloadDevice optimizer = OffloadDevice::None, weights = OffloadDevice::None;
  double ratio = 1;
  int64_t weights_in_memory = 0;
};
constexpr OffloadDevice kNone = OffloadDevice::None, kHost = OffloadDevice::Cpu, kFile = OffloadDevice::Nvme;

cuda_shim::Configuration four_devices(bool is_protected = false) {
  cuda_shim::Configuration four = cuda_shim::configuration();
  four.devices = 4;
  four.protect = is_protected;
  return four;
}

class CudaOffload : public testing::Test {
 protected:
  CudaOffload() { use_cuda_module(*trivet_cuda_module()); }

  static Config config_of(int stage, bool bf16, OptimizerType type = OptimizerType::AdamW) {
    Config config = tiny_config(model::Type::Gpt);
    config.device = DeviceChoice::Cuda;
    config.batch.train_batch_size = 4;
    config.zero.stage = stage;
    config.zero.overlap_comm = stage == 3;
    config.zero.stage3_max_reuse_distance = 0;
    config.bf16.enabled = bf16;
    config.optimizer.type = type;
    config.optimizer.momentum = 0.9;
    return config;
  }
  // Sub-groups are far smaller than a block, and their size is not a multiple of any alignment.
  Config offloaded(Config config, const Offload& offload) const {
    ZeroConfig& zero = config.zero;
    zero.sub_group_size = 3000;
    zero.offload_optimizer.device = offload.optimizer;
    zero.offload_optimizer.ratio = offload.ratio;
    zero.offload_optimizer.nvme_path = zero.offload_param.nvme_path = folder_.path();
    zero.offload_optimizer.buffer_count = 12;
    zero.offload_optimizer.pipeline_read = zero.offload_optimizer.pipeline_write = offload.ratio < 1;
    zero.offload_param.device = offload.weights;
    zero.offload_param.max_in_cpu = offload.weights_in_memory;
    zero.offload_param.buffer_size = 5000;
    zero.offload_param.buffer_count = 3;
    return config;
  }
  std::string path(const std::string& name) const { return folder_.at(name); }

  cuda_shim::Configured devices_{four_devices()};
  const TemporaryFolder folder_;
};

std::string words(const Offload& offload) {
  return fmt::format("optimizer {}, weights {}, ratio {}, {} in memory", name_of(offload.optimizer), name_of(offload.weights),
                     offload.ratio, offload.weights_in_memory);
}

// The parameters are ranks, ZeRO stage and bf16.
class CudaOffloadOfStates : public CudaOffload, public testing::WithParamInterface<std::tuple<int, int, bool>> {};

// Kernels of the host and of the device give the same bits, so offload changes none.
TEST_P(CudaOffloadOfStates, ChangesNoBit) {
  const auto& [ranks, stage, bf16] = GetParam();
  const Config config = config_of(stage, bf16);
  const Trace plain = run({.ranks = ranks, .steps = 2, .config = config});
  for (const OffloadDevice where : {kHost, kFile})
    EXPECT_EQ(difference(plain, run({.ranks = ranks, .steps = 2, .config = offloaded(config, {.optimizer = where})})), "")
        << name_of(where);
}

INSTANTIATE_TEST_SUITE_P(Runs, CudaOffloadOfStates,
                         testing::Values(std::tuple{1, 1, true}, std::tuple{2, 2, true}, std::tuple{2, 3, false}));

class CudaOffloadOfWeights : public CudaOffload, public testing::WithParamInterface<Offload> {};

TEST_P(CudaOffloadOfWeights, ChangesNoBit) {
  for (const auto& [ranks, bf16] : {std::pair{1, false}, {2, true}}) {
    const Config config = config_of(3, bf16);
    const Trace plain = run({.ranks = ranks, .steps = 2, .config = config});
    EXPECT_EQ(difference(plain, run({.ranks = ranks, .steps = 2, .config = offloaded(config, GetParam())})), "")
        << ranks << " ranks: " << words(GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, CudaOffloadOfWeights,
                         testing::Values(Offload{kNone, kHost}, Offload{kHost, kHost}, Offload{kHost, kHost, 0.5},
                                         Offload{kFile, kHost}, Offload{kNone, kFile}, Offload{kFile, kFile},
                                         Offload{kFile, kFile, 0.5, 5000}, Offload{kHost, kFile}));

class CudaOffloadOfEveryOptimizer : public CudaOffload, public testing::WithParamInterface<std::tuple<OptimizerType, bool>> {};

TEST_P(CudaOffloadOfEveryOptimizer, ChangesNoBit) {
  const auto& [type, bf16] = GetParam();
  const Config config = config_of(3, bf16, type);
  const Trace plain = run({.ranks = 2, .steps = 2, .config = config});
  for (const Offload& offload : {Offload{kHost}, {kHost, kHost, 0.5}, {kFile, kFile}, {kNone, kHost}})
    EXPECT_EQ(difference(plain, run({.ranks = 2, .steps = 2, .config = offloaded(config, offload)})), "") << words(offload);
}

INSTANTIATE_TEST_SUITE_P(Types, CudaOffloadOfEveryOptimizer,
                         testing::Combine(testing::Values(OptimizerType::Sgd, OptimizerType::Lion, OptimizerType::Lamb,
                                                          OptimizerType::Adagrad, OptimizerType::Muon),
                                          testing::Bool()),
                         [](const auto& which) {
                           return std::string(name_of(std::get<0>(which.param))) + (std::get<1>(which.param) ? "_bf16" : "");
                         });

// The parameters are pipeline ranks, tensor ranks and the optimizer.
class CudaOffloadOnAxes : public CudaOffload, public testing::WithParamInterface<std::tuple<int, int, OptimizerType>> {};

// Covers tied tables on two stages, split matrices, frozen layers, recomputation, and integers as gradients.
TEST_P(CudaOffloadOnAxes, ChangesNoBit) {
  const auto& [pipeline, tensor, type] = GetParam();
  Config config = config_of(3, true, type);
  config.parallel.pipeline = pipeline;
  config.parallel.tensor = tensor;
  config.recompute = Recompute::Full;
  config.reproducible = tensor > 1 ? Reproducible::Layout : Reproducible::Run;
  const TinyRun plain{.ranks = 2 * pipeline * tensor, .steps = 2, .frozen = {"blocks.1"}, .config = config};
  const Trace expected = run(plain);
  for (const OffloadDevice where : {kHost, kFile}) {
    TinyRun elsewhere = plain;
    elsewhere.config = offloaded(config, {where, where});
    EXPECT_EQ(difference(expected, run(elsewhere)), "") << name_of(where);
  }
}

INSTANTIATE_TEST_SUITE_P(Axes, CudaOffloadOnAxes,
                         testing::Values(std::tuple{2, 1, OptimizerType::AdamW}, std::tuple{1, 2, OptimizerType::Lamb}));

constexpr ScheduleKind k1F1B = ScheduleKind::OneForwardOneBackward;

// Axes, schedules and kinds of recomputation with which inputs of blocks wait in host memory.
struct InputsCase {
  int pipeline, tensor, context, data, stage;
  ScheduleKind schedule = k1F1B;
  bool layout = false, sequence_parallel = false;
  Offload rest = {};  // what else is offloaded
};

class CudaOffloadOfInputs : public CudaOffload, public testing::WithParamInterface<InputsCase> {};

TEST_P(CudaOffloadOfInputs, ChangesNoBit) {
  const InputsCase& c = GetParam();
  Config config = config_of(c.stage, !c.layout);
  config.model.layers = 7;
  config.parallel.pipeline = c.pipeline;
  config.parallel.tensor = c.tensor;
  config.parallel.context = c.context;
  config.parallel.context_grain = c.layout ? 2 : 1;
  config.parallel.sequence_parallel = c.sequence_parallel;
  config.pipeline.schedule = c.schedule;
  config.reproducible = c.layout ? Reproducible::Layout : Reproducible::Run;
  config.recompute = Recompute::Full;
  config.partition_activations = c.data == 1;
  config.recompute_every = c.data;
  config.audit.every_steps = c.layout ? 1 : 0;
  TinyRun it{.ranks = c.pipeline * c.tensor * c.context * c.data, .steps = 2, .config = config};
  const Trace plain = run(it);
  std::vector<int64_t> moved(it.ranks);
  it.before_step = [&](Engine& engine, int rank, int64_t) { moved[rank] = engine.offloaded_bytes(); };
  it.config = offloaded(config, c.rest);
  it.config.cpu_checkpointing = true;
  EXPECT_EQ(difference(plain, run(it)), "");
  EXPECT_GT(*std::ranges::max_element(moved), 0);
}

// "pipeline2_data2_zero3_interleaved"
std::string name_of_inputs(const testing::TestParamInfo<InputsCase>& which) {
  const InputsCase& c = which.param;
  std::string name;
  const auto add = [&](bool holds, const std::string& part) { name += holds ? (name.empty() ? "" : "_") + part : ""; };
  add(c.pipeline > 1, fmt::format("pipeline{}", c.pipeline));
  add(c.tensor > 1, fmt::format("tensor{}", c.tensor));
  add(c.context > 1, fmt::format("context{}", c.context));
  add(c.data > 1, fmt::format("data{}", c.data));
  add(true, fmt::format("zero{}", c.stage));
  add(c.pipeline > 1, std::string(name_of(c.schedule)));
  add(c.layout, "layout");
  add(c.sequence_parallel, "sequence_parallel");
  add(c.rest.weights != kNone, "weights_too");
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Runs, CudaOffloadOfInputs,
    testing::Values(InputsCase{1, 1, 1, 1, 0}, InputsCase{1, 1, 1, 2, 3, k1F1B, false, false, {kHost, kHost}},
                    InputsCase{1, 2, 1, 2, 2}, InputsCase{1, 2, 2, 1, 1}, InputsCase{1, 2, 1, 1, 1, k1F1B, true},
                    InputsCase{1, 1, 2, 2, 3, k1F1B, true}, InputsCase{1, 2, 1, 1, 0, k1F1B, false, true},
                    InputsCase{2, 1, 1, 1, 0, ScheduleKind::GPipe}, InputsCase{2, 1, 1, 2, 1},
                    InputsCase{2, 1, 1, 2, 3, ScheduleKind::Interleaved}, InputsCase{2, 2, 1, 1, 2, ScheduleKind::ZeroBubbleH1},
                    InputsCase{2, 1, 2, 1, 1, ScheduleKind::ZeroBubble2p},
                    InputsCase{2, 1, 1, 1, 3, ScheduleKind::ZeroBubbleV}),
    name_of_inputs);

// A step that is skipped leaves weights and states as they are, wherever they are.
TEST_F(CudaOffload, SkippedStepsChangeNothing) {
  Config config = config_of(3, false);
  config.fp16.enabled = true;
  config.fp16.initial_scale_power = 19;
  config.fp16.hysteresis = 1;
  const Trace plain = run({.ranks = 2, .steps = 6, .config = config});
  const auto is_skipped = [](double norm) { return !std::isfinite(norm); };
  EXPECT_TRUE(std::any_of(plain.grad_norms.begin(), plain.grad_norms.end(), is_skipped));
  EXPECT_FALSE(std::all_of(plain.grad_norms.begin(), plain.grad_norms.end(), is_skipped));
  for (const Offload& offload : {Offload{kHost, kHost}, {kNone, kHost}}) {
    const Trace elsewhere = run({.ranks = 2, .steps = 6, .config = offloaded(config, offload)});
    EXPECT_EQ(plain.loss_bits, elsewhere.loss_bits) << words(offload);
    EXPECT_EQ(plain.weights, elsewhere.weights) << words(offload);
  }
}

// A run with one placement writes a checkpoint, and a run with the next placement continues from it.
TEST_F(CudaOffload, CheckpointsContinueWithAndWithoutIt) {
  const Config config = config_of(3, true, OptimizerType::Lamb);
  const Trace plain = run({.ranks = 2, .steps = 2, .config = config});
  const std::vector<Offload> placements{{}, {kHost, kHost, 0.5}, {kFile, kFile}, {kNone, kHost}};
  for (size_t i = 0; i < placements.size(); ++i) {
    const Offload &first = placements[i], &second = placements[(i + 1) % placements.size()];
    const std::string saved = path(fmt::format("saved-{}", i));
    run({.ranks = 2, .steps = 1, .save_to = saved, .config = offloaded(config, first)});
    const Trace rest = run({.ranks = 2, .steps = 2, .load_from = saved, .config = offloaded(config, second)});
    EXPECT_EQ(plain.weights, rest.weights) << words(first) << " to " << words(second);
  }
}

TEST_F(CudaOffload, CheckpointsContinueOnTheOtherDevice) {
  const Config config = config_of(3, true), elsewhere = offloaded(config, {kHost, kHost});
  Config cpu = config;
  cpu.device = DeviceChoice::Cpu;
  const auto there_and_on = [&](const Config& first, const Config& second) {
    const std::string saved = path("saved-there");
    std::filesystem::remove_all(saved);
    run({.ranks = 2, .steps = 1, .save_to = saved, .config = first});
    return run({.ranks = 2, .steps = 2, .load_from = saved, .config = second});
  };
  EXPECT_EQ(there_and_on(config, cpu), there_and_on(elsewhere, cpu));
  EXPECT_EQ(there_and_on(cpu, config), there_and_on(cpu, elsewhere));
}

// The fake device protects its memory: host code that touched it would crash.
TEST_F(CudaOffload, HostCodeTouchesNoMemoryOfTheDevice) {
  const cuda_shim::Configured devices(four_devices(true));
  for (const Offload& offload : {Offload{kHost, kHost, 0.5}, {kNone, kFile}}) {
    const Config config = offloaded(config_of(3, true, OptimizerType::Muon), offload);
    EXPECT_NO_THROW(run({.ranks = 1, .steps = 1, .save_to = path("saved"), .config = config}));
    EXPECT_NO_THROW(run({.ranks = 1, .steps = 1, .load_from = path("saved"), .config = config}));
    std::filesystem::remove_all(path("saved"));
  }
}

// Calls use(engine, step, rank) on an engine that has done two steps.
template <typename Use>
void with_offloading_engine(const Config& config, int ranks, const Use& use) {
  comm::run_threads(ranks, [&](comm::World& world) {
    model::Model model = model::build(model::with_vocabulary(config.model, 61));
    Plan plan = make_plan(config, model, world.size());
    Engine engine(std::move(plan), std::move(model), world);
    const std::vector<int32_t> tokens(config.model.sequence_length, 7);
    const ConstTensorView view{tokens.data(), DType::Int32, {1, config.model.sequence_length}};
    const std::vector<Microbatch> batches(engine.plan().batch.gradient_accumulation_steps, {view, view, 0});
    const auto step = [&] { engine.train_batch(batches); };
    step();
    step();
    use(engine, step, world.rank());
  });
}

// Measured memory equals the plan to the byte, both on the device and on the host.
TEST_F(CudaOffload, MemoryIsWhatThePlanSays) {
  for (const Offload& offload : {Offload{kHost}, {kNone, kHost}, {kHost, kHost, 0.5}, {kFile, kFile, 1, 5000}}) {
    const Config config = offloaded(config_of(3, true, OptimizerType::Lamb), offload);
    with_offloading_engine(config, 2, [&](Engine& engine, const auto&, int rank) {
      const RankPlan& planned = engine.plan().rank(rank);
      for (const auto& [name, category] : EnumNames<MemoryCategory>::table) {
        EXPECT_EQ(engine.measured_memory()[category], planned.memory[category]) << name << ", " << words(offload);
        EXPECT_EQ(engine.measured_host_memory()[category], planned.host_memory[category]) << name << ", " << words(offload);
      }
      const bool moves_weights = offload.weights != kNone, moves_states = offload.optimizer == kHost;
      EXPECT_EQ(planned.host_memory[MemoryCategory::Parameters] > 0, moves_weights);
      EXPECT_EQ(planned.host_memory[MemoryCategory::Optimizer] > 0, moves_states);
    });
  }
}

TEST_F(CudaOffload, MemoryOfInputsIsWhatThePlanSays) {
  for (const auto& [pipeline, tensor, rest] :
       {std::tuple{1, 1, Offload{kHost, kHost}}, {1, 2, Offload{}}, {2, 1, Offload{kHost}}}) {
    Config config = offloaded(config_of(3, true), rest);
    config.model.layers = 7;
    config.parallel.pipeline = pipeline;
    config.parallel.tensor = tensor;
    config.recompute = Recompute::Full;
    config.partition_activations = config.cpu_checkpointing = true;
    with_offloading_engine(config, pipeline * tensor, [&](Engine& engine, const auto&, int rank) {
      const RankPlan& planned = engine.plan().rank(rank);
      EXPECT_EQ(engine.measured_memory(), planned.memory) << rank << " of " << words(rest);
      EXPECT_EQ(engine.measured_host_memory(), planned.host_memory) << rank << " of " << words(rest);
      EXPECT_EQ(engine.activations().peak_bytes(), planned.activation_arena_bytes);
      EXPECT_EQ(engine.offloaded_bytes(), 2 * planned.offloaded_bytes);
      EXPECT_GT(planned.host_memory[MemoryCategory::Activations], 0);
    });
  }
}

// Weights are copied to the device on the gather stream, and back to the host after the update: the host waits for the verdict
// and for the results only. Inputs are copied on streams, too.
TEST_F(CudaOffload, OfWeightsOrInputsLetsTheHostRunAhead) {
  Config inputs = config_of(3, true);
  inputs.model.layers = 4;
  inputs.recompute = Recompute::Full;
  inputs.cpu_checkpointing = true;
  const auto expect_waits = [&](const Config& config, int waits) {
    with_offloading_engine(config, 1, [&](Engine&, const auto& step, int) {
      const cuda_shim::Counts before = cuda_shim::counts();
      step();
      const cuda_shim::Counts after = cuda_shim::counts();
      EXPECT_EQ(after.host_waits - before.host_waits, waits);
      EXPECT_EQ(after.allocations, before.allocations);
      EXPECT_EQ(after.events_made, before.events_made);
      EXPECT_EQ(after.pageable_copies, before.pageable_copies);
    });
  };
  expect_waits(offloaded(config_of(3, true), {kNone, kHost}), 2);
  expect_waits(inputs, 1);
}

}  // namespace
}  // namespace trivet::test
