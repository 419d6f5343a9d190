#include "model/dropped_layer.h"

#include <cmath>
#include <optional>

#include "comm/process_group.h"
#include "comm/rank_axis.h"
#include "core/random.h"
#include "kernels/kernels.h"

namespace trivet::model {
namespace {

// The context of a layer that takes its memory but neither computes nor communicates.
class WithoutWork {
 public:
  explicit WithoutWork(const Context& of) : context_{.kernels = *kernels_, .arena = of.arena} {
    context_.microbatch = of.microbatch;
    context_.random = of.random;
    context_.training = of.training;
    context_.gradient_scale = of.gradient_scale;
    context_.recompute_attention = of.recompute_attention;
    for (const auto& [name, axis] : EnumNames<Axis>::table)
      if (const comm::RankAxis* ranks = of.axes[axis]) replace(axis, *ranks);
  }
  Context& context() { return context_; }

 private:
  struct AloneOnAxis {
    std::unique_ptr<comm::ProcessGroup> group;
    std::optional<comm::RankAxis> axis;
  };

  void replace(Axis axis, const comm::RankAxis& ranks) {
    AloneOnAxis& alone = axes_[static_cast<size_t>(axis)];
    alone.group = comm::make_meta_group(ranks.rank(), ranks.size(), "left out");
    alone.axis.emplace(comm::RankAxis{
        .group = *alone.group, .stream = *stream_, .splits_tokens = ranks.splits_tokens, .fixed_sums = ranks.fixed_sums});
    context_.axes[axis] = &*alone.axis;
  }

  std::unique_ptr<kernels::Kernels> kernels_ = kernels::make_meta_kernels();
  std::unique_ptr<Stream> stream_ = make_inline_stream();
  std::array<AloneOnAxis, kAxes> axes_;
  Context context_;
};

// out += (1 - factor) x other
void add_rest(Context& context, ConstTensorView other, TensorView out, double factor) {
  const ScopedTensor rest(context.arena, other.dtype, other.shape);
  context.kernels.copy(other, rest);
  context.kernels.scale(rest, 1 - factor);
  context.kernels.add(rest, out);
}

void clear(Context& context, Gradients gradients) {
  for (const Gradient& gradient : gradients)
    if (!gradient.view.absent() && !gradient.accumulate) context.kernels.zero(gradient.view);
}

}  // namespace

double keep_probability(const LayerDrop& drop, int64_t block, int64_t blocks, int64_t step) {
  const double theta = (1 - drop.theta) * std::exp(-drop.gamma * static_cast<double>(step)) + drop.theta;
  return 1 - static_cast<double>(block) / static_cast<double>(blocks) * (1 - theta);
}

DroppedLayer::DroppedLayer(const Options& options, std::unique_ptr<Layer> layer)
    : options_(options), layer_(std::move(layer)) {}

double DroppedLayer::probability(const RandomSite& site) const {
  return keep_probability(options_.drop, options_.block, options_.blocks, static_cast<int64_t>(site.step.value()));
}

bool DroppedLayer::keeps(const RandomSite& site) const {
  const uint64_t key = random_key(site.seed, options_.name + ".layer_drop");
  return static_cast<double>(unit_float(philox(key, 0, static_cast<uint64_t>(site.step.value()))[0])) < probability(site);
}

// A plan counts all blocks.
bool DroppedLayer::computes(const Context& context) const {
  return context.kernels.device() == Device::Meta || keeps(context.random);
}

void DroppedLayer::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  if (!context.training) return layer_->forward(context, weights, x, y, saved);
  const double factor = 1 / probability(context.random);
  const auto run = [&](Context& c) {
    layer_->forward(c, weights, x, y, saved.child(0));
    c.kernels.scale(y, factor);
    add_rest(c, x, y, factor);
  };
  if (computes(context)) return run(context);
  WithoutWork without(context);
  run(without.context());
  context.kernels.copy(x, y);
}

template <typename Inner>
void DroppedLayer::through(Context& context, ConstTensorView dy, TensorView scaled, TensorView dx, const Inner& inner) const {
  const double factor = 1 / probability(context.random);
  context.kernels.copy(dy, scaled);
  context.kernels.scale(scaled, factor);
  inner(context);
  add_rest(context, dy, dx, factor);
}

void DroppedLayer::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  const TensorView scaled = saved.keep(context.arena, kDy, dy.dtype, dy.shape);
  const auto inner = [&](Context& c) { layer_->backward_input(c, weights, scaled, dx, saved.child(0)); };
  if (computes(context)) return through(context, dy, scaled, dx, inner);
  WithoutWork without(context);
  through(without.context(), dy, scaled, dx, inner);
  context.kernels.copy(dy, dx);
}

void DroppedLayer::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  if (computes(context)) return layer_->backward_weight(context, gradients, saved.child(0));
  clear(context, gradients);
}

// What a fused backward takes it gives back at once, so a step that leaves it out need not take it.
void DroppedLayer::backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                            Saved& saved) const {
  if (!computes(context)) {
    clear(context, gradients);
    return context.kernels.copy(dy, dx);
  }
  const ScopedTensor scaled(context.arena, dy.dtype, dy.shape);
  through(context, dy, scaled, dx, [&](Context& c) { layer_->backward(c, weights, gradients, scaled, dx, saved.child(0)); });
}

}  // namespace trivet::model
