// Mixtures of experts: how many tokens an expert has follows from the data, and bits still do not depend on the layout.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "tests/engine/random_configs.h"
#include "tests/equivalence/tiny_run.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

struct ExpertLayout {
  int data = 1, expert = 1, tensor = 1, context = 1, pipeline = 1, stage = 0;
  ScheduleKind schedule = ScheduleKind::OneForwardOneBackward;
  Recompute recompute = Recompute::None;
  bool overlap = false;
  ContextKind kind = ContextKind::Auto;
};

std::string to_string(const ExpertLayout& x) {
  return fmt::format("data {} expert {} tensor {} context {} {} pipeline {} stage {} {} recompute {}{}", x.data, x.expert,
                     x.tensor, x.context, name_of(x.kind), x.pipeline, x.stage, name_of(x.schedule), name_of(x.recompute),
                     x.overlap ? " overlap" : "");
}

TinyRun placed(Config config, const ExpertLayout& layout) {
  config.parallel.expert = layout.expert;
  config.parallel.tensor = layout.tensor;
  config.parallel.context = layout.context;
  config.parallel.context_kind = layout.kind;
  config.parallel.pipeline = layout.pipeline;
  config.pipeline.schedule = layout.schedule;
  config.zero.stage = layout.stage;
  config.zero.overlap_comm = layout.overlap;
  config.recompute = layout.recompute;
  return {.ranks = layout.data * layout.tensor * layout.context * layout.pipeline, .steps = 3, .config = config};
}

struct ExpertModel {
  const char* name;
  model::Experts experts;
  bool bf16 = false;
  std::vector<std::string> adapted{};  // a LoRA of these targets
};

class ExpertEquivalence : public testing::TestWithParam<ExpertModel> {
 protected:
  Config config() const {
    Config config = tiny_config(model::Type::Llama);
    config.model.heads = config.model.key_value_heads = 8;
    config.model.dropout = 0;  // a ring has draws of its own
    config.model.experts = GetParam().experts;
    config.bf16.enabled = GetParam().bf16;
    config.reproducible = Reproducible::Layout;
    config.parallel.context_grain = 8;
    if (!GetParam().adapted.empty()) config.model.lora = {.rank = 2, .alpha = 4, .targets = GetParam().adapted};
    return config;
  }
};

TEST_P(ExpertEquivalence, LayoutModeGivesTheBitsOfOneRank) {
  const Trace one = run(placed(config(), {}));
  const int64_t blocks = config().model.layers - static_cast<int64_t>(GetParam().experts.dense_blocks.size());
  ASSERT_EQ(one.experts.size(), blocks);
  for (const ExpertLoad& block : one.experts)
    EXPECT_EQ(block.total(), config().batch.train_batch_size * config().model.sequence_length * GetParam().experts.per_token);
  for (const ExpertLayout& layout :
       {ExpertLayout{.data = 2, .stage = 3, .overlap = true}, ExpertLayout{.tensor = 2},
        ExpertLayout{.context = 8, .kind = ContextKind::Gather}, ExpertLayout{.data = 3, .tensor = 2, .stage = 1},
        ExpertLayout{.tensor = 4, .recompute = Recompute::Full},
        ExpertLayout{.context = 4, .stage = 2, .recompute = Recompute::Full, .kind = ContextKind::Gather},
        ExpertLayout{.data = 2, .pipeline = 2, .stage = 2, .schedule = ScheduleKind::ZeroBubbleH1},
        ExpertLayout{.tensor = 2, .context = 2, .pipeline = 2, .stage = 3, .recompute = Recompute::Selective, .overlap = true},
        ExpertLayout{.pipeline = 2, .schedule = ScheduleKind::GPipe, .recompute = Recompute::Full}})
    EXPECT_EQ(difference(one, run(placed(config(), layout))), "") << to_string(layout);
}

// Ranks that share experts send each other the rows of one microbatch at a time, whose gradients are rounded by themselves.
// Context ranks have parts of one, which are a sum before that, be all of them among those ranks or not.
TEST_P(ExpertEquivalence, RanksThatShareExpertsHaveTheBitsOfOneRank) {
  const Trace one = run(placed(config(), {}));
  for (const ExpertLayout& layout :
       {ExpertLayout{.data = 2, .expert = 2}, ExpertLayout{.data = 4, .expert = 4, .stage = 1},
        ExpertLayout{.data = 4, .expert = 2, .stage = 3, .overlap = true},
        ExpertLayout{.data = 6, .expert = 2, .stage = 2, .recompute = Recompute::Full},
        ExpertLayout{.data = 2, .expert = 2, .tensor = 2, .stage = 3, .recompute = Recompute::Selective},
        ExpertLayout{.data = 2, .expert = 2, .tensor = 2, .pipeline = 2, .recompute = Recompute::Full, .overlap = true},
        ExpertLayout{.data = 4, .expert = 4, .pipeline = 2, .stage = 2, .schedule = ScheduleKind::Interleaved},
        ExpertLayout{.expert = 2, .context = 2, .stage = 1},
        ExpertLayout{.data = 2, .expert = 2, .context = 4, .stage = 3, .kind = ContextKind::Gather},
        ExpertLayout{.data = 2, .expert = 4, .context = 2, .pipeline = 2, .stage = 2, .recompute = Recompute::Full},
        ExpertLayout{.expert = 4, .tensor = 2, .context = 4, .kind = ContextKind::Gather},
        ExpertLayout{.expert = 2, .context = 8, .stage = 2, .overlap = true, .kind = ContextKind::Gather},
        ExpertLayout{.data = 3, .expert = 2, .context = 2, .stage = 3}})
    EXPECT_EQ(difference(one, run(placed(config(), layout))), "") << to_string(layout);
}

// Leaves have rows of several sequences, which are in other places on other numbers of ranks.
TEST_P(ExpertEquivalence, MicrobatchesOfSeveralSequencesHaveTheBitsOfOneRank) {
  Config several = config();
  several.batch.micro_batch_size = 2;
  const Trace one = run(placed(several, {}));
  for (const ExpertLayout& layout :
       {ExpertLayout{.context = 2, .kind = ContextKind::Gather},
        ExpertLayout{.tensor = 2, .context = 4, .kind = ContextKind::Gather},
        ExpertLayout{.data = 2, .expert = 4, .context = 2, .stage = 3},
        ExpertLayout{.expert = 2, .context = 4, .stage = 1, .recompute = Recompute::Full, .kind = ContextKind::Gather}})
    EXPECT_EQ(difference(one, run(placed(several, layout))), "") << to_string(layout);
}

// Documents leave padding, whose targets do not count: neither in the model's loss nor in those of routers.
TEST(ExpertLosses, OfDocumentsHaveTheBitsOfOneRank) {
  Config config = tiny_config(model::Type::Llama);
  config.model.heads = config.model.key_value_heads = 8;
  config.model.dropout = 0;
  config.model.isolated_documents = true;
  config.model.experts = {.count = 8, .per_token = 3, .feed_forward_size = 8, .balance_loss = 0.5, .z_loss = 0.1};
  config.reproducible = Reproducible::Layout;
  config.parallel.context_grain = 4;
  const Trace one = run(placed(config, {}));
  for (const ExpertLayout& layout :
       {ExpertLayout{.data = 2, .expert = 2, .stage = 3}, ExpertLayout{.tensor = 2, .context = 2, .kind = ContextKind::Gather},
        ExpertLayout{.data = 2, .expert = 4, .context = 2, .pipeline = 2, .stage = 1, .kind = ContextKind::Gather}})
    EXPECT_EQ(difference(one, run(placed(config, layout))), "") << to_string(layout);
}

// Without fixed sums, the rest of what is promised: the training of one rank but for rounding.
TEST_P(ExpertEquivalence, RunModeIsTheTrainingOfOneRankButForRounding) {
  if (GetParam().bf16) return;  // a near tie may be another choice
  Config other = config();
  other.reproducible = Reproducible::Run;
  other.parallel.context_grain = 1;
  const Trace one = run(placed(other, {}));
  for (const ExpertLayout& layout :
       {ExpertLayout{.data = 2, .tensor = 2, .stage = 3}, ExpertLayout{.tensor = 4},
        ExpertLayout{.context = 4, .kind = ContextKind::Ring}, ExpertLayout{.context = 2, .pipeline = 2},
        ExpertLayout{.data = 2, .expert = 4, .context = 2, .stage = 3},
        ExpertLayout{.data = 2, .expert = 2, .tensor = 2, .stage = 2, .overlap = true}})
    EXPECT_EQ(difference_beyond_rounding(one, run(placed(other, layout))), "") << to_string(layout);
}

TEST_P(ExpertEquivalence, ACheckpointGoesOnWithAnotherLayout) {
  const TemporaryFolder folder;
  TinyRun first = placed(config(), {.tensor = 2, .context = 2, .stage = 2});
  first.steps = 2;
  first.save_to = folder.path();
  run(first);
  const auto resumed = [&](const ExpertLayout& layout) {
    TinyRun rest = placed(config(), layout);
    rest.load_from = folder.path();
    return run(rest);
  };
  EXPECT_EQ(difference(resumed({}), resumed({.data = 2, .tensor = 4, .stage = 3})), "");
}

// A checkpoint says nothing about who had which experts.
TEST_P(ExpertEquivalence, ACheckpointGoesOnWithAnotherNumberOfExpertRanks) {
  const TemporaryFolder folder;
  Config fixed = config();
  fixed.parallel.context_grain = 1;
  TinyRun first = placed(fixed, {.data = 4, .expert = 4, .stage = 1});
  first.steps = 2;
  first.save_to = folder.path();
  run(first);
  const auto resumed = [&](const ExpertLayout& layout) {
    TinyRun rest = placed(fixed, layout);
    rest.load_from = folder.path();
    return run(rest);
  };
  const Trace one = resumed({});
  EXPECT_EQ(difference(one, resumed({.data = 4, .expert = 2, .stage = 3})), "");
  EXPECT_EQ(difference(one, resumed({.data = 2, .expert = 2, .tensor = 2, .pipeline = 2})), "");
  fixed.optimizer.type = OptimizerType::Muon;
  EXPECT_EQ(difference(run(placed(fixed, {})), run(placed(fixed, {.data = 4, .expert = 2, .stage = 2}))), "") << "Muon";
  fixed.optimizer.type = OptimizerType::AdamW;
  EXPECT_EQ(difference(one, run(placed(fixed, {.data = 2, .expert = 2, .stage = 3}))).find("loss of step 0"), 0u)
      << "three steps from the beginning are not the third alone";
}

// A block with other parameters: those after its own ones are not its affair.
class ChangedBlock : public Layer {
 public:
  explicit ChangedBlock(std::unique_ptr<Layer> block)
      : parameters_(block->parameters().begin(), block->parameters().end()), block_(std::move(block)) {}
  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  Shape output_shape(const Shape& input) const override { return block_->output_shape(input); }
  bool allows_context_parallelism() const override { return true; }
  int64_t experts() const override { return block_->experts(); }
  void forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const override {
    block_->forward(context, own(weights), x, y, saved);
  }
  void forward_again(Context& context, Weights weights, ConstTensorView x, Saved& saved) const override {
    block_->forward_again(context, own(weights), x, saved);
  }
  void backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const override {
    block_->backward_input(context, own(weights), dy, dx, saved);
  }
  void backward_weight(Context& context, Gradients gradients, const Saved& saved) const override {
    block_->backward_weight(context, own(gradients), saved);
  }
  void backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                Saved& saved) const override {
    block_->backward(context, own(weights), own(gradients), dy, dx, saved);
  }

 protected:
  std::vector<ParameterSpec> parameters_;

 private:
  template <typename Span>
  Span own(Span all) const {
    return all.first(block_->parameters().size());
  }

  std::unique_ptr<Layer> block_;
};

// A block with a router that is another one in every step, and whose choices are extreme: of rows that are 0 or equal, so that
// scores are; of one expert that gets all tokens, or none; of scores that are 0 or 1.
class WithHostileRouter final : public ChangedBlock {
 public:
  WithHostileRouter(std::unique_ptr<Layer> block, int number) : ChangedBlock(std::move(block)), number_(number) {
    const auto router = std::ranges::find(parameters_, "mlp.router.weight", &ParameterSpec::name);
    router_ = static_cast<size_t>(router - parameters_.begin());
  }
  void forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const override {
    const ScopedTensor router = made(context, weights[router_].shape);
    ChangedBlock::forward(context, with(router, weights), x, y, saved);
  }
  void forward_again(Context& context, Weights weights, ConstTensorView x, Saved& saved) const override {
    const ScopedTensor router = made(context, weights[router_].shape);
    ChangedBlock::forward_again(context, with(router, weights), x, saved);
  }
  void backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                Saved& saved) const override {
    const ScopedTensor router = made(context, weights[router_].shape);
    ChangedBlock::backward(context, with(router, weights), gradients, dy, dx, saved);
  }

 private:
  ScopedTensor made(Context& context, const Shape& shape) const {
    std::mt19937 random(static_cast<uint32_t>(number_ * 1000 + static_cast<int>(context.random.step.value())));
    const int64_t experts = shape[0], hidden = shape[1];
    std::vector<float> values(static_cast<size_t>(experts * hidden));
    const auto mode = random() % 5;
    const auto one = static_cast<int64_t>(random() % static_cast<uint32_t>(experts));
    for (int64_t expert = 0; expert < experts; ++expert)
      for (int64_t i = 0; i < hidden; ++i) {
        float& value = values[static_cast<size_t>(expert * hidden + i)];
        const float draw = static_cast<float>(random() % 2001) / 1000 - 1;
        if (mode == 0) value = 0;
        if (mode == 1) value = expert % 2 == 0 ? draw : values[static_cast<size_t>((expert - 1) * hidden + i)];
        if (mode == 2) value = expert == one ? 1000 : 0;  // with norms before routers it has the most or the least score
        if (mode == 3) value = 1000 * draw;
        if (mode == 4) value = expert < one ? draw : 0;
      }
    ScopedTensor router(context.arena, DType::Float32, shape);
    context.kernels.from_host({values.data(), DType::Float32, shape}, router);
    return router;
  }
  std::vector<ConstTensorView> with(const ScopedTensor& router, Weights weights) const {
    std::vector<ConstTensorView> changed(weights.begin(), weights.end());
    changed[router_] = router;
    return changed;
  }

  int number_;
  size_t router_ = 0;
};

// A block of which nothing is trained but four numbers, one of each expert. Their gradients in a step are 2, 4, 6 and 8: each
// rank adds its tokens' share of that of its own experts, on behalf of those that share the experts with it.
class WithFourNumbers final : public ChangedBlock {
 public:
  explicit WithFourNumbers(std::unique_ptr<Layer> block) : ChangedBlock(std::move(block)) {
    for (ParameterSpec& parameter : parameters_) parameter.trainable = false;
    parameters_.push_back({.name = "numbers", .shape = {4, 1}, .sharing = Sharing::Expert, .matrices = 4});
  }
  void backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                Saved& saved) const override {
    ChangedBlock::backward(context, weights, gradients, dy, dx, saved);
    const Gradient& gradient = gradients.back();
    const comm::RankAxis* ranks = context.axes[Axis::Expert];
    const int64_t own = gradient.view.elements(), first = ranks ? ranks->rank() * own : 0;
    std::vector<float> numbers;
    for (int64_t expert = first; expert < first + own; ++expert)
      numbers.push_back(static_cast<float>(2 * (expert + 1) * dy.shape.rows() * (ranks ? ranks->size() : 1)) *
                        static_cast<float>(context.gradient_scale.value()));
    const ScopedTensor share(context.arena, DType::Float32, gradient.view.shape);
    context.kernels.from_host({numbers.data(), DType::Float32, gradient.view.shape}, share);
    gradient.accumulate ? context.kernels.add(share, gradient.view) : context.kernels.copy(share, gradient.view);
  }
};

// The norm of a step's gradients is that of all experts', wherever they are: sqrt(2^2 + 4^2 + 6^2 + 8^2) = sqrt(120). Means
// over the ranks of an expert, or of the norms of ranks, are other numbers (DeepSpeed issue 8475: 7.236).
TEST(NormOfExperts, DoesNotDependOnWhereTheyAre) {
  const auto norm_of = [](const ExpertLayout& layout, Reproducible reproducible) {
    Config config = tiny_config(model::Type::Llama);
    config.model.experts = {.count = 4, .per_token = 2, .feed_forward_size = 16};
    config.reproducible = reproducible;
    TinyRun tiny = placed(config, layout);
    tiny.steps = 1;
    tiny.change = [](model::Model& model) { model.layers[1] = std::make_unique<WithFourNumbers>(std::move(model.layers[1])); };
    tiny.frozen = {"embedding", "blocks.1", "head"};
    return run(tiny).grad_norms.at(0);
  };
  for (const Reproducible reproducible : {Reproducible::Run, Reproducible::Layout})
    for (const ExpertLayout& layout :
         {ExpertLayout{}, ExpertLayout{.data = 2}, ExpertLayout{.data = 2, .expert = 2}, ExpertLayout{.data = 4, .expert = 2},
          ExpertLayout{.data = 4, .expert = 4, .stage = 2}, ExpertLayout{.data = 4, .expert = 2, .stage = 3},
          ExpertLayout{.data = 2, .expert = 2, .tensor = 2, .stage = 1}, ExpertLayout{.data = 2, .expert = 2, .pipeline = 2}})
      EXPECT_NEAR(norm_of(layout, reproducible), std::sqrt(120.0), 1e-5) << to_string(layout);
}

// Nobody waits for a rank without rows, and nothing but the planned memory is needed (an arena never grows). Each run has six
// routings in each of its 12 microbatches.
TEST(HostileRouters, HaveTheBitsOfOneRankInPlannedMemory) {
  const int runs = number_from("TRIVET_HOSTILE_ROUTERS", 12);
  double fullest = 0;
  int64_t idle = 0;
  for (int number = 0; number < runs; ++number) {
    const auto traced = [&](const ExpertLayout& layout) {
      Config config = tiny_config(model::Type::Llama);
      config.model.experts = {.count = 12, .per_token = number % 2 == 0 ? 1 : 3, .feed_forward_size = 8};
      config.reproducible = Reproducible::Layout;
      config.parallel.context_grain = 4;
      if (number % 2 == 1) config.model.lora = {.rank = 2, .alpha = 4, .targets = {"all-linear", ".*mlp.experts.*"}};
      TinyRun tiny = placed(config, layout);
      tiny.change = [&](model::Model& model) {
        for (auto& layer : model.layers)
          if (layer->experts() > 0) layer = std::make_unique<WithHostileRouter>(std::move(layer), number);
      };
      return run(tiny);
    };
    static const std::array layouts{ExpertLayout{.data = 4, .expert = 4, .stage = 3, .overlap = true},
                                    ExpertLayout{.data = 4, .expert = 2, .tensor = 2, .recompute = Recompute::Full},
                                    ExpertLayout{.data = 3, .expert = 3, .pipeline = 2, .stage = 2},
                                    ExpertLayout{.data = 2, .expert = 2, .context = 4, .stage = 3, .kind = ContextKind::Gather},
                                    // One microbatch each, and gradients of twelve.
                                    ExpertLayout{.data = 12, .expert = 12, .stage = 1}};
    const ExpertLayout& layout = layouts.at(static_cast<size_t>(number) % layouts.size());
    const Trace one = traced({});
    for (const ExpertLoad& block : one.experts) {
      fullest = std::max(fullest, block.fullest());
      idle = std::max(idle, block.idle());
    }
    EXPECT_EQ(difference(one, traced(layout)), "") << to_string(layout) << ", router " << number;
  }
  EXPECT_EQ(fullest, 12) << "no expert got all tokens";
  EXPECT_EQ(idle, 11);
}

// Each expert's matrices are updated by themselves: the singular values of its update are near 1, whatever the others' are.
TEST(MuonOfExperts, OrthogonalizesTheMatricesOfEachExpert) {
  Config config = tiny_config(model::Type::Llama);
  config.model.experts = {.count = 4, .per_token = 2, .feed_forward_size = config.model.hidden_size / 2};
  config.optimizer.type = OptimizerType::Muon;
  config.optimizer.lr = 0.01;
  config.optimizer.weight_decay = 0;
  const auto weights_after = [&](int64_t steps) {
    return run({.ranks = 2, .steps = steps, .config = config}).weights.at("blocks.0.mlp.experts.gate_up.weight");
  };
  const std::vector<float> before = weights_after(1), after = weights_after(2);
  const auto size = static_cast<size_t>(config.model.hidden_size);
  for (size_t expert = 0; expert < 4; ++expert) {
    const auto at = [&](size_t row, size_t col) {
      const size_t element = (expert * size + row) * size + col;
      return (after.at(element) - before.at(element)) / config.optimizer.lr;
    };
    double second = 0, fourth = 0;  // sums of powers of the singular values
    for (size_t row = 0; row < size; ++row)
      for (size_t other = 0; other < size; ++other) {
        double product = 0;
        for (size_t col = 0; col < size; ++col) product += at(row, col) * at(other, col);
        fourth += product * product;
        if (row == other) second += product;
      }
    const auto count = static_cast<double>(size);
    EXPECT_NEAR(second / count, 1, 0.4) << "expert " << expert;
    // With all experts as one matrix it would be more than 1.4.
    EXPECT_LT(fourth / count, 1.2 * std::pow(second / count, 2)) << "expert " << expert;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, ExpertEquivalence,
    testing::Values(
        ExpertModel{.name = "softmax", .experts = {.count = 4, .per_token = 2, .feed_forward_size = 16}},
        ExpertModel{.name = "many_small_with_losses",
                    .experts = {.count = 16,
                                .per_token = 5,
                                .feed_forward_size = 8,
                                .shared_feed_forward_size = 8,
                                .dense_blocks = {1},
                                .shared_gate = true,
                                .rule = {.normalize = false},
                                .bias = true,
                                .correction_bias = true,
                                .bias_update_rate = 0.01,
                                .balance_loss = 0.02,
                                .z_loss = 0.001}},
        ExpertModel{
            .name = "sigmoids_in_groups_bf16",
            .experts = {.count = 8,
                        .per_token = 2,
                        .feed_forward_size = 16,
                        .shared_feed_forward_size = 24,
                        .rule = {.score = kernels::ExpertScore::Sigmoid, .scale = 1.5, .groups = 4, .groups_per_token = 2},
                        .correction_bias = true,
                        .balance_loss = 0.01},
            .bf16 = true},
        ExpertModel{.name = "gated_bf16",
                    .experts = {.count = 4,
                                .per_token = 2,
                                .feed_forward_size = 16,
                                .shared_feed_forward_size = 16,
                                .shared_gate = true,
                                .bias = true,
                                .swiglu = {.limit = 0.5, .alpha = 1.7, .offset = 1}},
                    .bf16 = true},
        ExpertModel{.name = "frozen_one_each",
                    .experts = {.count = 4, .per_token = 1, .feed_forward_size = 16, .correction_bias = true},
                    .bf16 = true,
                    .adapted = {"all-linear", "mlp.experts.down_proj"}},
        ExpertModel{.name = "adapted_gate_up_bf16",
                    .experts = {.count = 4, .per_token = 2, .feed_forward_size = 16},
                    .bf16 = true,
                    .adapted = {"mlp.experts.gate_up"}},
        ExpertModel{.name = "adapted",
                    .experts = {.count = 4,
                                .per_token = 2,
                                .feed_forward_size = 16,
                                .shared_feed_forward_size = 16,
                                .shared_gate = true,
                                .bias = true},
                    .adapted = {"all-linear", "mlp.experts.gate_up", "mlp.experts.down"}}),
    [](const auto& which) { return which.param.name; });

}  // namespace
}  // namespace trivet::test
