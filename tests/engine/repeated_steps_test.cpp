// Tests the key under which a device may launch a step again (Backend::repeat).
#include <gtest/gtest.h>

#include "engine/backend/backend.h"
#include "engine/worker.h"
#include "tests/engine/small_plan.h"

namespace trivet {
namespace {

// A CPU that keeps the keys and does the work.
class KeepsKeys final : public Backend {
 public:
  Device device() const override { return Device::Cpu; }
  std::string description() const override { return "keeps keys"; }
  kernels::Kernels& kernels() override { return *kernels_; }
  Allocator& allocator() override { return host_allocator(); }
  Allocator& staging_allocator() override { return host_allocator(); }
  std::unique_ptr<Stream> make_stream(pipeline::Queue, bool) override { return make_inline_stream(); }
  std::unique_ptr<StreamClock> make_clock() override { return make_host_clock(); }
  std::unique_ptr<comm::ProcessGroup> place(std::unique_ptr<comm::ProcessGroup> host) override { return host; }
  void repeat(const RepeatKey& key, const std::function<void()>& work) override {
    keys.push_back(key);
    work();
  }
  std::vector<RepeatKey> keys;

 private:
  std::unique_ptr<kernels::Kernels> kernels_ = kernels::make_cpu_kernels(1);
};

class RepeatedSteps : public testing::Test {
 protected:
  static constexpr int64_t kHeld = 4096;  // bytes of each arena that the plan does not need

  explicit RepeatedSteps(const Config& config = small_config()) : config_(config) { worker_.parameters().initialize(7); }

  RepeatKey key_of_step(int64_t first_sample, uint64_t seed = 7) {
    return key_of(first_sample, {.seed = seed}, plan_.config.model.sequence_length);
  }
  RepeatKey key_of(int64_t first_sample, const StepNumbers& numbers, int64_t sequence_length) {
    const Shape shape{plan_.batch.micro_batch_size, sequence_length};
    const std::vector<int32_t> tokens(shape.elements(), 3);
    const ConstTensorView view{tokens.data(), DType::Int32, shape};
    const std::vector<Microbatch> batch(plan_.batch.gradient_accumulation_steps, {view, view, first_sample});
    worker_.train_step(batch, numbers);
    return backend_.keys.back();
  }
  Arena arena(const char* name, int64_t bytes) {
    return {name, host_allocator(), meter_, MemoryCategory::Buffers, bytes + kHeld};
  }

  Config config_;
  model::Model model_ = model_of(config_);
  Plan plan_ = plan_of(config_, 1);
  KeepsKeys backend_;
  std::unique_ptr<comm::ProcessGroup> world_ = comm::make_single_group("world");
  Channels channels_{*world_, plan_.mesh, plan_.channels(), {}};
  MemoryMeter meter_;
  Arena activations_ = arena("activations", plan_.ranks[0].activation_arena_bytes);
  Arena buffers_ = arena("buffers", plan_.ranks[0].buffer_arena_bytes);
  Worker worker_{plan_.config,
                 plan_.stages,
                 plan_.ranks[0],
                 model_,
                 plan_.batch,
                 {.kernels = backend_.kernels(),
                  .allocator = host_allocator(),
                  .meter = meter_,
                  .activations = activations_,
                  .buffers = buffers_,
                  .channels = channels_,
                  .repeats_steps = &backend_}};
};

TEST_F(RepeatedSteps, HaveOneKeyAsLongAsSamplesAndArenasAreTheSame) {
  const RepeatKey first = key_of_step(0);
  EXPECT_EQ(key_of_step(0), first);
  EXPECT_NE(key_of_step(1), first);
  EXPECT_NE(key_of_step(0, 8), first);
  for (Arena* arena : {&activations_, &buffers_}) {
    const ScopedTensor held(*arena, DType::UInt8, {kHeld});  // moves what the step is given
    EXPECT_NE(key_of_step(0), first) << arena->name();
  }
  EXPECT_EQ(key_of_step(0), first);
}

class RepeatedStepsOfGrowingSequences : public RepeatedSteps {
 protected:
  RepeatedStepsOfGrowingSequences() : RepeatedSteps(growing()) {}

 private:
  static Config growing() {
    Config config = small_config();
    config.curriculum = {.enabled = true,
                         .min_difficulty = 16,
                         .max_difficulty = 32,
                         .schedule = DifficultySchedule::FixedDiscrete,
                         .difficulties = {16, 32},
                         .last_steps = {1}};
    return config;
  }
};

TEST_F(RepeatedStepsOfGrowingSequences, HaveAKeyForEachLength) {
  const RepeatKey of_short_ones = key_of(0, {.seed = 7, .step = 0}, 16);
  const RepeatKey of_long_ones = key_of(0, {.seed = 7, .step = 1}, 32);
  EXPECT_NE(of_short_ones, of_long_ones);
  EXPECT_EQ(key_of(0, {.seed = 7, .step = 2}, 32), of_long_ones);
}

}  // namespace
}  // namespace trivet
