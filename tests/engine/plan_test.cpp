#include "engine/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/world.h"
#include "core/error.h"
#include "engine/engine.h"

namespace trivet {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Config small_config() {
  Config config;
  config.source = "small.json";
  config.model.layers = 3;
  config.model.hidden_size = 64;
  config.model.heads = 4;
  config.model.sequence_length = 32;
  config.batch.train_batch_size = 12;
  config.batch.micro_batch_size = 1;
  config.zero.stage3_param_persistence_threshold = 100;
  config.zero.stage3_max_reuse_distance = 0;
  config.zero.stage3_prefetch_bucket_size = 60'000;
  return config;
}

model::Model model_of(const Config& config) { return model::build(describe_model(config.model, 97)); }
Plan plan_of(const Config& config, int ranks) { return make_plan(config, model_of(config), ranks); }

// The peak of each category on each rank after two steps and an evaluation.
std::vector<MemoryBytes> measured(const Config& config, int ranks) {
  std::vector<MemoryBytes> bytes(static_cast<size_t>(ranks));
  comm::run_threads(ranks, [&](comm::World& world) {
    Engine engine(plan_of(config, ranks), model_of(config), world);
    const int64_t micro = engine.plan().batch.micro_batch_size, tokens = micro * config.model.sequence_length;
    const std::vector<int32_t> ids(static_cast<size_t>(tokens), 5);
    const ConstTensorView view{ids.data(), DType::Int32, {micro, config.model.sequence_length}};
    const std::vector<Microbatch> batch(static_cast<size_t>(engine.plan().batch.gradient_accumulation_steps), {view, view, 0});
    engine.train_batch(batch);
    engine.train_batch(batch);
    engine.evaluate(batch);
    bytes[static_cast<size_t>(world.rank())] = engine.measured_memory();
  });
  return bytes;
}

struct Variant {
  int ranks, stage;
  bool bf16, recompute, overlap, layout;
  OptimizerType optimizer;
};

TEST(Plan, PredictsTheMemoryOfEveryRankToTheByte) {
  for (const Variant& v : {Variant{1, 0, false, false, false, false, OptimizerType::AdamW},
                           {4, 0, true, false, false, false, OptimizerType::AdamW},
                           {4, 1, true, true, false, false, OptimizerType::AdamW},
                           {3, 2, true, false, true, false, OptimizerType::Lion},
                           {4, 3, true, false, true, false, OptimizerType::AdamW},
                           {4, 3, false, true, false, true, OptimizerType::Lamb},
                           {2, 2, true, false, true, true, OptimizerType::Muon},
                           {3, 3, true, true, true, true, OptimizerType::Sgd}}) {
    Config config = small_config();
    config.zero.stage = v.stage;
    config.bf16.enabled = v.bf16;
    config.recompute = v.recompute ? Recompute::Full : Recompute::None;
    config.zero.overlap_comm = v.overlap;
    config.reproducible = v.layout ? Reproducible::Layout : Reproducible::Run;
    config.optimizer.type = v.optimizer;
    const MemoryBytes planned = plan_of(config, v.ranks).memory;
    for (const MemoryBytes& bytes : measured(config, v.ranks))
      for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
        EXPECT_EQ(bytes[category], planned[category]) << name << ", " << v.ranks << " ranks, stage " << v.stage;
  }
}

// 16 bytes a parameter with Adam in bf16, divided as the stage says (zero/stage.h). What is above it is padding: every
// parameter starts at a multiple of 256 elements and a group ends at one of 256 x ranks.
TEST(Plan, ModelStateFollowsTheFormulaOfItsStage) {
  Config config = small_config();
  config.model.hidden_size = 256;
  config.bf16.enabled = true;
  config.zero.stage3_param_persistence_threshold = 0;
  const int ranks = 4;
  for (int stage : {0, 1, 2, 3}) {
    config.zero.stage = stage;
    const Plan plan = plan_of(config, ranks);
    const double n = ranks, psi = static_cast<double>(plan.parameters);
    const double parameters = 2 / (stage >= 3 ? n : 1), gradients = 2 / (stage >= 2 ? n : 1),
                 optimizer = 12 / (stage >= 1 ? n : 1);
    EXPECT_NEAR(static_cast<double>(plan.memory[MemoryCategory::Parameters]) / psi, parameters, 0.01 * parameters) << stage;
    EXPECT_NEAR(static_cast<double>(plan.memory[MemoryCategory::Gradients]) / psi, gradients, 0.01 * gradients) << stage;
    EXPECT_NEAR(static_cast<double>(plan.memory[MemoryCategory::Optimizer]) / psi, optimizer, 0.01 * optimizer) << stage;
  }
}

// Rajbhandari et al., section 7: 2 psi for stages 0 to 2, 3 psi for stage 3, times (n - 1) / n.
TEST(Plan, TrafficFollowsTheFormulaOfItsStage) {
  Config config = small_config();
  config.batch.train_batch_size = 4;  // one microbatch a rank
  config.zero.stage3_param_persistence_threshold = 0;
  config.model.tied_embedding = false;  // a tied table is gathered once more for the head
  for (int stage : {0, 1, 2, 3}) {
    config.zero.stage = stage;
    const Plan plan = plan_of(config, 4);
    double padded = 0;
    for (const auto& block : plan.layout.blocks)
      for (const auto& group : block.groups) padded += static_cast<double>(group.whole_elements);
    const double unit = padded * 4 * 3 / 4;  // bytes of float32, times (n - 1) / n
    EXPECT_DOUBLE_EQ(static_cast<double>(plan.reduce.bytes_sent), (stage == 0 ? 2 : 1) * unit) << stage;
    const double gathers = stage == 0 ? 0 : stage < 3 ? 1 : 2;
    // The head's forward and backward are one instruction at stage 3: it is gathered once.
    const double head = stage < 3 ? 0 : static_cast<double>(plan.layout.blocks.back().groups[0].whole_elements) * 4 * 3 / 4;
    EXPECT_DOUBLE_EQ(static_cast<double>(plan.gather.bytes_sent), gathers * unit - head) << stage;
  }
}

TEST(Plan, ShowsTheProgramOfARank) {
  Config config = small_config();
  config.model.layers = 1;
  config.zero.stage = 3;
  config.batch.train_batch_size = 2;
  config.zero.stage3_prefetch_bucket_size = 0;
  EXPECT_EQ(to_string(plan_of(config, 2).programs.train),
            "0.0UNSHARD 0.0F0 0.0RESHARD 0.1UNSHARD 0.1F0 0.1RESHARD 0.0UNSHARD 0.2L0 0.0RESHARD 0.2REDUCE 0.1UNSHARD 0.1B0 "
            "0.1RESHARD "
            "0.1REDUCE 0.0UNSHARD 0.0B0 0.0RESHARD 0.0REDUCE");
  EXPECT_THAT(to_text(plan_of(config, 2)), HasSubstr("mesh      data 2, 2 ranks"));
  EXPECT_THAT(to_json(plan_of(config, 2)), HasSubstr("\"memory_bytes\""));
}

TEST(Plan, RefusesByNameWhatThisVersionCannotDo) {
  const auto refused = [](auto&& change, const std::string& message) {
    Config config = small_config();
    change(config);
    EXPECT_THAT([&] { plan_of(config, 4); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  refused([](Config& c) { c.parallel.tensor = 2; }, "small.json: parallel.tensor: 2 is not implemented in this version; use 1");
  refused([](Config& c) { c.parallel.pipeline = 4; }, "parallel.pipeline: 4 is not implemented");
  refused([](Config& c) { c.device = Device::Cuda; }, "device: \"cuda\" is not implemented in this version; use \"cpu\"");
  refused([](Config& c) { c.schedule = ScheduleKind::ZeroBubbleH1; }, "pipeline.schedule: \"zb-h1\" is not implemented");
  refused([](Config& c) { c.zero.offload_optimizer.device = OffloadDevice::Cpu; },
          "zero_optimization.offload_optimizer.device: offload");
  refused([](Config& c) { c.batch = {.train_batch_size = 10, .micro_batch_size = 3}; }, "train_batch_size");
}

TEST(Mesh, CountsTensorFastestAndPipelineSlowest) {
  const Mesh mesh({.tensor = 2, .pipeline = 2}, 12);
  EXPECT_EQ(to_string(mesh), "pipeline 2 x data 3 x tensor 2");
  EXPECT_EQ(mesh.group_of(0, Axis::Tensor), (std::vector<int>{0, 1}));
  EXPECT_EQ(mesh.group_of(1, Axis::Data), (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(mesh.group_of(5, Axis::Pipeline), (std::vector<int>{5, 11}));
  for (int rank = 0; rank < 12; ++rank) EXPECT_EQ(mesh.rank_at(mesh.coordinates_of(rank)), rank);
  EXPECT_THAT([] { Mesh({.tensor = 2, .pipeline = 2}, 10); },
              ThrowsMessage<ConfigError>(HasSubstr("needs a multiple of 4 ranks, 10 were started; start 12 ranks")));
}

}  // namespace
}  // namespace trivet
