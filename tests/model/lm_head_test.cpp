#include "model/lm_head.h"

#include <gtest/gtest.h>

#include "tests/model/whole_model.h"

namespace trivet::model {
namespace {

constexpr int64_t kVocabulary = 11, kHeadInput = 6;

LmHead head_with(int64_t rows_of_chunk) {
  return LmHead({.vocabulary = kVocabulary, .hidden = kHeadInput, .rows_of_chunk = rows_of_chunk},
                make_norm(NormKind::LayerNorm, kHeadInput, 1e-5, true));
}

// Holds the weights, gradients and input of a head, in float64, and runs the head.
struct HeadRun {
  explicit HeadRun(Batch given) : batch(std::move(given)) {
    uint64_t key = 0;
    const LmHead head = head_with(0);
    for (const ParameterSpec& parameter : head.parameters()) {
      weights.push_back(make(parameter.shape, ++key));
      gradients.push_back(make(parameter.shape, 0));
    }
    x = make({batch.sequences, batch.length, kHeadInput}, 9);
    dx = make({batch.sequences, batch.length, kHeadInput}, 0);
  }
  Buffer make(const Shape& shape, uint64_t key) {
    Buffer buffer(host_allocator(), meter, MemoryCategory::Buffers, DType::Float64, shape);
    if (key) kernels->initialize(buffer.view(), {Init::Kind::Normal, 0.5}, key, 0);
    return buffer;
  }
  double train(const LmHead& head, double loss_scale = 1.0, size_t frozen = 99) {
    std::vector<ConstTensorView> weight_views;
    std::vector<Gradient> gradient_views;
    for (Buffer& weight : weights) weight_views.push_back(weight.view());
    for (size_t i = 0; i < gradients.size(); ++i)
      gradient_views.push_back(i == frozen ? Gradient{} : Gradient{gradients[i].view(), false});
    const Microbatch microbatch = batch.view();
    Context context{*kernels, arena, &microbatch, {}, true, loss_scale / static_cast<double>(batch.targets.size())};
    double loss[2] = {};
    context.loss = {loss, DType::Float64, {2}};
    Saved saved;
    head.forward_backward(context, weight_views, gradient_views, x.view(), dx.view(), saved);
    loss_tokens = static_cast<int64_t>(loss[1]);
    return loss[0];
  }

  MemoryMeter meter;
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_cpu_kernels(1);
  Arena arena{"head", host_allocator(), meter, MemoryCategory::Activations, 1 << 20};
  Batch batch;
  std::vector<Buffer> weights, gradients;
  Buffer x, dx;
  int64_t loss_tokens = 0;
};

TEST(LmHead, ChunkSizeDependsOnTheVocabularyAndTheRows) {
  auto rows = [](int64_t vocabulary, int64_t of_microbatch) {
    const LmHead head({.vocabulary = vocabulary, .hidden = 4}, make_norm(NormKind::RmsNorm, 4, 1e-5, false));
    return head.rows_of_chunk(of_microbatch);
  };
  EXPECT_EQ(rows(256, 1024), 131072);
  EXPECT_EQ(rows(50257, 1), 640);
  EXPECT_EQ(rows(50257, 8 * 640), 640);
  EXPECT_EQ(rows(50257, 8 * 640 + 1), 704) << "not more than 8 chunks";
  EXPECT_EQ(rows(50257, 32768), 4096);
  EXPECT_EQ(rows(1'000'000, 100), 64);  // the minimum
}

TEST(LmHead, ChunksGiveTheLossAndGradientsOfTheWhole) {
  HeadRun whole(random_batch(3, 5, kVocabulary, 1)), chunked(random_batch(3, 5, kVocabulary, 1));
  EXPECT_NEAR(whole.train(head_with(15)), chunked.train(head_with(4)), 1e-13);
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    const auto expected = values_of(whole.gradients[i].view()), actual = values_of(chunked.gradients[i].view());
    for (size_t e = 0; e < expected.size(); ++e) EXPECT_NEAR(actual[e], expected[e], 1e-14);
  }
  EXPECT_EQ(values_of(whole.dx.view()), values_of(chunked.dx.view()));
  EXPECT_LT(chunked.arena.peak_bytes(), whole.arena.peak_bytes());
}

// Wants the first two samples of a microbatch, and keeps what it reads.
struct TwoSamples : LogitsReader {
  int64_t wants(const Microbatch&) const override { return 2; }
  void read(kernels::Kernels&, const Microbatch&, int64_t first, ConstTensorView logits, int64_t first_target) override {
    firsts.push_back(first);
    first_targets.push_back(first_target);
    shapes.push_back(logits.shape);
    values.push_back(values_of(logits));
  }
  std::vector<int64_t> firsts, first_targets;
  std::vector<Shape> shapes;
  std::vector<std::vector<double>> values;
};

// Also all but the first targets of one of them.
struct MoreOfTheSecond final : TwoSamples {
  TargetRange wants_targets(kernels::Kernels& kernels, const Microbatch& microbatch, int64_t sample,
                            int64_t targets) const override {
    return sample == 1 ? TargetRange{3, targets - 3} : LogitsReader::wants_targets(kernels, microbatch, sample, targets);
  }
};

TEST(LmHead, ShowsTheLogitsOfTheWantedTargetsOfTheWantedSamples) {
  constexpr int64_t kLength = 40, kShown = 32;
  HeadRun run(random_batch(3, kLength, kVocabulary, 1));
  const LmHead head = head_with(7);
  std::vector<ConstTensorView> weights;
  for (Buffer& weight : run.weights) weights.push_back(weight.view());
  const Microbatch microbatch = run.batch.view();
  Context context{*run.kernels, run.arena, &microbatch};
  const auto loss_with = [&](LogitsReader* reader) {
    double loss[2] = {};
    context.loss = {loss, DType::Float64, {2}};
    context.logits = reader;
    Saved saved;
    head.forward(context, weights, run.x.view(), {}, saved);
    return loss[0];
  };
  const auto expect_rows = [&](const TwoSamples& reader, size_t call, int64_t sample, int64_t first, int64_t count) {
    Buffer expected = run.make({count, kVocabulary}, 0);
    const ConstTensorView rows = run.x.view();
    head.logits(context, weights, as_rows(rows).row_range(sample * kLength + first, count), expected.view());
    EXPECT_EQ(reader.firsts[call], sample);
    EXPECT_EQ(reader.first_targets[call], first);
    EXPECT_EQ(reader.shapes[call], (Shape{1, count, kVocabulary}));
    EXPECT_EQ(reader.values[call], values_of(expected.view()));
  };
  TwoSamples last;
  EXPECT_EQ(loss_with(&last), loss_with(nullptr));
  ASSERT_EQ(last.firsts.size(), 2u);
  for (const int64_t sample : {0, 1}) expect_rows(last, static_cast<size_t>(sample), sample, kLength - kShown, kShown);
  MoreOfTheSecond more;
  EXPECT_EQ(loss_with(&more), loss_with(nullptr));
  ASSERT_EQ(more.firsts.size(), 3u);
  expect_rows(more, 0, 0, kLength - kShown, kShown);
  expect_rows(more, 1, 1, 3, kShown);
  expect_rows(more, 2, 1, 3 + kShown, kLength - 3 - kShown);
}

TEST(LmHead, GradientsAreThoseOfTheLossSumOverAllTargetsTimesTheLossScale) {
  Batch batch = random_batch(2, 4, kVocabulary, 1);
  HeadRun all(batch);
  all.train(head_with(0));
  EXPECT_EQ(all.loss_tokens, 8);
  HeadRun scaled(batch);
  scaled.train(head_with(0), 1024);
  const auto plain = values_of(all.gradients.back().view()), large = values_of(scaled.gradients.back().view());
  for (size_t e = 0; e < plain.size(); ++e) EXPECT_NEAR(large[e], 1024 * plain[e], 1e-12);

  // A batch whose second sequence does not count has the loss of the first alone, over twice as many targets.
  Batch first{1, 4, {batch.tokens.begin(), batch.tokens.begin() + 4}, {batch.targets.begin(), batch.targets.begin() + 4}};
  for (size_t i = 4; i < 8; ++i) batch.targets[i] = -1;
  HeadRun masked(batch), alone(first);
  EXPECT_NEAR(masked.train(head_with(0)), alone.train(head_with(0)), 1e-13);
  EXPECT_EQ(masked.loss_tokens, 4);
  const auto expected = values_of(alone.gradients.back().view()), actual = values_of(masked.gradients.back().view());
  for (size_t e = 0; e < expected.size(); ++e) EXPECT_NEAR(2 * actual[e], expected[e], 1e-14);
}

TEST(LmHead, NoCountingTargetMeansZeroLossAndGradients) {
  Batch batch = random_batch(2, 4, kVocabulary, 1);
  std::fill(batch.targets.begin(), batch.targets.end(), -1);
  HeadRun run(batch);
  EXPECT_EQ(run.train(head_with(3)), 0.0);
  EXPECT_EQ(run.loss_tokens, 0);
  for (Buffer& gradient : run.gradients)
    for (double value : values_of(gradient.view())) EXPECT_EQ(value, 0.0);
}

TEST(LmHead, FrozenParametersAreLeftOutAndTheOthersUnchanged) {
  HeadRun all(random_batch(2, 4, kVocabulary, 1));
  all.train(head_with(3));
  for (size_t frozen = 0; frozen < all.gradients.size(); ++frozen) {
    HeadRun run(random_batch(2, 4, kVocabulary, 1));
    run.train(head_with(3), 1.0, frozen);
    for (size_t i = 0; i < run.gradients.size(); ++i) {
      if (i == frozen) continue;
      EXPECT_EQ(values_of(run.gradients[i].view()), values_of(all.gradients[i].view()));
    }
    EXPECT_EQ(values_of(run.dx.view()), values_of(all.dx.view()));
  }
}

}  // namespace
}  // namespace trivet::model
