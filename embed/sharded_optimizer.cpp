#include "embed/sharded_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "embed/usage.h"
#include "engine/divergence.h"
#include "engine/weight_audit.h"

namespace trivet::embed {

// ---- where things are

const Unit& ShardedOptimizer::unit(int unit) const {
  if (unit < 0 || unit >= units()) throw usage_error("unit {} does not exist; there are {}, counted from 0", unit, units());
  return units_[unit];
}

const UnitPlace& ShardedOptimizer::place(int parameter) const {
  if (parameter < 0 || parameter >= parameters())
    throw usage_error("parameter {} does not exist; there are {}, counted from 0", parameter, parameters());
  return places_[parameter];
}

const zero::ParameterPlace& ShardedOptimizer::flat_place(int parameter) const {
  const UnitPlace& at = place(parameter);
  return layout_.blocks[at.unit].weights[at.index];
}

const zero::FlatParameter& ShardedOptimizer::flat(int parameter) const {
  const zero::ParameterPlace& at = flat_place(parameter);
  return layout_.blocks[at.block].groups[at.group].parameters[at.index];
}

ShardedOptimizer::UnitState& ShardedOptimizer::state_of(int unit) {
  this->unit(unit);
  return states_[unit];
}

// ---- weights

ConstTensorView ShardedOptimizer::weight(int parameter) const {
  const UnitPlace& at = place(parameter);
  const UnitState& state = states_[at.unit];
  if (state.weights.empty())
    throw usage_error("weight of \"{}\": its unit \"{}\" is not whole; call gather({}) before and release({}) after its use",
                      name(parameter), units_[at.unit].name, at.unit, at.unit);
  return state.weights[at.index];
}

void ShardedOptimizer::look_at_weights(int unit) { states_[unit].weights = parameters_->weights(unit); }

void ShardedOptimizer::prefetch(int unit) {
  UnitState& state = state_of(unit);
  if (state.gathered != Gathered::No) return;
  abort_others_on_error([&] { parameters_->unshard(unit); });
  state.gathered = Gathered::Started;
}

void ShardedOptimizer::gather(int unit) {
  UnitState& state = state_of(unit);
  if (state.users == 0) sum_units_complete_on_all_ranks();
  prefetch(unit);
  if (state.users == 0) abort_others_on_error([&] { look_at_weights(unit); });
  state.gathered = Gathered::Yes;
  ++state.users;
}

void ShardedOptimizer::release(int unit) {
  UnitState& state = state_of(unit);
  if (state.gathered == Gathered::No)
    throw usage_error("release of unit \"{}\", which is not gathered; each release() needs a gather() or prefetch()",
                      units_[unit].name);
  if (state.users > 0) --state.users;
  if (state.users > 0) return;
  abort_others_on_error([&] { parameters_->reshard(unit); });
  state.gathered = Gathered::No;
  if (config_.zero.stage >= 3) state.weights.clear();
}

void ShardedOptimizer::wait_for_gathers() {
  parameters_->for_each_group([](int, zero::ParameterGroup& group) { group.wait(); });
}

void ShardedOptimizer::refuse_gathered(const char* call) const {
  for (size_t unit = 0; unit < states_.size(); ++unit)
    if (states_[unit].gathered != Gathered::No)
      throw usage_error("{} while unit \"{}\" is gathered; release it first", call, units_[unit].name);
}

void ShardedOptimizer::refuse_open_step(const char* call) const {
  if (in_step_) throw usage_error("{} after gradients of a step have arrived; call step() first", call);
  refuse_gathered(call);
}

// ---- gradients

Gradient ShardedOptimizer::gradient(int parameter) {
  const zero::FlatParameter& flat = this->flat(parameter);
  if (!flat.spec.trainable) throw usage_error("gradient of \"{}\", which is frozen", flat.name);
  if (microbatch_ == microbatches_)
    throw usage_error(
        "gradient of \"{}\" after {} microbatches, as many as a step has (gradient_accumulation_steps); call step()", flat.name,
        microbatches_);
  if (gradients_[parameter] != GradientState::Missing)
    throw usage_error("a second gradient of \"{}\" in one microbatch; call end_microbatch() after each backward pass",
                      flat.name);
  begin_step();
  gradients_[parameter] = GradientState::Open;
  return abort_others_on_error([&] { return group(parameter).gradient(flat_place(parameter).index); });
}

void ShardedOptimizer::add_gradient(int parameter, ConstTensorView given) {
  const zero::FlatParameter& flat = this->flat(parameter);
  if (given.elements() != flat.elements() || !is_float(given.dtype))
    throw usage_error("gradient of \"{}\" has {} elements of {}; it must have {}, of a floating-point type", flat.name,
                      given.elements(), name_of(given.dtype), flat.elements());
  const Gradient own = gradient(parameter);
  abort_others_on_error([&] {
    if (!own.accumulate) return kernels_->copy(given, own.view);
    if (given.dtype == own.view.dtype) return kernels_->add(given, own.view);
    const ScopedTensor converted(*buffers_, own.view.dtype, own.view.shape);
    kernels_->copy(given, converted);
    kernels_->add(converted, own.view);
  });
  gradient_ready(parameter);
}

void ShardedOptimizer::gradient_ready(int parameter) {
  const int unit = unit_of(parameter);
  if (gradients_[parameter] != GradientState::Open)
    throw usage_error("gradient_ready of \"{}\" without gradient() before it; call both once in a microbatch", name(parameter));
  gradients_[parameter] = GradientState::Arrived;
  if (!arrivals_.arrived(unit)) return;
  abort_others_on_error([&] {
    complete_unit(unit);
    if (!sums_where_ranks_meet()) sum_complete_units();
  });
}

// In layout mode this rounds the contribution and adds it to the sums.
void ShardedOptimizer::complete_unit(int unit) { parameters_->end_contribution(unit, 1.0 / control_.loss_scale()); }

bool ShardedOptimizer::sums_this_microbatch() const {
  return (config_.zero.stage >= 2 && sharding_of(config_, mesh_).shards > 1) || microbatch_ + 1 == microbatches_;
}

void ShardedOptimizer::sum_complete_units(int from) {
  if (!sums_this_microbatch()) return;
  while (const auto unit = arrivals_.next(from)) parameters_->reduce(*unit, reducer_);
}

// See [Note: sums where ranks meet].
bool ShardedOptimizer::sums_where_ranks_meet() const {
  return config_.zero.stage >= 3 && sharding_of(config_, mesh_).shards > 1;
}

void ShardedOptimizer::sum_units_complete_on_all_ranks() {
  if (!sums_where_ranks_meet()) return;
  abort_others_on_error([&] {
    int64_t from = arrivals_.complete_from();
    const auto stream = make_inline_stream();
    checkpoint_group_->all_reduce({&from, DType::Int64, {1}}, comm::ReduceOp::Max, *stream);
    sum_complete_units(static_cast<int>(from));
  });
}

void ShardedOptimizer::refuse_open_gradients() const {
  const auto open = std::ranges::find(gradients_, GradientState::Open);
  if (open != gradients_.end())
    throw usage_error("end_microbatch() after gradient() of \"{}\" without its gradient_ready(); call that first",
                      name(static_cast<int>(open - gradients_.begin())));
}

void ShardedOptimizer::end_microbatch(double loss, int64_t count) {
  if (microbatch_ == microbatches_)
    throw usage_error(
        "end_microbatch() after {} microbatches, as many as a step has (gradient_accumulation_steps); call step()",
        microbatches_);
  if (count < 0) throw usage_error("end_microbatch() with a count of {} losses; give the number of losses, or 0", count);
  // The counts of all ranks are summed as integers, and are exact as double.
  if (const int64_t most = (int64_t{1} << 53) / microbatches_ / world_.size(); count > most)
    throw usage_error("end_microbatch() with a count of {} losses; give at most {}, so that those of a step are at most 2^53",
                      count, most);
  refuse_open_gradients();
  begin_step();
  abort_others_on_error([&] {
    for (int unit = 0; unit < units(); ++unit)
      if (!arrivals_.is_complete(unit)) complete_unit(unit);
    arrivals_.end_microbatch();
    sum_complete_units();
  });
  double* const sums = results_->losses(microbatches_).row_range(microbatch_, 1).as<double>();
  sums[0] = loss;
  sums[1] = static_cast<double>(count);
  ++microbatch_;
  arrivals_.begin_microbatch();
  std::ranges::fill(gradients_, GradientState::Missing);
}

// ---- steps

void ShardedOptimizer::begin_step() {
  if (in_step_) return;
  check_skipped_in_a_row();
  in_step_ = true;
}

// Called between steps, and not with the first gradient of the next: that one's forward gathers already belong to it, and which
// ranks a gather is over (zero/shard_axis.h, `secondary`) must not depend on when a rank's first gradient arrives.
void ShardedOptimizer::prepare_step() {
  results_->begin(*kernels_);
  parameters_->begin_step();
}

StepReport ShardedOptimizer::step() {
  if (microbatch_ != microbatches_)
    throw usage_error("step() after {} of {} microbatches (gradient_accumulation_steps); call end_microbatch() after each",
                      microbatch_, microbatches_);
  refuse_gathered("step()");
  const StepNumbers now = control_.numbers();
  abort_others_on_error([&] {
    reducer_.finish();
    kernels_->sum_losses({.losses = results_->losses(microbatches_), .words = results_->loss_words()});
    results_->sum_losses_over(channels_->group(Purpose::Control), channels_->stream(Purpose::Control));
    optimizer_->run({.scalars = step_scalars(now, config_.optimizer),
                     .unit = 1,
                     .clipping = config_.gradient_clipping,
                     .check_finite = !config_.bf16.enabled || config_.bf16.check_grad_overflow});
    wait_for_gathers();
  });
  results_->read(*kernels_);
  const bool skipped = !results_->applied(), counted = results_->loss().targets > 0;
  finish_step(skipped, counted);
  return {.loss = results_->loss().mean(),
          .gradient_norm = counted ? results_->grad_norm() : std::numeric_limits<double>::quiet_NaN(),
          .learning_rate = now.lr,
          .skipped = skipped,
          .steps = control_.progress().steps,
          .updates = control_.progress().updates};
}

void ShardedOptimizer::finish_step(bool skipped, bool counted) {
  in_step_ = false;
  microbatch_ = 0;
  prepare_step();
  control_.finish_step(skipped, !counted);
  const int64_t every = config_.audit.weights_every;
  if (every > 0 && steps() % every == 0) audit_weights();
}

// The trainer brings weights and loss, so that no key says what the run began with.
void ShardedOptimizer::check_skipped_in_a_row() const {
  constexpr int64_t kSomeUpdates = 1;
  control_.check_skipped_in_a_row(cure_of_overflows(config_, kSomeUpdates) + " and resume from a checkpoint");
}

// Also finds a trainer that writes to weights on some ranks only.
void ShardedOptimizer::audit_weights() {
  if (config_.audit.weights_every == 0 || world_.size() == 1 || audited_step_ == steps()) return;
  abort_others_on_error([&] {
    compare_weights(mesh_, sharding_of(config_, mesh_).shards, digest_weights(*parameters_, *kernels_, Device::Cpu),
                    comm::over_group(*checkpoint_group_), world_.host(), steps(), audited_step_);
  });
  audited_step_ = steps();
}

MemoryBytes ShardedOptimizer::measured_memory() const {
  MemoryBytes bytes = meter_.peak();
  bytes[MemoryCategory::Buffers] += buffers_->peak_bytes();
  return bytes;
}

}  // namespace trivet::embed
