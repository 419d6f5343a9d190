#include "tests/model/layer_on_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace trivet::model {
namespace {

constexpr double kExisting = 0.25;  // what a gradient holds before it is accumulated

Values draw(int64_t count, const std::string& name, double spread) {
  Values values(count);
  const uint64_t key = random_key(1, name);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = spread * (2.0 * static_cast<double>(unit_float(philox(key, i, 0)[0])) - 1.0);
  return values;
}

// The values of a tensor of the case.
Values values_of(const LayerCase& it, int64_t count, const std::string& name, double spread) {
  if (!it.value) return draw(count, name, spread);
  Values values(count);
  for (int64_t e = 0; e < count; ++e) values[e] = it.value(name, e);
  return values;
}

// The tokens of [B, S, ...] that a rank holds.
template <typename T>
std::vector<T> own_tokens(const std::vector<T>& whole, const Shape& shape, const SequencePart& part) {
  std::vector<T> own;
  const int64_t of_token = shape.elements() / shape[0] / shape[1];
  for (int64_t sequence = 0; sequence < shape[0]; ++sequence)
    for (const TokenRange& range : part.tokens(shape[1])) {
      const auto first = whole.begin() + (sequence * shape[1] + range.begin) * of_token;
      own.insert(own.end(), first, first + range.count() * of_token);
    }
  return own;
}

// The sum over ranks of the gradients of a parameter that is not split; each rank's gradient is over its tokens.
Values sum_over_tokens(const std::vector<Outcome>& ranks, size_t parameter, Way way) {
  Values sum(ranks[0].gradients[parameter].size(), way == Way::Accumulated ? kExisting : 0);
  for (const Outcome& rank : ranks)
    for (size_t e = 0; e < sum.size(); ++e) sum[e] += rank.gradients[parameter][e] - (way == Way::Accumulated ? kExisting : 0);
  return sum;
}

// The two axes into which a context axis of runs of neighbours is cut; empty without runs.
struct ContextParts {
  std::unique_ptr<comm::ProcessGroup> neighbours, across;

  ContextParts(const RankAxis& axis, int run) {
    if (run == 1) return;
    const auto part = [&](int first, int count, int step, const std::string& name) {
      std::vector<int> ranks;
      for (int i = 0; i < count; ++i) ranks.push_back(first + i * step);
      return axis.group.subgroup(ranks, name);
    };
    const int runs = axis.size() / run;
    for (int i = 0; i < runs; ++i)
      if (auto group = part(i * run, run, 1, "neighbours")) neighbours = std::move(group);
    for (int place = 0; place < run; ++place)
      if (auto group = part(place, runs, run, "across")) across = std::move(group);
  }
  int64_t bytes_sent() const { return neighbours ? neighbours->traffic().bytes_sent + across->traffic().bytes_sent : 0; }
};

}  // namespace

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

Outcome run_layer(const Layer& layer, const LayerCase& it, Way way, const RankAxis* given, Axis name) {
  std::optional<RankAxis> own;
  std::optional<ContextParts> parts;
  if (given) {
    own.emplace(*given);
    own->context_kind = it.context_kind, own->cut = it.cut;
    parts.emplace(*given, it.neighbours);
    own->neighbours = parts->neighbours.get(), own->across_neighbours = parts->across.get();
  }
  const RankAxis* const axis = own ? &*own : nullptr;
  const bool is_context = axis && name == Axis::Context, shares_tokens = axis && (is_context || axis->splits_tokens);
  const int place = axis ? axis->rank() : 0, ranks = axis ? axis->size() : 1;
  const int rank = is_context ? 0 : place, size = is_context ? 1 : ranks;  // for split parameters
  const int64_t tokens = it.input_shape[0] * it.input_shape[1];
  Batch batch = random_batch(it.input_shape[0], it.input_shape[1], std::max(it.vocabulary, it.targets_below) + 1, 3);
  for (int32_t& token : batch.tokens) token = std::min(token, static_cast<int32_t>(it.vocabulary) - 1);
  for (int32_t& target : batch.targets) target -= 1;  // some do not count
  if (is_context) {
    const Shape all{it.input_shape[0], it.input_shape[1]};
    batch.tokens = own_tokens(batch.tokens, all, axis->part());
    batch.targets = own_tokens(batch.targets, all, axis->part());
    batch.length /= ranks;
  }
  Microbatch microbatch = batch.view();
  if (!it.documents.empty()) microbatch.documents = {it.documents.data(), DType::Int32, {it.input_shape[0], it.input_shape[1]}};

  Shape x_shape = it.input_shape, y_shape = layer.output_shape(it.input_shape);
  Values x = values_of(it, it.vocabulary > 0 ? 0 : tokens * it.input_shape[-1], "x", 1),
         dy = values_of(it, y_shape.elements(), "dy", 1);
  if (shares_tokens) {
    if (!x.empty()) x = own_tokens(x, x_shape, axis->part()), x_shape[1] /= ranks;
    if (!dy.empty()) dy = own_tokens(dy, y_shape, axis->part()), y_shape[1] /= ranks;
  }
  Outcome outcome{Values(dy.size(), kGarbage), Values(x.size(), kGarbage), {}, 0, 0, {}, 0};
  std::vector<Values> weights;
  for (const ParameterSpec& spec : layer.parameters()) {
    weights.push_back(local_values(values_of(it, spec.shape.elements(), spec.name, 0.5), spec, rank, size));
    outcome.gradients.emplace_back(weights.back().size(), way == Way::Accumulated ? kExisting : kGarbage);
  }
  std::vector<ConstTensorView> weight_views;
  std::vector<Gradient> gradients;
  for (size_t i = 0; i < weights.size(); ++i) {
    const Shape shape = tensor_parallel::local_part(layer.parameters()[i], rank, size).shape;
    weight_views.push_back(view_of(weights[i], shape));
    gradients.push_back({view_of(outcome.gradients[i], shape), way == Way::Accumulated});
  }
  const ConstTensorView input = it.vocabulary > 0 ? microbatch.input : view_of(x, x_shape);
  const bool loss = it.targets_below > 0;
  const TensorView y = loss ? TensorView{} : view_of(outcome.y, y_shape),
                   out_gradient = loss ? TensorView{} : view_of(dy, y_shape);
  const TensorView dx = x.empty() ? TensorView{} : view_of(outcome.dx, x_shape);

  const auto kernels = kernels::make_cpu_kernels(1);
  MemoryMeter meter;
  Arena arena("layer", host_allocator(), meter, MemoryCategory::Activations, 1 << 22);
  Context context{*kernels, arena, &microbatch, {11, 3, 5}, way != Way::Evaluated};
  context.axes[name] = axis;
  context.mlp_slice_tokens = it.mlp_slice_tokens;
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
  outcome.peak_bytes = arena.peak_bytes();
  outcome.loss_sum = loss_of_layer[0];
  outcome.loss_tokens = static_cast<int64_t>(loss_of_layer[1]);
  if (axis) {
    outcome.traffic = axis->group.traffic();
    outcome.traffic.bytes_sent += parts->bytes_sent();
  }
  return outcome;
}

void on_axis(int size, const std::function<void(const RankAxis&)>& body, bool sequence_parallel) {
  comm::run_threads(size, [&](comm::World& world) {
    const auto stream = make_thread_stream("tensor");
    const RankAxis axis{world.group(), *stream, sequence_parallel};
    body(axis);
    stream->synchronize();
    world.close();
  });
}

std::vector<Outcome> run_ranks(const Layer& layer, const LayerCase& it, Way way, int size, bool sequence_parallel, Axis name) {
  std::vector<Outcome> outcomes(size);
  on_axis(
      size, [&](const RankAxis& axis) { outcomes[axis.rank()] = run_layer(layer, it, way, &axis, name); }, sequence_parallel);
  return outcomes;
}

void expect_as_one_rank_in_parts(const Layer& layer, const LayerCase& it, int size, Axis name) {
  const Shape y_shape = layer.output_shape(it.input_shape);
  for (Way way : {Way::Fused, Way::Apart, Way::Accumulated, Way::Evaluated}) {
    const Outcome whole = run_layer(layer, it, way, nullptr);
    const std::vector<Outcome> ranks = run_ranks(layer, it, way, size, name == Axis::Tensor, name);
    for (int rank = 0; rank < size; ++rank) {
      const Outcome& outcome = ranks[rank];
      const std::string where =
          " of rank " + std::to_string(rank) + " of " + std::to_string(size) + " way " + std::to_string(static_cast<int>(way));
      if (!whole.y.empty() && it.targets_below == 0)
        expect_near(outcome.y, own_tokens(whole.y, y_shape, it.part_of(rank, size)), "y" + where);
      double loss_sum = outcome.loss_sum;
      int64_t loss_tokens = outcome.loss_tokens;
      for (int other = 0; name == Axis::Context && other < size; ++other)
        if (other != rank) loss_sum += ranks[other].loss_sum, loss_tokens += ranks[other].loss_tokens;
      EXPECT_NEAR(loss_sum, whole.loss_sum, kTolerance * std::abs(whole.loss_sum)) << where;
      EXPECT_EQ(loss_tokens, whole.loss_tokens) << where;
      if (way == Way::Evaluated) continue;
      if (!whole.dx.empty())
        expect_near(outcome.dx, own_tokens(whole.dx, it.input_shape, it.part_of(rank, size)), "dx" + where);
      for (size_t i = 0; i < whole.gradients.size(); ++i) {
        const ParameterSpec& spec = layer.parameters()[i];
        const bool split = spec.split.dim >= 0 && name == Axis::Tensor;
        expect_near(split ? outcome.gradients[i] : sum_over_tokens(ranks, i, way),
                    split ? local_values(whole.gradients[i], spec, rank, size) : whole.gradients[i], spec.name + where);
      }
    }
  }
}

void expect_as_one_rank(const Layer& layer, const LayerCase& it, int size) {
  for (Way way : {Way::Fused, Way::Apart, Way::Accumulated, Way::Evaluated}) {
    const Outcome whole = run_layer(layer, it, way, nullptr);
    const std::vector<Outcome> ranks = run_ranks(layer, it, way, size);
    for (int rank = 0; rank < size; ++rank) {
      const Outcome& outcome = ranks[rank];
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

}  // namespace trivet::model
