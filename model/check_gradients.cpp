#include "model/check_gradients.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/random.h"
#include "kernels/kernels.h"

namespace trivet::model {
namespace {

constexpr double kGarbage = std::numeric_limits<double>::quiet_NaN();

using Values = std::vector<double>;

TensorView view_of(Values& values, const Shape& shape) { return {values.data(), DType::Float64, shape}; }

// Draws values in [-spread, spread) with the random key of `name`.
Values draw(int64_t count, uint64_t seed, const std::string& name, double spread) {
  Values values(count);
  const uint64_t key = random_key(seed, name);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = spread * (2.0 * static_cast<double>(unit_float(philox(key, i, 0)[0])) - 1.0);
  return values;
}

std::vector<int32_t> draw_numbers(int64_t count, uint64_t seed, const std::string& name, int64_t from, int64_t below) {
  std::vector<int32_t> numbers(count);
  const uint64_t key = random_key(seed, name);
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<int32_t>(from + philox(key, i, 0)[0] % static_cast<uint64_t>(below - from));
  return numbers;
}

// All gradients that one of the ways has computed: dx first, then one for each parameter.
struct GradientSet {
  std::string way;
  std::vector<Values> tensors;
};

class Checker {
 public:
  Checker(const Layer& layer, const GradientCheck& check);
  GradientCheckResult run();

 private:
  enum class Way { Apart, Accumulated, InTurn, Together, WithForward };
  static const char* name_of(Way way);

  Context context() {
    Context context{*kernels_, arena_, &microbatch_, {check_.seed, 3, 5}, check_.training};
    loss_[0] = loss_[1] = 0;
    context.loss = {loss_, DType::Float64, {2}};
    return context;
  }
  bool computes_loss() const { return output_shape_.elements() == 0; }
  ConstTensorView input() {
    if (check_.vocabulary > 0) return {tokens_.data(), DType::Int32, check_.input_shape};
    return view_of(x_, check_.input_shape);
  }
  TensorView output_view(Values& values) { return computes_loss() ? TensorView{} : view_of(values, output_shape_); }

  double objective();
  GradientSet gradients_by(Way way);
  double difference(double& element);
  void compare(const std::vector<GradientSet>& sets, size_t tensor, Values& values, const std::string& name);

  const Layer& layer_;
  GradientCheck check_;
  std::unique_ptr<kernels::Kernels> kernels_ = kernels::make_cpu_kernels(1);
  MemoryMeter meter_;
  Arena arena_{"gradient check", host_allocator(), meter_, MemoryCategory::Activations, int64_t{1} << 28};
  Shape output_shape_;
  Values x_, dy_, reference_;
  std::vector<Values> weights_;
  std::vector<ConstTensorView> weight_views_;
  std::vector<int32_t> tokens_, targets_;
  Microbatch microbatch_;
  double loss_[2] = {};
  GradientCheckResult result_;
};

Checker::Checker(const Layer& layer, const GradientCheck& check)
    : layer_(layer), check_(check), output_shape_(layer.output_shape(check.input_shape)) {
  const int64_t elements = check.input_shape.elements();
  if (check.vocabulary > 0)
    tokens_ = draw_numbers(elements, check.seed, "tokens", 0, check.vocabulary);
  else
    x_ = draw(elements, check.seed, "x", 1.0);
  dy_ = draw(output_shape_.elements(), check.seed, "dy", 1.0);
  for (const ParameterSpec& parameter : layer.parameters())
    weights_.push_back(draw(parameter.shape.elements(), check.seed, parameter.name, 0.5));
  for (size_t i = 0; i < weights_.size(); ++i) weight_views_.push_back(view_of(weights_[i], layer.parameters()[i].shape));
  if (check.targets_below > 0) {
    const Shape rows(check.input_shape.span().first(check.input_shape.dims() - 1));
    const Shape shape = check.targets_shape.dims() > 0 ? check.targets_shape : rows;
    targets_ = draw_numbers(shape.elements(), check.seed, "targets", -1, check.targets_below);
    microbatch_.targets = {targets_.data(), DType::Int32, shape};
  }
  if (!check.pairs) return;
  reference_ = draw(check.input_shape[0], check.seed, "reference", 10.0);
  microbatch_.reference = view_of(reference_, {check.input_shape[0]});
}

const char* Checker::name_of(Way way) {
  switch (way) {
    case Way::Apart: return "apart";
    case Way::Accumulated: return "accumulated";
    case Way::InTurn: return "every other one accumulated";
    case Way::Together: return "backward";
    case Way::WithForward: return "forward_backward";
  }
  return "";
}

// Computes the number whose gradient is checked: dy . y, or the loss (a target that does not count adds nothing to its sum).
double Checker::objective() {
  Values y(computes_loss() ? 0 : dy_.size(), kGarbage);
  Context context = this->context();
  Saved saved;
  layer_.forward(context, weight_views_, input(), output_view(y), saved);
  if (computes_loss()) return loss_[0];
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += dy_[i] * y[i];
  return sum;
}

GradientSet Checker::gradients_by(Way way) {
  constexpr double kExisting = 0.25;  // the existing value that `accumulate` adds to
  const auto accumulates = [&](size_t i) { return way == Way::Accumulated || (way == Way::InTurn && i % 2 == 1); };
  GradientSet set{name_of(way), {Values(x_.size(), kGarbage)}};
  std::vector<Gradient> gradients;
  for (size_t i = 0; i < weights_.size(); ++i)
    set.tensors.emplace_back(weights_[i].size(), accumulates(i) ? kExisting : kGarbage);
  for (size_t i = 0; i < weights_.size(); ++i)
    gradients.push_back({view_of(set.tensors[i + 1], weight_views_[i].shape), accumulates(i)});
  const TensorView dx = x_.empty() ? TensorView{} : view_of(set.tensors[0], check_.input_shape);

  Values y(dy_.size(), kGarbage);
  Context context = this->context();
  Saved saved;
  if (way == Way::WithForward) {
    layer_.forward_backward(context, weight_views_, gradients, input(), dx, saved);
    return set;
  }
  layer_.forward(context, weight_views_, input(), output_view(y), saved);
  if (way == Way::Together) {
    layer_.backward(context, weight_views_, gradients, output_view(dy_), dx, saved);
    return set;
  }
  layer_.backward_input(context, weight_views_, output_view(dy_), dx, saved);
  layer_.backward_weight(context, gradients, saved);
  for (size_t i = 0; i < weights_.size(); ++i)
    if (accumulates(i))
      for (double& value : set.tensors[i + 1]) value -= kExisting;
  return set;
}

// Computes the central difference of fourth order: (f(-2h) - 8 f(-h) + 8 f(h) - f(2h)) / 12 h.
double Checker::difference(double& element) {
  const double value = element, h = check_.step;
  auto at = [&](double offset) {
    element = value + offset;
    return objective();
  };
  const double slope = (at(-2 * h) - 8 * at(-h) + 8 * at(h) - at(2 * h)) / (12 * h);
  element = value;
  return slope;
}

void Checker::compare(const std::vector<GradientSet>& sets, size_t tensor, Values& values, const std::string& name) {
  double largest = 1e-12;
  for (double gradient : sets[0].tensors[tensor]) largest = std::max(largest, std::abs(gradient));
  const size_t count = values.size();
  const size_t samples = check_.samples > 0 ? std::min(count, static_cast<size_t>(check_.samples)) : count;
  for (size_t sample = 0; sample < samples; ++sample) {
    const size_t element = sample * count / samples;
    const double expected = difference(values[element]);
    for (const GradientSet& set : sets) {
      const double error = std::abs(set.tensors[tensor][element] - expected) / largest;
      ++result_.compared;
      if (error <= result_.worst_error) continue;
      result_.worst_error = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
      result_.where = name + "[" + std::to_string(element) + "] (" + set.way + ")";
    }
  }
}

GradientCheckResult Checker::run() {
  std::vector<GradientSet> sets{gradients_by(Way::Apart), gradients_by(Way::Accumulated), gradients_by(Way::InTurn),
                                gradients_by(Way::Together)};
  if (computes_loss()) sets.push_back(gradients_by(Way::WithForward));
  if (!x_.empty()) compare(sets, 0, x_, "x");
  for (size_t i = 0; i < weights_.size(); ++i)
    if (layer_.parameters()[i].update.kind == ParameterUpdate::Kind::Optimizer)
      compare(sets, i + 1, weights_[i], layer_.parameters()[i].name);
  return result_;
}

}  // namespace

GradientCheckResult check_gradients(const Layer& layer, const GradientCheck& check) { return Checker(layer, check).run(); }

}  // namespace trivet::model
