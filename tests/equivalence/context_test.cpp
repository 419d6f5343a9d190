// Context ranks share the tokens of each sequence. In run mode the number of context ranks determines the order of sums, as
// that of data ranks does; nothing else of the layout changes a bit, and the training is that of one rank.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>

#include "core/error.h"
#include "tests/equivalence/tiny_run.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

struct ContextLayout {
  int context = 1, data = 1, tensor = 1, pipeline = 1, stage = 0;
  bool sequence_parallel = false;
  ScheduleKind schedule = ScheduleKind::OneForwardOneBackward;
  Recompute recompute = Recompute::None;
  bool overlap = false;
  ContextKind kind = ContextKind::Auto;  // UlyssesRing: with runs of two ranks

  bool has_ring() const { return kind == ContextKind::Ring || kind == ContextKind::UlyssesRing; }
};

std::string to_string(const ContextLayout& layout) {
  return fmt::format("context {} {} data {} tensor {}{} pipeline {} stage {} {} recompute {}", layout.context,
                     name_of(layout.kind), layout.data, layout.tensor, layout.sequence_parallel ? " sequence parallel" : "",
                     layout.pipeline, layout.stage, name_of(layout.schedule), name_of(layout.recompute));
}

TinyRun with_context(Config config, const ContextLayout& layout) {
  config.parallel.context = layout.context;
  config.parallel.context_kind = layout.kind;
  config.parallel.context_ulysses = layout.kind == ContextKind::UlyssesRing ? 2 : 0;
  config.parallel.tensor = layout.tensor;
  config.parallel.pipeline = layout.pipeline;
  config.parallel.sequence_parallel = layout.sequence_parallel;
  config.pipeline.schedule = layout.schedule;
  config.zero.stage = layout.stage;
  config.zero.overlap_comm = layout.overlap;
  config.recompute = layout.recompute;
  return {.ranks = layout.context * layout.data * layout.tensor * layout.pipeline, .steps = 3, .config = config};
}

struct ContextModel {
  const char* name;
  model::Type type;
  bool bf16 = false;
  model::Objective objective = model::Objective::NextToken;
  int64_t key_value_heads = 0;
  bool normalized_queries = false, lora = false, documents = false;
};

class ContextEquivalence : public testing::TestWithParam<ContextModel> {
 protected:
  Config config() const {
    Config config = tiny_config(GetParam().type);
    config.model.heads = 8;
    config.model.key_value_heads = GetParam().key_value_heads;
    config.model.objective = GetParam().objective;
    config.model.qk_norm = GetParam().normalized_queries;
    config.model.isolated_documents = GetParam().documents;
    if (GetParam().lora)
      config.model.lora = {.rank = 2, .alpha = 4, .targets = {"q_proj", "v_proj", "o_proj", "up_proj", "down_proj"}};
    config.bf16.enabled = GetParam().bf16;
    return config;
  }
};

// The first step's losses differ by rounding, later ones by what Adam makes of that (axes_test.cpp). Logits of one row are the
// same, so the predictions of the evaluation are.
TEST_P(ContextEquivalence, IsTheTrainingOfOneRankButForRounding) {
  const double rounding = GetParam().bf16 ? 0x1p-8 : 0x1p-23;
  for (const ContextLayout& layout :
       {ContextLayout{.context = 2}, ContextLayout{.context = 4, .stage = 1, .kind = ContextKind::Gather},
        ContextLayout{.context = 2, .data = 2, .stage = 3, .overlap = true},
        ContextLayout{.context = 4, .kind = ContextKind::Ring},
        ContextLayout{.context = 2, .tensor = 2, .recompute = Recompute::Full, .kind = ContextKind::Ring},
        ContextLayout{.context = 4, .data = 2, .stage = 3, .overlap = true, .kind = ContextKind::UlyssesRing},
        ContextLayout{.context = 4,
        .tensor = 2,
        .sequence_parallel = true,
        .recompute = Recompute::Selective,
        .kind = ContextKind::UlyssesRing},
        ContextLayout{.context = 2, .tensor = 2, .stage = 2, .sequence_parallel = true, .recompute = Recompute::Selective},
        ContextLayout{.context = 2,
        .tensor = 2,
        .pipeline = 2,
        .sequence_parallel = true,
        .recompute = Recompute::Selective,
        .kind = ContextKind::Gather},
        ContextLayout{
            .context = 2, .tensor = 2, .pipeline = 2, .schedule = ScheduleKind::ZeroBubbleH1, .recompute = Recompute::Full}}) {
    const bool ring = layout.has_ring();
    if (ring && GetParam().documents) continue;
    Config same = config();
    if (ring) same.model.dropout = 0;  // a ring has draws of its own
    const Trace one = run(with_context(same, {})), shared = run(with_context(same, layout));
    EXPECT_NEAR(loss_of(shared, 0), loss_of(one, 0), 8 * rounding * loss_of(one, 0)) << to_string(layout);
    EXPECT_NEAR(shared.grad_norms[0], one.grad_norms[0], 16 * rounding * one.grad_norms[0]) << to_string(layout);
    EXPECT_NEAR(loss_of(shared, 2), loss_of(one, 2), (GetParam().bf16 ? 0.03 : 3e-4) * loss_of(one, 2)) << to_string(layout);
    EXPECT_NEAR(shared.evaluation, one.evaluation, (GetParam().bf16 ? 0.03 : 3e-4) * one.evaluation) << to_string(layout);
    if (!GetParam().bf16) {
      EXPECT_EQ(shared.predictions, one.predictions) << to_string(layout);
    }
  }
}

TEST_P(ContextEquivalence, OnlyTheRanksThatShareSumsChangeBits) {
  std::map<std::pair<int, ContextKind>, Trace> plain;  // by stage and kind
  for (const ContextLayout& moved :
       {ContextLayout{.schedule = ScheduleKind::GPipe, .recompute = Recompute::Full},
        ContextLayout{.pipeline = 2, .recompute = Recompute::Selective},
        ContextLayout{.pipeline = 2, .recompute = Recompute::Selective, .kind = ContextKind::Gather},
        ContextLayout{.pipeline = 2, .recompute = Recompute::Selective, .kind = ContextKind::Ring},
        ContextLayout{.context = 4, .pipeline = 2, .stage = 2, .recompute = Recompute::Full, .kind = ContextKind::UlyssesRing},
        ContextLayout{.pipeline = 2, .stage = 1, .schedule = ScheduleKind::Interleaved},
        ContextLayout{.stage = 3, .recompute = Recompute::Full, .overlap = true},
        ContextLayout{.pipeline = 2, .stage = 2, .overlap = true}}) {
    if (moved.has_ring() && GetParam().documents) continue;
    ContextLayout layout = moved;
    layout.context = std::max(layout.context, 2);
    layout.data = 2;
    Trace& reference = plain[{layout.stage, layout.kind}];
    if (reference.loss_bits.empty())
      reference =
          run(with_context(config(), {.context = layout.context, .data = 2, .stage = layout.stage, .kind = layout.kind}));
    EXPECT_EQ(difference(reference, run(with_context(config(), layout))), "") << to_string(layout);
  }
}

// With leaves, sums over tokens are the same for every number of context ranks, and so are all bits.
TEST_P(ContextEquivalence, LayoutModeGivesTheBitsOfOneRank) {
  Config fixed = config();
  fixed.reproducible = Reproducible::Layout;
  fixed.parallel.context_grain = 8;
  if (GetParam().key_value_heads == 2) fixed.model.key_value_heads = 4;
  const Trace one = run(with_context(fixed, {}));
  for (const ContextLayout& layout :
       {ContextLayout{.context = 2}, ContextLayout{.context = 4, .stage = 1},
        ContextLayout{.data = 2, .recompute = Recompute::Full},
        ContextLayout{.context = 2, .data = 3, .stage = 3, .overlap = true},
        ContextLayout{.context = 2, .tensor = 2, .stage = 2, .recompute = Recompute::Selective},
        ContextLayout{.context = 8, .kind = ContextKind::Gather},
        ContextLayout{.context = 2, .tensor = 2, .recompute = Recompute::Selective, .kind = ContextKind::Gather},
        ContextLayout{.context = 4, .pipeline = 2, .schedule = ScheduleKind::ZeroBubbleH1, .recompute = Recompute::Full}})
    EXPECT_EQ(difference(one, run(with_context(fixed, layout))), "") << to_string(layout);
  if (GetParam().type == model::Type::Gpt) {
    EXPECT_EQ(difference(one, run(with_context(fixed, {.context = 8}))), "");
  }
  if (GetParam().normalized_queries || GetParam().lora) return;  // sequence parallelism is refused with these
  for (const ContextLayout& layout :
       {ContextLayout{.tensor = 2, .sequence_parallel = true},
        ContextLayout{.tensor = 4, .stage = 3, .sequence_parallel = true, .recompute = Recompute::Full},
        ContextLayout{.context = 2,
        .tensor = 2,
        .pipeline = 2,
        .stage = 1,
        .sequence_parallel = true,
        .schedule = ScheduleKind::ZeroBubbleH1}})
    EXPECT_EQ(difference(one, run(with_context(fixed, layout))), "") << to_string(layout);
}

// On four ranks each has as many tokens as an eighth of the heads is rows; sums over heads are not sums over tokens.
TEST(ContextHeads, AreNotTakenForTokens) {
  Config config = tiny_config(model::Type::Llama);
  config.model.heads = config.model.key_value_heads = 32;
  config.model.head_size = 2;
  config.model.qk_norm = true;
  config.reproducible = Reproducible::Layout;
  config.parallel.context_grain = 8;
  EXPECT_EQ(difference(run(with_context(config, {})), run(with_context(config, {.context = 4}))), "");
}

// Two of four context ranks have a half of the heads each, like two tensor ranks, and draw the same for a pair of chunks.
TEST(ContextHeads, DropProbabilitiesInARingWhicheverAxisSharesThem) {
  Config config = tiny_config(model::Type::Gpt);
  config.model.heads = 8;
  const Trace both = run(with_context(config, {.context = 4, .kind = ContextKind::UlyssesRing}));
  const Trace ring = run(with_context(config, {.context = 2, .tensor = 2, .kind = ContextKind::Ring}));
  EXPECT_NEAR(loss_of(both, 0), loss_of(ring, 0), 0x1p-20 * loss_of(ring, 0));
  EXPECT_NEAR(both.grad_norms[0], ring.grad_norms[0], 0x1p-19 * ring.grad_norms[0]);
}

// A checkpoint says nothing about who had which tokens.
TEST_P(ContextEquivalence, ACheckpointGoesOnWithAnotherNumberOfContextRanks) {
  const TemporaryFolder folder;
  TinyRun first = with_context(config(), {.context = 4, .stage = 2});
  first.steps = 2;
  first.save_to = folder.path();
  run(first);
  const auto loss_after_resuming = [&](const ContextLayout& layout, double dropout) {
    TinyRun rest = with_context(config(), layout);
    rest.config.model.dropout = dropout;
    rest.load_from = folder.path();
    return loss_of(run(rest), 0);
  };
  for (const ContextLayout& layout :
       {ContextLayout{.context = 2, .data = 2, .stage = 3}, ContextLayout{.context = 2, .pipeline = 2},
        ContextLayout{.context = 4, .kind = ContextKind::UlyssesRing}}) {
    if (layout.has_ring() && GetParam().documents) continue;
    const double dropout = layout.has_ring() ? 0 : config().model.dropout;
    const double one = loss_after_resuming({}, dropout);
    EXPECT_NEAR(loss_after_resuming(layout, dropout), one, (GetParam().bf16 ? 0x1p-5 : 0x1p-20) * one) << to_string(layout);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, ContextEquivalence,
    testing::Values(
        ContextModel{.name = "gpt_documents_fp32", .type = model::Type::Gpt, .documents = true},
        ContextModel{.name = "llama_fp32_2_keys", .type = model::Type::Llama, .key_value_heads = 2},
        ContextModel{
            .name = "llama_bf16", .type = model::Type::Llama, .bf16 = true, .key_value_heads = 8, .normalized_queries = true},
        ContextModel{
            .name = "llama_documents_lora", .type = model::Type::Llama, .key_value_heads = 8, .lora = true, .documents = true},
        ContextModel{.name = "pairs_fp32", .type = model::Type::Gpt, .objective = model::Objective::Dpo},
        ContextModel{.name = "pairs_of_documents_lora",
                     .type = model::Type::Llama,
                     .objective = model::Objective::Dpo,
                     .key_value_heads = 8,
                     .lora = true,
                     .documents = true}),
    [](const auto& which) { return which.param.name; });

}  // namespace
}  // namespace trivet::test
