// A checkpoint of one grid of ranks loads on any other: every weight and moment is where it belongs, to the last bit.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "comm/world.h"
#include "core/file_system.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "tests/equivalence/tiny_run.h"

namespace trivet::test {
namespace {

struct Grid {
  int pipeline, data, tensor, stage;
  ScheduleKind schedule = ScheduleKind::OneForwardOneBackward;
  int ranks() const { return pipeline * data * tensor; }
};

Config config_of(const Grid& grid) {
  Config config = tiny_config(ModelType::Gpt);
  config.parallel.pipeline = grid.pipeline;
  config.parallel.tensor = grid.tensor;
  config.pipeline.schedule = grid.schedule;
  config.zero.stage = grid.stage;
  return config;
}

void with_engine(const Grid& grid, const std::function<void(Engine&)>& body) {
  comm::run_threads(grid.ranks(), [&](comm::World& world) {
    const Config config = config_of(grid);
    model::Model model = model::build(describe_model(config.model, 61));
    Plan plan = make_plan(config, model, world.size());
    Engine engine(std::move(plan), std::move(model), world);
    body(engine);
  });
}

// One step on made-up tokens, so that moments are not zero.
void train_once(Engine& engine) {
  const int64_t micro = engine.plan().batch.micro_batch_size, length = engine.model().sequence_length;
  std::vector<int32_t> tokens(static_cast<size_t>(micro * length));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7 % 61);
  const ConstTensorView view{tokens.data(), DType::Int32, {micro, length}};
  engine.train_batch(
      std::vector<Microbatch>(static_cast<size_t>(engine.plan().batch.gradient_accumulation_steps), {view, view, 0}));
}

TEST(Checkpoint, LoadsAcrossAllAxes) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("trivet-reshard-{}", ::getpid());
  const std::vector<Grid> grids{
      {1, 1, 1, 0}, {2, 1, 2, 1}, {4, 1, 1, 0}, {2, 2, 1, 3, ScheduleKind::ZeroBubbleV}, {1, 2, 4, 2}};
  for (const Grid& from : grids)
    for (const Grid& to : grids) {
      std::filesystem::remove_all(folder);
      const std::string first = folder / "first", second = folder / "second";
      with_engine(from, [&](Engine& engine) {
        train_once(engine);
        engine.save(first);
      });
      with_engine(to, [&](Engine& engine) {
        EXPECT_TRUE(engine.load(first));
        engine.save(second);
      });
      for (const auto& difference : checkpoint::compare(checkpoint::open_newest(real_file_system(), first),
                                                        checkpoint::open_newest(real_file_system(), second)))
        EXPECT_EQ(difference.kind, checkpoint::Difference::None)
            << difference.name << " from " << from.pipeline << from.data << from.tensor << " to " << to.pipeline << to.data
            << to.tensor;
    }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trivet::test
