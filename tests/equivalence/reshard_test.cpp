// A checkpoint of one grid of ranks loads on any other. Every weight and moment is where it belongs, to the last bit, and in
// layout mode training continues as if nothing had happened.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "comm/world.h"
#include "core/file_system.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/stored_pieces.h"
#include "engine/engine.h"
#include "tests/equivalence/tiny_run.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

struct Grid {
  int pipeline, data, tensor, stage;
  ScheduleKind schedule = ScheduleKind::OneForwardOneBackward;
  Reproducible reproducible = Reproducible::Run;
  bool sequence_parallel = false;
  int64_t shards = -1;  // mics_shard_size
  int ranks() const { return pipeline * data * tensor; }
};

std::string to_string(const Grid& grid) {
  return fmt::format("pipeline {} data {} tensor {}{} stage {} shards {} {}", grid.pipeline, grid.data, grid.tensor,
                     grid.sequence_parallel ? " sequence parallel" : "", grid.stage, grid.shards, name_of(grid.reproducible));
}

Config config_of(const Grid& grid) {
  Config config = tiny_config(model::Type::Gpt);
  config.parallel.pipeline = grid.pipeline;
  config.parallel.tensor = grid.tensor;
  config.parallel.sequence_parallel = grid.sequence_parallel;
  config.reproducible = grid.reproducible;
  config.pipeline.schedule = grid.schedule;
  config.zero.stage = grid.stage;
  config.zero.mics_shard_size = grid.shards;
  return config;
}

void with_engine(const Grid& grid, const std::function<void(Engine&)>& body) {
  comm::run_threads(grid.ranks(), [&](comm::World& world) {
    const Config config = config_of(grid);
    model::Model model = model::build(model::with_vocabulary(config.model, 61));
    Plan plan = make_plan(config, model, world.size());
    Engine engine(std::move(plan), std::move(model), world);
    body(engine);
  });
}

// One step on made-up tokens, so that moments are not zero.
void train_once(Engine& engine) {
  const int64_t micro = engine.plan().batch.micro_batch_size, length = engine.model().sample.input[0];
  std::vector<int32_t> tokens(micro * length);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7 % 61);
  const ConstTensorView view{tokens.data(), DType::Int32, {micro, length}};
  engine.train_batch(std::vector<Microbatch>(engine.plan().batch.gradient_accumulation_steps, {view, view, 0}));
}

class Checkpoint : public testing::Test {
 protected:
  std::string directory(const char* name) const { return folder_.at(name); }

 private:
  const TemporaryFolder folder_;
};

constexpr ScheduleKind kOneForwardOneBackward = ScheduleKind::OneForwardOneBackward;

TEST_F(Checkpoint, LoadsAcrossAllAxes) {
  const std::vector<Grid> grids{{1, 1, 1, 0},
                                {2, 1, 2, 1},
                                {4, 1, 1, 0},
                                {2, 2, 1, 3, ScheduleKind::ZeroBubbleV},
                                {1, 2, 4, 2},
                                {1, 2, 2, 3, kOneForwardOneBackward, Reproducible::Run, true},
                                {2, 1, 2, 3, kOneForwardOneBackward, Reproducible::Layout}};
  const std::string first = directory("first"), second = directory("second");
  for (const Grid& from : grids) {
    std::filesystem::remove_all(first);
    with_engine(from, [&](Engine& engine) {
      train_once(engine);
      engine.save(first);
    });
    for (const Grid& to : grids) {
      std::filesystem::remove_all(second);
      with_engine(to, [&](Engine& engine) {
        EXPECT_TRUE(engine.load(first));
        engine.save(second);
      });
      for (const auto& difference : checkpoint::compare(checkpoint::open_newest(real_file_system(), first),
                                                        checkpoint::open_newest(real_file_system(), second)))
        EXPECT_EQ(difference.kind, checkpoint::Difference::None)
            << difference.name << " from " << to_string(from) << " to " << to_string(to);
    }
  }
}

// Without the files that a rank is said not to read, it reads everything that it needs.
TEST_F(Checkpoint, ARankReadsOnlyTheFilesThatHoldItsPieces) {
  const std::vector<Grid> grids{{1, 1, 1, 0}, {1, 4, 1, 2}, {2, 2, 1, 3}, {2, 1, 2, 1}, {1, 2, 2, 3}};
  const std::string all = directory("all");
  for (const Grid& from : grids) {
    std::filesystem::remove_all(all);
    with_engine(from, [&](Engine& engine) {
      train_once(engine);
      engine.save(all);
    });
    for (const Grid& to : grids) {
      const std::string again = directory("again");
      std::filesystem::remove_all(again);
      comm::run_threads(to.ranks(), [&](comm::World& world) {
        const Config config = config_of(to);
        model::Model model = model::build(model::with_vocabulary(config.model, 61));
        Plan plan = make_plan(config, model, world.size());
        Engine engine(std::move(plan), std::move(model), world);
        const auto step = checkpoint::open_newest(real_file_system(), all);
        const auto files = checkpoint::files_with(step.manifest(), engine.pieces_to_load());
        if (from.stage > 0 && to_string(from) == to_string(to) && to.tensor == 1) {
          EXPECT_EQ(files, (std::set<std::string>{fmt::format("rank-{:05}.safetensors", world.rank())}));
        }
        const std::string mine = directory(fmt::format("mine-{}", world.rank()).c_str()) + "/step-00000001";
        std::filesystem::remove_all(mine);
        std::filesystem::create_directories(mine);
        for (const std::string& name : files) std::filesystem::copy_file(step.directory() + "/" + name, mine + "/" + name);
        checkpoint::Manifest manifest = step.manifest();
        manifest.hosts = {{"another host", {}}};
        for (const auto& [name, stored] : manifest.files) manifest.hosts[0].files.push_back(name);
        write_text(real_file_system(), mine + "/manifest.json", to_text(manifest));
        engine.restore(checkpoint::LoadedStep(real_file_system(), mine, checkpoint::StepFiles::ThoseHere));
        engine.save(again);
      });
      for (const auto& difference : checkpoint::compare(checkpoint::open_newest(real_file_system(), all),
                                                        checkpoint::open_newest(real_file_system(), again)))
        EXPECT_EQ(difference.kind, checkpoint::Difference::None)
            << difference.name << " from " << to_string(from) << " to " << to_string(to);
    }
  }
}

// Joins the steps before the stop with those after it.
Trace joined(const Trace& stopped, Trace resumed) {
  resumed.loss_bits.insert(resumed.loss_bits.begin(), stopped.loss_bits.begin(), stopped.loss_bits.end());
  resumed.grad_norms.insert(resumed.grad_norms.begin(), stopped.grad_norms.begin(), stopped.grad_norms.end());
  return resumed;
}

Grid layout_grid(int pipeline, int data, int tensor, int stage, int64_t shards = -1) {
  return {pipeline, data, tensor, stage, kOneForwardOneBackward, Reproducible::Layout, false, shards};
}

Trace one_rank_in_layout_mode() { return run({.ranks = 1, .steps = 4, .config = config_of(layout_grid(1, 1, 1, 0))}); }

// Two steps on one grid and two on the other have the bits of four steps on one rank.
void expect_to_go_on(const Trace& one, const std::string& stop, const Grid& from, const Grid& to) {
  std::filesystem::remove_all(stop);
  const Trace stopped = run({.ranks = from.ranks(), .steps = 2, .save_to = stop, .config = config_of(from)});
  const Trace resumed = run({.ranks = to.ranks(), .steps = 4, .load_from = stop, .config = config_of(to)});
  EXPECT_EQ(resumed.loss_bits.size(), 2u);
  EXPECT_EQ(difference(one, joined(stopped, resumed)), "") << to_string(from) << " to " << to_string(to);
}

TEST_F(Checkpoint, GoesOnOnAnotherGridWithTheBitsOfOneRankInLayoutMode) {
  const Trace one = one_rank_in_layout_mode();
  const Grid deep = layout_grid(2, 2, 2, 3), wide = layout_grid(1, 1, 4, 0), sharded = layout_grid(1, 2, 1, 1);
  for (const auto& [from, to] : {std::pair{deep, wide}, {deep, sharded}, {wide, deep}, {sharded, wide}})
    expect_to_go_on(one, directory("stop"), from, to);
}

// A shard that several ranks hold is saved by one of them. The other grids have other sizes of shards, none, or replicas of
// them, and other numbers of ranks; each is entered and left.
TEST_F(Checkpoint, OfShardsWithReplicasGoesOnWithTheBitsOfOneRankInLayoutMode) {
  const Trace one = one_rank_in_layout_mode();
  const Grid halves = layout_grid(1, 4, 1, 3, 2), thirds = layout_grid(1, 6, 1, 2, 3), copies = layout_grid(1, 4, 1, 1, 1);
  const Grid plain = layout_grid(1, 4, 1, 3), fewer = layout_grid(1, 2, 1, 2), stages = layout_grid(2, 4, 1, 3, 2);
  for (const auto& [from, to] : {std::pair{halves, thirds},
                                 {thirds, halves},
                                 {halves, plain},
                                 {plain, halves},
                                 {halves, fewer},
                                 {fewer, halves},
                                 {copies, halves},
                                 {halves, copies},
                                 {stages, thirds},
                                 {thirds, stages}})
    expect_to_go_on(one, directory("stop"), from, to);
}

}  // namespace
}  // namespace trivet::test
