// Layers whose split parameters tensor ranks share, against one rank that has them whole. Ranks are threads.
//
// In float64 the two differ by the order of sums alone: 1e-10 of the largest value of a tensor is generous for sums of at most
// a hundred terms of one size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <limits>

#include "comm/world.h"
#include "model/embedding.h"
#include "model/transformer_block.h"
#include "tests/model/whole_model.h"

namespace trivet::model {
namespace {

using tensor_parallel::TensorAxis;

constexpr double kTolerance = 1e-10;
constexpr double kGarbage = std::numeric_limits<double>::quiet_NaN();
constexpr double kThere = 0.25;  // what a gradient holds before it is added to

using Values = std::vector<double>;

void expect_near(const Values& actual, const Values& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 1e-12, worst = 0;
  for (double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_TRUE(std::isfinite(actual[i])) << what << " element " << i;
    worst = std::max(worst, std::abs(actual[i] - expected[i]));
  }
  EXPECT_LE(worst / largest, kTolerance) << what;
}

enum class Way { Fused, Apart, Accumulated, Evaluated };

struct LayerCase {
  Shape input_shape;
  int64_t vocabulary = 0;     // > 0: the input is tokens
  int64_t targets_below = 0;  // > 0: the layer computes the loss
};

// What a rank has after one microbatch.
struct Outcome {
  Values y, dx;
  std::vector<Values> gradients;
  double loss_sum = 0;
  int64_t loss_tokens = 0;
  comm::Traffic traffic;
};

Values draw(int64_t count, const std::string& name, double spread) {
  Values values(static_cast<size_t>(count));
  const uint64_t key = random_key(1, name);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = spread * (2.0 * static_cast<double>(unit_float(philox(key, i, 0)[0])) - 1.0);
  return values;
}

TensorView view_of(Values& values, const Shape& shape) { return {values.data(), DType::Float64, shape}; }

bool shares_tokens(const TensorAxis* axis) { return axis && axis->sequence_parallel; }

// A rank's own tokens of [B, S, H].
Values own_tokens(const Values& whole, const Shape& shape, int rank, int size) {
  Values own;
  const auto part = static_cast<std::ptrdiff_t>(shape[1] / size * shape[2]);
  for (int64_t sequence = 0; sequence < shape[0]; ++sequence) {
    const auto first = whole.begin() + static_cast<std::ptrdiff_t>(sequence * shape[1] * shape[2]) + rank * part;
    own.insert(own.end(), first, first + part);
  }
  return own;
}

// One microbatch through a layer on this rank.
Outcome run_layer(const Layer& layer, const LayerCase& it, Way way, const TensorAxis* axis) {
  const int rank = axis ? axis->rank() : 0, size = axis ? axis->size() : 1;
  const int64_t tokens = it.input_shape[0] * it.input_shape[1];
  Batch batch = random_batch(it.input_shape[0], it.input_shape[1], std::max(it.vocabulary, it.targets_below) + 1, 3);
  for (int32_t& token : batch.tokens) token = std::min(token, static_cast<int32_t>(it.vocabulary) - 1);
  for (int32_t& target : batch.targets) target -= 1;  // some do not count
  const Microbatch microbatch = batch.view();

  Shape x_shape = it.input_shape, y_shape = layer.output_shape(it.input_shape);
  Values x = draw(it.vocabulary > 0 ? 0 : tokens * it.input_shape[-1], "x", 1), dy = draw(y_shape.elements(), "dy", 1);
  if (shares_tokens(axis)) {
    if (!x.empty()) x = own_tokens(x, x_shape, rank, size), x_shape[1] /= size;
    if (!dy.empty()) dy = own_tokens(dy, y_shape, rank, size), y_shape[1] /= size;
  }
  Outcome outcome{Values(dy.size(), kGarbage), Values(x.size(), kGarbage), {}, 0, 0, {}};
  std::vector<Values> weights;
  for (const ParameterSpec& spec : layer.parameters()) {
    weights.push_back(local_values(draw(spec.shape.elements(), spec.name, 0.5), spec, rank, size));
    outcome.gradients.emplace_back(weights.back().size(), way == Way::Accumulated ? kThere : kGarbage);
  }
  std::vector<ConstTensorView> weight_views;
  std::vector<Gradient> gradients;
  for (size_t i = 0; i < weights.size(); ++i) {
    const Shape shape = tensor_parallel::local_part(layer.parameters()[i], rank, size).shape;
    weight_views.push_back(view_of(weights[i], shape));
    gradients.push_back({view_of(outcome.gradients[i], shape), way == Way::Accumulated});
  }
  const ConstTensorView input = it.vocabulary > 0 ? microbatch.tokens : view_of(x, x_shape);
  const bool loss = it.targets_below > 0;
  const TensorView y = loss ? TensorView{} : view_of(outcome.y, y_shape),
                   out_gradient = loss ? TensorView{} : view_of(dy, y_shape);
  const TensorView dx = x.empty() ? TensorView{} : view_of(outcome.dx, x_shape);

  const auto kernels = kernels::make_cpu_kernels(1);
  MemoryMeter meter;
  Arena arena("layer", host_allocator(), meter, MemoryCategory::Activations, 1 << 22);
  Context context{*kernels, arena, &microbatch, {11, 3, 5}, way != Way::Evaluated};
  context.tensor = axis;
  double loss_of_layer[2] = {};
  context.loss = {loss_of_layer, DType::Float64, {2}};
  Saved saved;
  if (loss && way == Way::Fused) {
    layer.forward_backward(context, weight_views, gradients, input, dx, saved);
  } else {
    layer.forward(context, weight_views, input, y, saved);
    if (way == Way::Fused) {
      layer.backward(context, weight_views, gradients, out_gradient, dx, saved);
    } else if (way != Way::Evaluated) {
      layer.backward_input(context, weight_views, out_gradient, dx, saved);
      layer.backward_weight(context, gradients, saved);
    }
  }
  saved.clear();
  EXPECT_EQ(arena.used_bytes(), 0);
  outcome.loss_sum = loss_of_layer[0];
  outcome.loss_tokens = static_cast<int64_t>(loss_of_layer[1]);
  if (axis) outcome.traffic = axis->group.traffic();
  return outcome;
}

// Runs `body` on `size` ranks that are a tensor axis with a stream of its own.
template <typename Body>
void on_axis(int size, const Body& body, bool sequence_parallel = false) {
  comm::run_threads(size, [&](comm::World& world) {
    const auto stream = make_thread_stream("tensor");
    const TensorAxis axis{world.group(), *stream, sequence_parallel};
    body(axis);
    stream->synchronize();
    world.close();
  });
}

std::vector<Outcome> run_ranks(const Layer& layer, const LayerCase& it, Way way, int size, bool sequence_parallel = false) {
  std::vector<Outcome> outcomes(static_cast<size_t>(size));
  on_axis(
      size, [&](const TensorAxis& axis) { outcomes[static_cast<size_t>(axis.rank())] = run_layer(layer, it, way, &axis); },
      sequence_parallel);
  return outcomes;
}

// What the gradients of a parameter that is not split add up to over the ranks' own tokens.
Values sum_over_tokens(const std::vector<Outcome>& ranks, size_t parameter, Way way) {
  Values sum(ranks[0].gradients[parameter].size(), way == Way::Accumulated ? kThere : 0);
  for (const Outcome& rank : ranks)
    for (size_t e = 0; e < sum.size(); ++e) sum[e] += rank.gradients[parameter][e] - (way == Way::Accumulated ? kThere : 0);
  return sum;
}

// With sequence parallelism every rank has its own tokens of y and dx.
void expect_as_one_rank_in_parts(const Layer& layer, const LayerCase& it, int size) {
  const Shape y_shape = layer.output_shape(it.input_shape);
  for (Way way : {Way::Fused, Way::Apart, Way::Accumulated, Way::Evaluated}) {
    const Outcome whole = run_layer(layer, it, way, nullptr);
    const std::vector<Outcome> ranks = run_ranks(layer, it, way, size, true);
    for (int rank = 0; rank < size; ++rank) {
      const Outcome& outcome = ranks[static_cast<size_t>(rank)];
      const std::string where =
          " of rank " + std::to_string(rank) + " of " + std::to_string(size) + " way " + std::to_string(static_cast<int>(way));
      if (!whole.y.empty() && it.targets_below == 0)
        expect_near(outcome.y, own_tokens(whole.y, y_shape, rank, size), "y" + where);
      EXPECT_NEAR(outcome.loss_sum, whole.loss_sum, kTolerance * std::abs(whole.loss_sum)) << where;
      EXPECT_EQ(outcome.loss_tokens, whole.loss_tokens) << where;
      if (way == Way::Evaluated) continue;
      if (!whole.dx.empty()) expect_near(outcome.dx, own_tokens(whole.dx, it.input_shape, rank, size), "dx" + where);
      for (size_t i = 0; i < whole.gradients.size(); ++i) {
        const ParameterSpec& spec = layer.parameters()[i];
        const bool split = spec.split.dim >= 0;
        expect_near(split ? outcome.gradients[i] : sum_over_tokens(ranks, i, way),
                    split ? local_values(whole.gradients[i], spec, rank, size) : whole.gradients[i], spec.name + where);
      }
    }
  }
}

// Every rank has y, dx and the loss whole, and its part of each gradient.
void expect_as_one_rank(const Layer& layer, const LayerCase& it, int size, bool with_evaluation = true) {
  for (Way way : {Way::Fused, Way::Apart, Way::Accumulated, Way::Evaluated}) {
    if (way == Way::Evaluated && !with_evaluation) continue;
    const Outcome whole = run_layer(layer, it, way, nullptr);
    const std::vector<Outcome> ranks = run_ranks(layer, it, way, size);
    for (int rank = 0; rank < size; ++rank) {
      const Outcome& outcome = ranks[static_cast<size_t>(rank)];
      const std::string where =
          " of rank " + std::to_string(rank) + " of " + std::to_string(size) + " way " + std::to_string(static_cast<int>(way));
      if (!whole.y.empty() && it.targets_below == 0) expect_near(outcome.y, whole.y, "y" + where);
      EXPECT_NEAR(outcome.loss_sum, whole.loss_sum, kTolerance * std::abs(whole.loss_sum)) << where;
      EXPECT_EQ(outcome.loss_sum, ranks[0].loss_sum) << where;
      EXPECT_EQ(outcome.loss_tokens, whole.loss_tokens) << where;
      if (way == Way::Evaluated) continue;
      expect_near(outcome.dx, whole.dx, "dx" + where);
      EXPECT_EQ(outcome.dx, ranks[0].dx) << where;
      for (size_t i = 0; i < whole.gradients.size(); ++i) {
        const ParameterSpec& spec = layer.parameters()[i];
        expect_near(outcome.gradients[i], local_values(whole.gradients[i], spec, rank, size), spec.name + where);
      }
    }
  }
}

TransformerBlock::Options gpt_block(double dropout) {
  return {.attention = {.hidden = 24, .heads = 4, .key_value_heads = 4, .dropout = dropout},
          .mlp = {.hidden = 24, .feed_forward = 36},
          .dropout = dropout};
}

TransformerBlock::Options llama_block(double dropout, int64_t key_value_heads, bool bias = false) {
  return {.attention = {.hidden = 32,
                        .heads = 8,
                        .key_value_heads = key_value_heads,
                        .bias = bias,
                        .dropout = dropout,
                        .rotary_base = 10000},
          .mlp = {.hidden = 32, .feed_forward = 20, .activation = Activation::SwiGlu, .bias = bias},
          .norm = NormKind::RmsNorm,
          .dropout = dropout};
}

class TensorParallel : public testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
};

TEST_P(TensorParallel, LinearWithoutASplitIsWholeOnEveryRank) {
  const Linear linear({.in = 5, .out = 7});
  const LayerCase it{.input_shape = {2, 3, 5}};
  expect_as_one_rank(linear, it, size());
  EXPECT_EQ(run_ranks(linear, it, Way::Fused, size())[0].traffic.operations, 0);
}

// check_tensor_size asks for even parts of a model so that no rank waits; the mathematics does not need them.
TEST_P(TensorParallel, MlpIsAsOnOneRankAlsoInUnevenParts) {
  expect_as_one_rank(Mlp({.hidden = 6, .feed_forward = 11}), {.input_shape = {2, 3, 6}}, size());
  expect_as_one_rank(Mlp({.hidden = 6, .feed_forward = 11, .activation = Activation::SwiGlu, .bias = false}),
                     {.input_shape = {2, 3, 6}}, size());
}

TEST_P(TensorParallel, GptBlockIsAsOnOneRank) {
  for (double dropout : {0.0, 0.3})
    expect_as_one_rank(TransformerBlock("b", gpt_block(dropout)), {.input_shape = {2, 5, 24}}, size());
}

// With 4 ranks and one or two key/value heads, neighbours hold the same one.
TEST_P(TensorParallel, LlamaBlockIsAsOnOneRankWithAnyNumberOfKeyValueHeads) {
  for (int64_t key_value_heads : {1, 2, 4, 8})
    for (double dropout : {0.0, 0.3})
      expect_as_one_rank(TransformerBlock("b", llama_block(dropout, key_value_heads)), {.input_shape = {2, 5, 32}}, size());
  expect_as_one_rank(TransformerBlock("b", llama_block(0.1, 2, true)), {.input_shape = {2, 5, 32}}, size());
}

TEST_P(TensorParallel, EmbeddingIsAsOnOneRankToTheLastBit) {
  for (int64_t positions : {0, 9})
    for (double dropout : {0.0, 0.4}) {
      const Embedding embedding("e", {.vocabulary = 61, .hidden = 6, .positions = positions, .dropout = dropout});
      const LayerCase it{.input_shape = {3, 7}, .vocabulary = 61};
      expect_as_one_rank(embedding, it, size());
      const Outcome whole = run_layer(embedding, it, Way::Fused, nullptr);
      for (const Outcome& outcome : run_ranks(embedding, it, Way::Fused, size())) EXPECT_EQ(outcome.y, whole.y);
    }
}

TEST_P(TensorParallel, HeadIsAsOnOneRankInOneChunkAndInSeveral) {
  for (int64_t rows_of_chunk : {0, 1, 4})
    expect_as_one_rank(
        LmHead({.vocabulary = 61, .hidden = 6, .rows_of_chunk = rows_of_chunk}, make_norm(NormKind::LayerNorm, 6, 1e-5, true)),
        {.input_shape = {3, 5, 6}, .targets_below = 61}, size());
}

TEST_P(TensorParallel, GroupOfOneChangesNoBitAndSendsNothing) {
  const TransformerBlock block("b", llama_block(0.3, 2));
  const LayerCase it{.input_shape = {2, 5, 32}};
  const Outcome whole = run_layer(block, it, Way::Fused, nullptr), one = run_ranks(block, it, Way::Fused, 1)[0];
  EXPECT_EQ(one.y, whole.y);
  EXPECT_EQ(one.dx, whole.dx);
  EXPECT_EQ(one.gradients, whole.gradients);
  EXPECT_EQ(one.traffic.operations, 0);
}

// 2 (n - 1) / n of what is reduced.
int64_t bytes_of_all_reduce(int64_t elements, int64_t element_bytes, int size) {
  return 2 * (size - 1) * elements * element_bytes / size;
}

TEST_P(TensorParallel, BlockSumsActivationsFourTimes) {
  const TransformerBlock block("b", gpt_block(0.1));
  const LayerCase it{.input_shape = {2, 5, 24}};
  for (Way way : {Way::Fused, Way::Apart}) {
    for (const Outcome& outcome : run_ranks(block, it, way, size())) {
      EXPECT_EQ(outcome.traffic.operations, 4);
      EXPECT_EQ(outcome.traffic.bytes_sent, 4 * bytes_of_all_reduce(2 * 5 * 24, 8, size()));
    }
  }
  for (const Outcome& outcome : run_ranks(block, it, Way::Evaluated, size())) EXPECT_EQ(outcome.traffic.operations, 2);
}

INSTANTIATE_TEST_SUITE_P(Sizes, TensorParallel, testing::Values(2, 4),
                         [](const auto& size) { return "On" + std::to_string(size.param) + "Ranks"; });

Description small(Type type, double dropout) {
  return {.type = type,
          .layers = 2,
          .hidden = 32,
          .heads = 4,
          .key_value_heads = type == Type::Llama ? 2 : 0,
          .feed_forward = 44,
          .sequence_length = 12,
          .vocabulary_size = 61,
          .dropout = dropout,
          .tied_embedding = type == Type::Gpt};
}

// The spec of a parameter by its full name.
ParameterSpec spec_of(const Model& model, const std::string& name) {
  for (size_t layer = 0; layer < model.layers.size(); ++layer)
    for (size_t i = 0; i < model.layers[layer]->parameters().size(); ++i)
      if (parameter_name(model, layer, i) == name) return model.layers[layer]->parameters()[i];
  throw std::logic_error("no parameter " + name);
}

class ModelOnAnAxis : public testing::TestWithParam<std::tuple<Type, int>> {
 protected:
  Type type() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
};

TEST_P(ModelOnAnAxis, LossAndAllGradientsAreAsOnOneRank) {
  const Batch batch = random_batch(2, 12, 61, 1);
  for (double dropout : {0.0, 0.2}) {
    for (bool fused : {true, false}) {
      WholeModel whole(small(type(), dropout), DType::Float64, Device::Cpu);
      const double expected = whole.train(batch, fused);
      on_axis(size(), [&](const TensorAxis& axis) {
        WholeModel part(small(type(), dropout), DType::Float64, Device::Cpu, {}, &axis);
        EXPECT_NEAR(part.train(batch, fused), expected, kTolerance);
        for (const std::string& name : part.parameter_names()) {
          const ParameterSpec spec = spec_of(part.model(), name);
          expect_near(values_of(part.gradient(name)),
                      local_values(values_of(whole.gradient(name)), spec, axis.rank(), axis.size()), name);
        }
        EXPECT_EQ(part.arena().used_bytes(), 0);
      });
    }
  }
}

TEST_P(ModelOnAnAxis, TrainsAndEvaluatesAsOnOneRank) {
  const Batch batch = random_batch(2, 12, 61, 1);
  WholeModel whole(small(type(), 0.1), DType::Float64, Device::Cpu);
  std::vector<double> expected;
  const auto losses = [&batch](WholeModel& model) {
    std::vector<double> all;
    for (model.step = 0; model.step < 10; ++model.step) {
      all.push_back(model.train(batch));
      model.sgd_step(0.5);
    }
    model.training = false;
    all.push_back(model.loss(batch));
    return all;
  };
  expected = losses(whole);
  EXPECT_LT(expected.back(), expected.front() - 0.1);
  on_axis(size(), [&](const TensorAxis& axis) {
    WholeModel part(small(type(), 0.1), DType::Float64, Device::Cpu, {}, &axis);
    const std::vector<double> actual = losses(part);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-9) << "step " << i;
  });
}

TEST_P(ModelOnAnAxis, LogitsAreWholeOnEveryRank) {
  const Batch batch = random_batch(2, 12, 61, 1);
  WholeModel whole(small(type(), 0), DType::Float64, Device::Cpu);
  const Values expected = whole.logits(batch);
  on_axis(size(), [&](const TensorAxis& axis) {
    WholeModel part(small(type(), 0), DType::Float64, Device::Cpu, {}, &axis);
    expect_near(part.logits(batch), expected, "logits");
  });
}

TEST_P(ModelOnAnAxis, FusedAndSeparateBackwardGiveTheSameBits) {
  const Batch batch = random_batch(2, 12, 61, 1);
  for (DType dtype : {DType::Float32, DType::BFloat16}) {
    on_axis(size(), [&](const TensorAxis& axis) {
      WholeModel fused(small(type(), 0.1), dtype, Device::Cpu, {}, &axis),
          apart(small(type(), 0.1), dtype, Device::Cpu, {}, &axis);
      EXPECT_EQ(fused.train(batch, true), apart.train(batch, false));
      for (const std::string& name : fused.parameter_names())
        EXPECT_EQ(values_of(fused.gradient(name)), values_of(apart.gradient(name))) << name;
    });
  }
}

TEST_P(ModelOnAnAxis, AFrozenParameterIsLeftOutAndTheOthersKeepTheirBits) {
  const Batch batch = random_batch(2, 12, 61, 1);
  on_axis(size(), [&](const TensorAxis& axis) {
    WholeModel all(small(type(), 0), DType::Float32, Device::Cpu, {}, &axis);
    WholeModel part(small(type(), 0), DType::Float32, Device::Cpu, {}, &axis);
    all.train(batch);
    for (const std::string& frozen : all.parameter_names()) {
      part.frozen = frozen;
      part.train(batch);
      for (const std::string& name : all.parameter_names()) {
        const Values expected = values_of(all.gradient(name));
        EXPECT_EQ(values_of(part.gradient(name)), name == frozen ? Values(expected.size()) : expected) << name;
      }
    }
  });
}

// As on one rank in bfloat16: the difference to float32 is what rounding activations costs.
TEST_P(ModelOnAnAxis, BFloat16FollowsFloat32) {
  const Batch batch = random_batch(2, 12, 61, 1);
  WholeModel exact(small(type(), 0), DType::Float32, Device::Cpu);
  const double expected = exact.train(batch);
  on_axis(size(), [&](const TensorAxis& axis) {
    WholeModel rounded(small(type(), 0), DType::BFloat16, Device::Cpu, DType::Float32, &axis);
    EXPECT_NEAR(rounded.train(batch), expected, 0.02);
  });
}

TEST_P(ModelOnAnAxis, SendsWhatTheFormulasSayAndThePlannersGroupAgrees) {
  const Batch batch = random_batch(2, 12, 61, 1);
  const int64_t rows = 2 * 12, hidden = 32, layers = 2;
  on_axis(size(), [&](const TensorAxis& axis) {
    WholeModel real(small(type(), 0.1), DType::Float32, Device::Cpu, {}, &axis);
    real.train(batch);
    const comm::Traffic traffic = axis.group.traffic();
    // Embedding 1, a block 4, head 1 sums of activations; the head's loss: maxima, and two sums for each row.
    int64_t operations = 1 + 4 * layers + 1 + 2;
    int64_t bytes = (2 + 4 * layers) * bytes_of_all_reduce(rows * hidden, 4, axis.size()) +
                    bytes_of_all_reduce(rows, 4, axis.size()) + bytes_of_all_reduce(2 * rows, 4, axis.size());
    if (type() == Type::Llama && axis.size() > 2) {  // gradients of key and value heads that neighbours share
      operations += layers;
      bytes += layers * bytes_of_all_reduce(2 * 2 * 8 * hidden, 4, axis.size());
    }
    EXPECT_EQ(traffic.operations, operations);
    EXPECT_EQ(traffic.bytes_sent, bytes);

    const auto group = comm::make_meta_group(axis.rank(), axis.size(), "tensor");
    const auto stream = make_inline_stream();
    const TensorAxis plan{*group, *stream};
    WholeModel planned(small(type(), 0.1), DType::Float32, Device::Meta, {}, &plan);
    planned.train(batch);
    EXPECT_EQ(group->traffic().operations, operations);
    EXPECT_EQ(group->traffic().bytes_sent, bytes);
    EXPECT_EQ(planned.arena().peak_bytes(), real.arena().peak_bytes());
  });
}

INSTANTIATE_TEST_SUITE_P(TypesAndSizes, ModelOnAnAxis,
                         testing::Combine(testing::Values(Type::Gpt, Type::Llama), testing::Values(2, 4)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) == Type::Gpt ? "Gpt" : "Llama") + "On" +
                                  std::to_string(std::get<1>(test.param)) + "Ranks";
                         });

TEST(TensorParallelLayers, HoldersOfOneKeyValueHeadHaveTheSameBitsOfItsGradient) {
  const Attention attention("a", {.hidden = 32, .heads = 8, .key_value_heads = 2, .rotary_base = 100});
  const int64_t own_queries = 2 * 4 * 32;  // elements of the weight's rows of a rank's two query heads
  for (Way way : {Way::Fused, Way::Accumulated}) {
    const std::vector<Outcome> ranks = run_ranks(attention, {.input_shape = {2, 5, 32}}, way, 4);
    const auto key_value_rows = [&](size_t rank) {
      return Values(ranks[rank].gradients[0].begin() + own_queries, ranks[rank].gradients[0].end());
    };
    EXPECT_EQ(key_value_rows(0), key_value_rows(1));
    EXPECT_EQ(key_value_rows(2), key_value_rows(3));
    EXPECT_NE(key_value_rows(0), key_value_rows(2));
  }
}

// Counts what is enqueued; nothing runs before `release`.
class HeldStream final : public Stream {
 public:
  explicit HeldStream(std::shared_future<void> release) {
    inner_->enqueue([release] { EXPECT_EQ(release.wait_for(std::chrono::seconds(10)), std::future_status::ready); });
  }
  void enqueue(std::function<void()> work) override {
    ++enqueued;
    inner_->enqueue(std::move(work));
  }
  Event record() override { return inner_->record(); }
  void wait(const Event& event) override { inner_->wait(event); }
  void synchronize() override { inner_->synchronize(); }
  int enqueued = 0;

 private:
  std::unique_ptr<Stream> inner_ = make_thread_stream("held");
};

// Says when its weight gradient has been made, and how much had been enqueued before.
class AnnouncingLinear : public Linear {
 public:
  AnnouncingLinear(const Options& options, HeldStream& stream, std::promise<void>& made)
      : Linear(options), stream_(stream), made_(made) {}

 protected:
  void make_weight_gradients(Context& context, Gradients gradients, ConstTensorView inputs, ConstTensorView output_gradients,
                             const Saved& saved) const override {
    EXPECT_EQ(stream_.enqueued, 1);
    Linear::make_weight_gradients(context, gradients, inputs, output_gradients, saved);
    made_.set_value();
  }

 private:
  HeldStream& stream_;
  std::promise<void>& made_;
};

TEST(TensorParallelLayers, MakeTheWeightGradientWhileDxIsSummed) {
  comm::run_threads(2, [](comm::World& world) {
    Values weight(2 * 3, 1), x(2 * 3, 1), dy(2 * 2, world.rank() + 1), y(2 * 2), dx(2 * 3, kGarbage), dweight(2 * 3, kGarbage);
    std::promise<void> made;
    HeldStream stream(made.get_future().share());
    const AnnouncingLinear linear({.in = 3, .out = 4, .bias = false, .split = {0, {4}}}, stream, made);
    const TensorAxis axis{world.group(), stream};
    const auto kernels = kernels::make_cpu_kernels(1);
    Arena arena("none");
    Context context{*kernels, arena};
    context.tensor = &axis;
    Saved saved;
    const ConstTensorView weights[] = {view_of(weight, {2, 3})};
    const Gradient gradients[] = {{view_of(dweight, {2, 3}), false}};
    linear.forward(context, weights, view_of(x, {2, 3}), view_of(y, {2, 2}), saved);
    linear.backward(context, weights, gradients, view_of(dy, {2, 2}), view_of(dx, {2, 3}), saved);
    EXPECT_THAT(dx, testing::Each(2 * 1.0 + 2 * 2.0));
    EXPECT_THAT(dweight, testing::Each(2.0 * (world.rank() + 1)));
    world.close();
  });
}

TEST_P(TensorParallel, LayersAreAsOnOneRankWithSequenceParallelism) {
  expect_as_one_rank_in_parts(Linear({.in = 5, .out = 7}), {.input_shape = {2, 4, 5}}, size());
  expect_as_one_rank_in_parts(TransformerBlock("b", gpt_block(0.3)), {.input_shape = {2, 8, 24}}, size());
  expect_as_one_rank_in_parts(TransformerBlock("b", llama_block(0, 2, true)), {.input_shape = {1, 8, 32}}, size());
  expect_as_one_rank_in_parts(Embedding("e", {.vocabulary = 61, .hidden = 6, .positions = 9, .dropout = 0.3}),
                              {.input_shape = {3, 8}, .vocabulary = 61}, size());
  expect_as_one_rank_in_parts(
      LmHead({.vocabulary = 61, .hidden = 6, .rows_of_chunk = 5}, make_norm(NormKind::LayerNorm, 6, 1e-5, true)),
      {.input_shape = {3, 8, 6}, .targets_below = 61}, size());
}

// A block gathers its tokens twice forward, for the projection to queries and to the feed-forward, and scatters as many sums:
// together what the two all-reduces of a rank with whole activations send. Backward gathers dy of the row-parallel products,
// and x of the column-parallel ones again.
TEST_P(TensorParallel, SequenceParallelismSendsAsMuchForward) {
  const TransformerBlock block("b", gpt_block(0));
  const LayerCase it{.input_shape = {2, 8, 24}};
  const int64_t bytes = 2 * 8 * 24 * 8, once = bytes * (size() - 1) / size();
  EXPECT_EQ(run_ranks(block, it, Way::Evaluated, size(), true)[0].traffic.bytes_sent, 4 * once);
  EXPECT_EQ(run_ranks(block, it, Way::Fused, size(), true)[0].traffic.bytes_sent, (4 + 6) * once);
  EXPECT_EQ(run_ranks(block, it, Way::Apart, size(), true)[0].traffic.bytes_sent, (4 + 8) * once);
}

void expect_size_refused(const Description& description, int size, const std::string& message) {
  try {
    check_tensor_size(build(description), size);
    ADD_FAILURE() << "was accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), message.c_str());
  }
}

TEST(CheckTensorSize, AcceptsEvenHeadsAndFeedForwardAndAnyVocabulary) {
  for (int size : {1, 2, 4}) check_tensor_size(build(small(Type::Llama, 0)), size);
  check_tensor_size(build({.vocabulary_size = 50257}), 12);
}

TEST(CheckTensorSize, NamesWhatDoesNotDivide) {
  expect_size_refused({.hidden = 24, .heads = 3, .vocabulary_size = 61}, 2,
                      "parallel.tensor: model.heads 3 does not divide among 2 ranks; use a divisor of 3");
  expect_size_refused(
      {.hidden = 24, .heads = 6, .key_value_heads = 3, .vocabulary_size = 61}, 2,
      "parallel.tensor: model.key_value_heads 3 neither divides 2 ranks nor is divided by them; use a divisor or "
      "a multiple of 3");
  expect_size_refused({.hidden = 24, .heads = 4, .feed_forward = 30, .vocabulary_size = 61}, 4,
                      "parallel.tensor: model.feed_forward_size 30 does not divide among 4 ranks; use a divisor of 30");
  expect_size_refused({.hidden = 24, .heads = 4, .vocabulary_size = 3}, 4,
                      "parallel.tensor: model.vocabulary_size 3 is less than 4 ranks; use at most 3");
}

TEST(CheckTensorSize, AsksEachSplitParameterOfAListOfLayers) {
  Model model;
  model.names = {"first"};
  model.layers.push_back(std::make_unique<Linear>(Linear::Options{.in = 4, .out = 12, .split = {0, {12}, {3}}}));
  check_tensor_size(model, 3);
  check_tensor_size(model, 6);
  try {
    check_tensor_size(model, 2);
    ADD_FAILURE() << "was accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "parallel.tensor: 3 parts of first.weight do not divide among 2 ranks; use a divisor or a multiple of 3");
  }
}

}  // namespace
}  // namespace trivet::model
