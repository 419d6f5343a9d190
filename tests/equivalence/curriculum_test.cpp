// Tests that the steps of a curriculum have the same bits on every layout and after a restart, and that they are those of a
// model with shorter sequences.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/config/curriculum.h"
#include "tests/equivalence/tiny_run.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

// Sequences of 4, 6, 8 ... 16 tokens.
Config growing(model::Type type) {
  Config config = tiny_config(type);
  config.reproducible = Reproducible::Layout;
  config.curriculum = {.enabled = true, .min_difficulty = 4, .max_difficulty = 16, .total_steps = 9, .difficulty_step = 2};
  return config;
}

constexpr int64_t kSteps = 10;  // through all lengths

TEST(Curriculum, GivesTheSameBitsOnEveryLayout) {
  for (const model::Type type : {model::Type::Gpt, model::Type::Llama}) {
    Config config = growing(type);
    const Trace one = run({.ranks = 1, .steps = kSteps, .config = config});
    struct Layout {
      int pipeline, tensor, data, stage;
      Recompute recompute = Recompute::None;
    };
    for (const Layout& layout : {Layout{1, 1, 4, 3}, {2, 1, 2, 1, Recompute::Full}, {1, 2, 2, 2, Recompute::Selective}}) {
      config.parallel.pipeline = layout.pipeline;
      config.parallel.tensor = layout.tensor;
      config.zero.stage = layout.stage;
      config.recompute = layout.recompute;
      config.partition_activations = layout.tensor > 1;
      const int ranks = layout.pipeline * layout.tensor * layout.data;
      EXPECT_EQ(difference(one, run({.ranks = ranks, .steps = kSteps, .config = config})), "")
          << fmt::format("{}: pipeline {}, tensor {}, data {}, stage {}", name_of(type), layout.pipeline, layout.tensor,
                         layout.data, layout.stage);
    }
  }
}

TEST(Curriculum, ContinuesWhereItWas) {
  const TemporaryFolder folder;
  const Config config = growing(model::Type::Gpt);
  const Trace whole = run({.ranks = 2, .steps = kSteps, .config = config});
  run({.ranks = 2, .steps = 5, .save_to = folder.path(), .config = config});
  const Trace rest = run({.ranks = 1, .steps = kSteps, .load_from = folder.path(), .config = config});
  EXPECT_EQ(rest.weights, whole.weights);
  EXPECT_EQ(rest.loss_bits, (std::vector<uint32_t>(whole.loss_bits.begin() + 5, whole.loss_bits.end())));
}

// Llama has no parameter whose size depends on the length. Dropout, too, draws the same numbers for the first tokens.
TEST(Curriculum, AStepIsThatOfAModelWithShorterSequences) {
  Config cut = growing(model::Type::Llama), shorter = cut;
  cut.curriculum.max_difficulty = cut.curriculum.min_difficulty = 6;
  shorter.curriculum = {};
  shorter.model.sequence_length = 6;
  const Trace by_curriculum = run({.ranks = 2, .config = cut});
  const Trace by_model = run({.ranks = 2, .config = shorter});
  EXPECT_NE(by_curriculum.evaluation, by_model.evaluation) << "evaluations read whole sequences";
  EXPECT_EQ(by_curriculum.loss_bits.front(), by_model.loss_bits.front());
  EXPECT_EQ(difference_beyond_rounding(by_curriculum, by_model), "") << "the two are different models to the sums of gradients";
}

TEST(Curriculum, WorksWithSequenceParallelismAndAudits) {
  Config config = growing(model::Type::Llama);
  config.audit.every_steps = 2;
  const Trace audited = run({.ranks = 2, .steps = kSteps, .config = config});
  config.audit.every_steps = 0;
  EXPECT_EQ(difference(audited, run({.ranks = 2, .steps = kSteps, .config = config})), "");
  config.reproducible = Reproducible::Run;
  const Trace one = run({.ranks = 1, .steps = 3, .config = config});
  config.parallel.tensor = 2;
  config.parallel.sequence_parallel = true;
  EXPECT_EQ(difference_beyond_rounding(one, run({.ranks = 2, .steps = 3, .config = config})), "");
}

// A microbatch of another length than the step's is refused before anything is computed.
TEST(Curriculum, RefusesMicrobatchesOfAnotherLength) {
  const auto give_whole_sequences = [](Engine& engine, int, int64_t) {
    const std::vector<int32_t> tokens(16, 1);
    const ConstTensorView view{tokens.data(), DType::Int32, {1, 16}};
    const std::vector<Microbatch> batch(12, {view, view, 0});
    try {
      engine.train_batch(batch);
      ADD_FAILURE() << "was not refused";
    } catch (const std::exception& error) {
      EXPECT_STREQ(
          error.what(),
          "engine: a microbatch has inputs int32 [1, 16] and targets int32 [1, 16], but the plan is for int32 [1, 4] and "
          "int32 [1, 4]");
    }
  };
  const Config config = growing(model::Type::Gpt);
  EXPECT_EQ(difference(run({.ranks = 1, .steps = 1, .before_step = give_whole_sequences, .config = config}),
                       run({.ranks = 1, .steps = 1, .config = config})),
            "");
}

}  // namespace
}  // namespace trivet::test
