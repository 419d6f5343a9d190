// Updates on the host, for a device with memory of its own (zero/host_side.h). Here the device is a CPU, whose kernels copy
// between the two sides as a GPU's do. What is on which side, and how much, follows a plan for a GPU.
#include "zero/host_side.h"
#include "tests/support/optimizer_types.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "comm/process_group.h"
#include "engine/worker.h"
#include "tests/engine/small_plan.h"
#include "tests/support/memory_file_system.h"

namespace trivet {
namespace {

Config config_of(OptimizerType type, bool bf16, bool layout) {
  Config config = small_config();
  config.batch.train_batch_size = 3;
  config.optimizer.type = type;
  config.optimizer.momentum = 0.9;
  config.optimizer.weight_decay = 0.1;
  config.zero.stage = 2;
  config.zero.sub_group_size = 20'000;
  config.zero.offload_optimizer.buffer_count = 12;
  config.bf16.enabled = bf16;
  config.reproducible = layout ? Reproducible::Layout : Reproducible::Run;
  return config;
}

// Does its work as late as it may: when somebody waits for it.
class LateStream final : public Stream {
 public:
  void enqueue(std::function<void()> work) override { queue_->push_back(std::move(work)); }
  Event record() override { return Event(std::make_shared<Moment>(queue_)); }
  void wait(const Event& event) override {
    enqueue([event] { event.synchronize(); });
  }
  void synchronize() override { record().synchronize(); }

 private:
  using Queue = std::deque<std::function<void()>>;  // work that was done is empty
  struct Moment final : Event::State {
    explicit Moment(std::shared_ptr<Queue> work) : queue(std::move(work)), end(queue->size()) {}
    void synchronize() override {
      for (size_t i = 0; i < end; ++i)
        if (const auto work = std::exchange((*queue)[i], nullptr)) work();
    }
    void observe(WaitObserver&) override {}
    std::shared_ptr<Queue> queue;
    size_t end;
  };
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
};

// One rank of a plan, with CPU kernels.
class Rank {
 public:
  explicit Rank(const Config& config)
      : model_(model_of(config)),
        plan_(plan_of(config, 1)),
        channels_(*world_, plan_.mesh, plan_.channels(), {}),
        activations_("activations", host_allocator(), meter_, MemoryCategory::Activations, planned().activation_arena_bytes),
        buffers_("buffers", host_allocator(), meter_, MemoryCategory::Buffers, planned().buffer_arena_bytes) {
    if (config.uses_host_side())
      host_ = std::make_unique<zero::HostSide>(
          zero::HostSideOptions{.device = *kernels_,
                                .host = *host_kernels_,
                                .allocator = host_allocator(),
                                .to = std::make_unique<LateStream>(),
                                .from = std::make_unique<LateStream>(),
                                .staging_bytes = planned().host_staging_bytes,
                                .activation_bytes = planned().host_memory[MemoryCategory::Activations]});
    states_ = zero::offload::make_file_store(
        files_, {.path = "/states", .folder_key = "KEY", .capacity_bytes = planned().state_file.bytes});
    weights_ = zero::offload::make_file_store(
        files_, {.path = "/weights", .folder_key = "KEY", .capacity_bytes = planned().weight_file.bytes});
    worker_ =
        std::make_unique<Worker>(plan_.config, plan_.stages, planned(), model_, plan_.batch,
                                 RankResources{.kernels = *kernels_,
                                               .allocator = host_allocator(),
                                               .meter = meter_,
                                               .activations = activations_,
                                               .buffers = buffers_,
                                               .channels = channels_,
                                               .collectives = collective_options(plan_.config.zero),
                                               .offload = {.weights = weights_.get(),
                                                           .states = states_.get(),
                                                           .host = config.offloads_shards_of_device() ? host_.get() : nullptr,
                                                           .activations = config.offloads_inputs() ? host_.get() : nullptr,
                                                           .staging = staging_options(plan_.config)}});
    worker_->parameters().initialize(7);
  }

  StepResult step(int64_t number, double loss_scale = 1) {
    const Shape shape{plan_.batch.micro_batch_size, plan_.config.model.sequence_length};
    std::vector<int32_t> tokens;
    for (int64_t e = 0; e < shape.elements(); ++e) tokens.push_back(static_cast<int32_t>((e * e + 3 * number) % 97));
    const ConstTensorView view{tokens.data(), DType::Int32, shape};
    const std::vector<Microbatch> batch(plan_.batch.gradient_accumulation_steps, {view, view, 0});
    return worker_->train_step(batch, {.seed = 7, .step = number, .update = number + 1, .lr = 0.01, .loss_scale = loss_scale});
  }
  // All weights as layers see them, and all master weights and states, wherever they are.
  std::vector<float> values() {
    std::vector<float> all;
    zero::StagedTensorReader reader;
    worker_->parameters().for_each_group([&](int, zero::ParameterGroup& group) {
      if (group.layout().role != zero::GroupRole::Own) return;
      const zero::OwnedRange range = group.owned();
      const auto add = [&](TensorView view, zero::StagedTensor* staged) {
        const ConstTensorView data = staged ? reader.read(*staged, 0, staged->elements()) : ConstTensorView(view);
        std::vector<float> values(data.elements());
        kernels_->copy(data, {values.data(), DType::Float32, {data.elements()}});
        for (const zero::FlatParameter& parameter : group.layout().parameters)  // padding may differ
          all.insert(all.end(), values.begin() + parameter.offset, values.begin() + parameter.offset + parameter.elements());
      };
      add(range.master, range.master.staged);
      if (!range.copy_out.absent()) add(range.copy_out, range.copy_out.staged);
      for (const auto& state : range.states) add(state, state.staged);
    });
    return all;
  }

  const RankPlan& planned() const { return plan_.ranks[0]; }
  const Plan& plan() const { return plan_; }
  const MemoryMeter& meter() const { return meter_; }
  zero::HostSide& host() { return *host_; }
  int64_t offloaded_bytes() const { return worker_->offloaded_bytes(); }
  int64_t activation_peak() const { return activations_.peak_bytes(); }

 private:
  model::Model model_;
  Plan plan_;
  std::unique_ptr<kernels::Kernels> kernels_ = kernels::make_cpu_kernels(1), host_kernels_ = kernels::make_cpu_kernels(1);
  std::unique_ptr<comm::ProcessGroup> world_ = comm::make_single_group("world");
  Channels channels_;
  MemoryMeter meter_;
  Arena activations_, buffers_;
  support::MemoryFileSystem files_;
  std::unique_ptr<zero::HostSide> host_;
  std::unique_ptr<zero::offload::FileStore> states_, weights_;
  std::unique_ptr<Worker> worker_;
};

Config on_a_gpu(Config config, OffloadDevice where, OffloadDevice weights = OffloadDevice::None) {
  config.device = DeviceChoice::Cuda;
  config.zero.offload_optimizer.device = where;
  config.zero.offload_param.device = weights;
  config.zero.offload_optimizer.nvme_path = config.zero.offload_param.nvme_path = "/";
  config.zero.offload_param.max_in_cpu = 0;
  config.zero.offload_optimizer.pipeline_read = config.zero.offload_optimizer.pipeline_write = true;
  return config;
}

TEST(HostSide, UpdatesThereGiveTheSameBits) {
  for (const OptimizerType type : test::optimizer_types())
    for (const auto& [bf16, layout] : {std::pair{false, false}, {true, false}, {true, true}})
      for (const OffloadDevice where : {OffloadDevice::Cpu, OffloadDevice::Nvme}) {
        const Config config = config_of(type, bf16, layout);
        Rank plain(config), offloaded(on_a_gpu(config, where));
        EXPECT_EQ(plain.values(), offloaded.values());
        for (int64_t step = 0; step < 3; ++step) {
          const StepResult expected = plain.step(step), result = offloaded.step(step);
          EXPECT_EQ(expected.loss, result.loss);
          EXPECT_EQ(expected.grad_norm, result.grad_norm);
        }
        EXPECT_EQ(plain.values(), offloaded.values()) << name_of(type) << (bf16 ? ", bf16, " : ", ") << name_of(where);
      }
}

TEST(HostSide, WeightsThereGiveTheSameBits) {
  constexpr OffloadDevice kNone = OffloadDevice::None, kHost = OffloadDevice::Cpu, kFile = OffloadDevice::Nvme;
  for (const OptimizerType type : {OptimizerType::AdamW, OptimizerType::Lamb, OptimizerType::Muon})
    for (const bool bf16 : {false, true})
      for (const auto& [states, weights] :
           {std::pair{kNone, kHost}, {kNone, kFile}, {kHost, kHost}, {kHost, kFile}, {kFile, kHost}, {kFile, kFile}}) {
        Config config = config_of(type, bf16, false);
        config.zero.stage = 3;
        Rank plain(config), offloaded(on_a_gpu(config, states, weights));
        for (int64_t step = 0; step < 2; ++step) EXPECT_EQ(plain.step(step).loss, offloaded.step(step).loss);
        EXPECT_EQ(plain.values(), offloaded.values())
            << name_of(type) << (bf16 ? ", bf16, " : ", ") << name_of(states) << ", " << name_of(weights);
      }
}

// The device keeps gradients and weights, or no shards of weights either if those are offloaded. The host has what the plan
// says.
TEST(HostSide, TakesTheMemoryThatIsPlannedOnBothSides) {
  for (const auto& [where, weights] : {std::pair{OffloadDevice::Cpu, OffloadDevice::None},
                                       {OffloadDevice::Nvme, OffloadDevice::None},
                                       {OffloadDevice::Cpu, OffloadDevice::Cpu},
                                       {OffloadDevice::Nvme, OffloadDevice::Nvme}}) {
    Config config = config_of(OptimizerType::AdamW, true, false);
    config.zero.stage = weights == OffloadDevice::None ? 2 : 3;
    config.zero.stage3_param_persistence_threshold = 0;
    Rank rank(on_a_gpu(config, where, weights));
    rank.step(0);
    rank.step(1);
    const MemoryBytes measured = rank.meter().peak();
    EXPECT_EQ(measured[MemoryCategory::Optimizer], 0);
    EXPECT_EQ(rank.planned().memory[MemoryCategory::Optimizer], 0);
    EXPECT_EQ(measured[MemoryCategory::Parameters] == 0, weights != OffloadDevice::None);
    EXPECT_EQ(measured[MemoryCategory::Parameters], rank.planned().memory[MemoryCategory::Parameters]);
    EXPECT_EQ(measured[MemoryCategory::Gradients], rank.planned().memory[MemoryCategory::Gradients]);
    EXPECT_EQ(rank.host().meter().peak(), rank.planned().host_memory);
    EXPECT_EQ(rank.host().staging().peak_bytes(), rank.planned().host_staging_bytes);
    EXPECT_NE(to_text(rank.plan())
                  .find(fmt::format("{:.2f} MiB of host memory per rank",
                                    static_cast<double>(rank.planned().host_memory.total()) / (1 << 20))),
              std::string::npos);
  }
}

// 4 recomputed blocks: the input of the last stays on the device.
TEST(HostSide, InputsThereGiveTheSameBitsAndLeaveTheMemoryOfTheDevice) {
  for (const auto& [bf16, layout] : {std::pair{false, false}, {true, false}, {true, true}})
    for (const OffloadDevice where : {OffloadDevice::None, OffloadDevice::Cpu}) {
      Config config = config_of(OptimizerType::AdamW, bf16, layout);
      config.model.layers = 4;
      config.recompute = Recompute::Full;
      Config there = on_a_gpu(config, where);
      there.cpu_checkpointing = true;
      Rank plain(config), offloaded(there);
      for (int64_t step = 0; step < 2; ++step) EXPECT_EQ(plain.step(step).loss, offloaded.step(step).loss);
      EXPECT_EQ(plain.values(), offloaded.values());
      const int64_t input = 32 * 64 * (bf16 ? 2 : 4), microbatches = 3;
      EXPECT_EQ(offloaded.planned().offloaded_bytes, 3 * input * microbatches);
      EXPECT_EQ(offloaded.offloaded_bytes(), 2 * offloaded.planned().offloaded_bytes);
      EXPECT_EQ(offloaded.host().meter().peak(), offloaded.planned().host_memory);
      EXPECT_EQ(offloaded.planned().host_memory[MemoryCategory::Activations], 3 * input);
      EXPECT_EQ(offloaded.activation_peak(), offloaded.planned().activation_arena_bytes);
      // The one that is fetched ahead is there, too.
      EXPECT_EQ(offloaded.activation_peak(), plain.activation_peak() - 2 * input);
    }
}

TEST(HostSide, AStepThatIsSkippedMovesNothing) {
  for (const OffloadDevice where : {OffloadDevice::Cpu, OffloadDevice::Nvme}) {
    Config config = config_of(OptimizerType::AdamW, false, false);
    config.fp16.enabled = true;
    Rank rank(on_a_gpu(config, where));
    rank.step(0, 1024);
    const std::vector<float> before = rank.values();
    const StepResult result = rank.step(1, std::ldexp(1.0, 40));
    EXPECT_TRUE(result.skipped);
    EXPECT_EQ(before, rank.values());
  }
}

}  // namespace
}  // namespace trivet
