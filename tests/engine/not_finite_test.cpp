// After a skipped step the engine names the first tensor that was not finite: which one, in which microbatch, on which rank.
#include "engine/not_finite.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <vector>

#include "comm/world.h"
#include "engine/divergence.h"
#include "engine/engine.h"
#include "tests/engine/small_plan.h"

namespace trivet {
namespace {

enum class Poisoned { Output, InputGradient, WeightGradient };

// A layer that spoils one element of one tensor for one sample.
class Spoils final : public Layer {
 public:
  Spoils(std::unique_ptr<Layer> layer, Poisoned what, int64_t sample)
      : layer_(std::move(layer)), what_(what), sample_(sample) {}
  std::span<const ParameterSpec> parameters() const override { return layer_->parameters(); }
  Shape output_shape(const Shape& input) const override { return layer_->output_shape(input); }
  LayerRole role() const override { return layer_->role(); }
  void forward(Context& c, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const override {
    layer_->forward(c, weights, x, y, saved);
    spoil(c, Poisoned::Output, y);
  }
  void backward_input(Context& c, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const override {
    layer_->backward_input(c, weights, dy, dx, saved);
    spoil(c, Poisoned::InputGradient, dx);
  }
  void backward_weight(Context& c, Gradients gradients, const Saved& saved) const override {
    layer_->backward_weight(c, gradients, saved);
    spoil(c, Poisoned::WeightGradient, gradients[2].view);
  }
  void backward(Context& c, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                Saved& saved) const override {
    layer_->backward(c, weights, gradients, dy, dx, saved);
    spoil(c, Poisoned::InputGradient, dx);
    spoil(c, Poisoned::WeightGradient, gradients[2].view);
  }

 private:
  void spoil(const Context& c, Poisoned what, TensorView tensor) const {
    if (what == what_ && c.training && c.microbatch->first_sample == sample_) tensor.as<float>()[5] = HUGE_VALF;
  }
  std::unique_ptr<Layer> layer_;
  Poisoned what_;
  int64_t sample_;
};

struct SpoiledStep {
  Config config = small_config();
  int ranks = 1;
  Poisoned what = Poisoned::Output;
  int64_t sample = 0;
};

// What is reported after one step, by the rule that the trainer uses for all ranks. Each rank's own find is in `of_rank`.
std::string first_of(const SpoiledStep& run, std::vector<std::optional<NotFinite>>& of_rank) {
  of_rank.assign(run.ranks, std::nullopt);
  const Plan plan = plan_of(run.config, run.ranks);
  comm::run_threads(run.ranks, [&](comm::World& world) {
    model::Model model = model_of(run.config);
    model.layers[2] = std::make_unique<Spoils>(std::move(model.layers[2]), run.what, run.sample);
    Engine engine(plan, std::move(model), world);
    const Shape shape{plan.batch.micro_batch_size, run.config.model.sequence_length};
    const std::vector<int32_t> tokens(shape.elements(), 3);
    const ConstTensorView view{tokens.data(), DType::Int32, shape};
    std::vector<Microbatch> batch;
    const BatchLayout layout = plan.batch_layout(world.rank());
    for (int64_t m = 0; m < plan.batch.gradient_accumulation_steps; ++m)
      batch.push_back({view, view, m * layout.data_size + layout.data_rank});
    EXPECT_TRUE(engine.train_batch(batch).skipped);
    of_rank[world.rank()] = engine.search_last_step(batch);
  });
  std::optional<NotFinite> first;
  for (const auto& found : of_rank)
    if (found && (!first || *found < *first)) first = parse_not_finite(to_text(*found));
  return first ? to_sentence(*first) : "none";
}

std::string first_of(const SpoiledStep& run) {
  std::vector<std::optional<NotFinite>> of_rank;
  return first_of(run, of_rank);
}

TEST(NotFinite, NamesTheOutputTheMicrobatchAndTheDataRank) {
  std::vector<std::optional<NotFinite>> of_rank;
  EXPECT_EQ(first_of({.ranks = 2, .sample = 7}, of_rank),
            "the output of blocks.1 in microbatch 3 on rank 1 (element 5 is inf)");
  EXPECT_FALSE(of_rank[0]) << "rank 0 has other samples";
}

TEST(NotFinite, NamesAGradientOfAWeightOrOfAnInput) {
  const std::string weight(model_of(small_config()).layers[2]->parameters()[2].name);
  EXPECT_EQ(first_of({.what = Poisoned::WeightGradient, .sample = 4}),
            "the gradient of blocks.1." + weight + " in microbatch 4 on rank 0 (element 5 is inf)");
  EXPECT_EQ(first_of({.what = Poisoned::InputGradient, .sample = 4}),
            "the gradient of the input of blocks.1 in microbatch 4 on rank 0 (element 5 is inf)");
}

// The report names the stage that made the tensor, not the next one, where tensors are not finite as a result.
TEST(NotFinite, NamesTheStageOfAPipelineWhereItBegan) {
  for (const auto kind : {ScheduleKind::OneForwardOneBackward, ScheduleKind::ZeroBubbleH1}) {
    SpoiledStep run{.ranks = 2, .sample = 5};
    run.config.parallel.pipeline = 2;
    run.config.pipeline.schedule = kind;
    std::vector<std::optional<NotFinite>> of_rank;
    EXPECT_EQ(first_of(run, of_rank), "the output of blocks.1 in microbatch 5 on rank 0 (element 5 is inf)");
    ASSERT_TRUE(of_rank[1]);
    EXPECT_EQ(of_rank[1]->microbatch, 5);
    run.what = Poisoned::InputGradient;
    EXPECT_EQ(first_of(run), "the gradient of the input of blocks.1 in microbatch 5 on rank 0 (element 5 is inf)");
    run.what = Poisoned::WeightGradient;  // ZB-H1 computes some of them apart from those of inputs
    const std::string weight(model_of(run.config).layers[2]->parameters()[2].name);
    for (run.sample = 0; run.sample < 12; ++run.sample)
      EXPECT_EQ(first_of(run),
                fmt::format("the gradient of blocks.1.{} in microbatch {} on rank 0 (element 5 is inf)", weight, run.sample));
  }
}

TEST(NotFinite, IsFoundInEveryStageAndInLayoutMode) {
  for (int stage = 0; stage <= 3; ++stage)
    for (const Reproducible mode : {Reproducible::Run, Reproducible::Layout}) {
      SpoiledStep run{.ranks = 2, .what = Poisoned::WeightGradient, .sample = 3};
      run.config.zero.stage = stage;
      run.config.reproducible = mode;
      const std::string found = first_of(run);
      EXPECT_TRUE(found.ends_with(" in microbatch 1 on rank 1 (element 5 is inf)")) << "stage " << stage << ": " << found;
    }
}

// A schedule may run the backward of microbatch 0 before the forward of microbatch 3. All ranks choose the same one of two
// finds, so the report names the rank where that one began.
TEST(NotFinite, EachRankKeepsTheFirstFindInTheOrderOfCauses) {
  const model::Model model = model_of(small_config());
  const auto kernels = kernels::make_cpu_kernels(1);
  NotFiniteSearch search(model, *kernels, 1);
  const std::vector<float> bad{0, HUGE_VALF}, good{0, 1};
  const ConstTensorView not_finite{bad.data(), DType::Float32, {2}}, finite{good.data(), DType::Float32, {2}};
  const auto found = [&] { return search.found() ? to_sentence(*search.found()) : "none"; };
  search.look_at_input_gradient(2, 0, not_finite);
  EXPECT_EQ(found(), "the gradient of the input of blocks.1 in microbatch 0 on rank 1 (element 1 is inf)");
  search.look_at_output(2, 3, not_finite);
  EXPECT_EQ(found(), "the output of blocks.1 in microbatch 3 on rank 1 (element 1 is inf)");
  search.look_at_output(1, 3, finite);
  search.look_at_output(3, 3, not_finite);
  search.look_at_input_gradient(1, 0, not_finite);
  EXPECT_EQ(found(), "the output of blocks.1 in microbatch 3 on rank 1 (element 1 is inf)");
  search.look_at_output(1, 3, not_finite);
  EXPECT_EQ(found(), "the output of blocks.0 in microbatch 3 on rank 1 (element 1 is inf)");
}

// The loss is infinite but gradients are finite, so the step is not skipped and the weights stay finite, too.
class InfiniteLoss final : public Layer {
 public:
  explicit InfiniteLoss(std::unique_ptr<Layer> layer) : layer_(std::move(layer)) {}
  std::span<const ParameterSpec> parameters() const override { return layer_->parameters(); }
  Shape output_shape(const Shape& input) const override { return layer_->output_shape(input); }
  LayerRole role() const override { return layer_->role(); }
  void forward(Context& c, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const override {
    layer_->forward(c, weights, x, y, saved);
  }
  void backward_input(Context& c, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const override {
    layer_->backward_input(c, weights, dy, dx, saved);
  }
  void backward_weight(Context& c, Gradients gradients, const Saved& saved) const override {
    layer_->backward_weight(c, gradients, saved);
  }
  void forward_backward(Context& c, Weights weights, Gradients gradients, ConstTensorView x, TensorView dx,
                        Saved& saved) const override {
    layer_->forward_backward(c, weights, gradients, x, dx, saved);
    if (c.microbatch->first_sample == 4) c.loss.as<double>()[0] = HUGE_VAL;
  }

 private:
  std::unique_ptr<Layer> layer_;
};

TEST(NotFinite, IsSearchedForWhenALossIsInfiniteAndTheWeightsAreNot) {
  const Config config = small_config();
  const Plan plan = plan_of(config, 1);
  comm::run_threads(1, [&](comm::World& world) {
    model::Model model = model_of(config);
    model.layers.back() = std::make_unique<InfiniteLoss>(std::move(model.layers.back()));
    Engine engine(plan, std::move(model), world);
    const std::vector<int32_t> tokens(config.model.sequence_length, 3);
    const ConstTensorView view{tokens.data(), DType::Int32, {1, config.model.sequence_length}};
    std::vector<Microbatch> batch;
    for (int64_t m = 0; m < plan.batch.gradient_accumulation_steps; ++m) batch.push_back({view, view, m});
    EXPECT_THROW(engine.search_last_step(batch), std::logic_error) << "no step was done";
    const StepResult result = engine.train_batch(batch);
    EXPECT_FALSE(result.skipped);
    Divergence divergence(engine, {}, [&] { return batch; });
    try {
      divergence.check_step(result);
      ADD_FAILURE() << "an infinite loss is no success";
    } catch (const NumericsError& error) {
      EXPECT_THAT(error.what(),
                  testing::HasSubstr("; step 1 was repeated with the weights that it produced: the first tensor that "
                                     "is not finite is the loss in microbatch 4 on rank 0 (element 0 is inf); "
                                     "no step had changed a weight before, so that no learning rate helps: look at"));
    }
  });
}

TEST(NotFinite, CausesComeBeforeTheirEffects) {
  using Pass = NotFinite::Pass;
  const NotFinite late_forward{
      .pass = Pass::Forward, .microbatch = 3, .place = 2, .rank = 1, .what = "a", .element = 0, .value = 0};
  NotFinite other = late_forward;
  other.pass = Pass::Backward, other.microbatch = 0;
  EXPECT_LT(late_forward, other);
  other = late_forward, other.microbatch = 4, other.place = 0;
  EXPECT_LT(late_forward, other);
  other = late_forward, other.place = 3, other.rank = 0;
  EXPECT_LT(late_forward, other);
  other = late_forward, other.rank = 2;
  EXPECT_LT(late_forward, other);
}

}  // namespace
}  // namespace trivet
