#include "zero/parameter_group.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/fixed_point.h"
#include "core/random.h"
#include "zero/staged_walk.h"

namespace trivet::zero {
namespace {

std::logic_error too_many_contributions(const std::string& parameter) {
  return std::logic_error(
      fmt::format("zero: {} gets a second contribution in a step, but GroupOptions::contributions is 1", parameter));
}

// Returns the position of `index` in a row-major tensor of `shape`.
int64_t first_element(const Shape& index, const Shape& shape) {
  int64_t place = 0;
  for (int dim = 0; dim < shape.dims(); ++dim) place = place * shape[dim] + index[dim];
  return place;
}

}  // namespace

ParameterGroup::ParameterGroup(const FlatGroup& layout, const GroupOptions& options, const Resources& resources)
    : layout_(layout), options_(options), resources_(resources) {
  const bool sharded = options_.lifetimes.shard_parameters;
  if (has_weights())
    weights_ = {{.placement = sharded ? layout_.weights : Placement::Device,
                 .category = MemoryCategory::Parameters,
                 .dtype = options_.dtype,
                 .elements = sharded ? layout_.shard_elements : layout_.whole_elements},
                resources_};
  if (has_secondary())
    secondary_ = {{.category = MemoryCategory::Parameters,
                   .dtype = options_.dtype,
                   .elements = layout_.whole_elements / axis().secondary->size()},
                  resources_};
  if (!layout_.trainable) return;
  if (is_updated()) make_updated_tensors();
  const bool shard_gradients = options_.lifetimes.shard_gradients;
  gradients_ = {{.category = MemoryCategory::Gradients,
                 .dtype = shard_gradients ? gradient_shard_dtype() : accumulator_dtype(),
                 .elements = shard_gradients ? layout_.shard_elements : layout_.whole_elements},
                resources_};
  written_.assign(layout_.parameters.size(), false);
  in_contribution_.assign(layout_.parameters.size(), false);
  if (HostSide* const host = updating_host()) {
    gradients_.show_to_host(*host, owned_in_gradients(), owned_count());
    weights_.show_to_host(*host, owned_in_weights(), owned_count());
  }
}

void ParameterGroup::make_updated_tensors() {
  const PlacedTensorOptions state{
      .placement = layout_.states, .category = MemoryCategory::Optimizer, .dtype = DType::Float32, .elements = owned_count()};
  if (separate_master()) master_ = {state, resources_};
  for (int i = 0; i < options_.optimizer_states; ++i) states_.emplace_back(state, resources_);
}

int64_t ParameterGroup::owned_first() const {
  return options_.lifetimes.shard_optimizer ? axis().rank() * layout_.shard_elements : 0;
}
int64_t ParameterGroup::owned_count() const {
  return options_.lifetimes.shard_optimizer ? layout_.shard_elements : layout_.whole_elements;
}

// ---- weights

void ParameterGroup::unshard() {
  if (!options_.lifetimes.shard_parameters || !has_weights()) return;
  if (!gathered_.empty()) throw std::logic_error("zero: unshard of a group that is already whole");
  gathered_ = ScopedTensor(resources_.buffers, options_.dtype, {layout_.whole_elements});
  const auto gather = [&](ConstTensorView shard, comm::ProcessGroup& group) {
    gather_whole(shard, gathered_, group, axis().gather_stream, resources_.kernels, resources_.buffers, resources_.collectives);
    gathered_event_ = axis().gather_stream.record();
  };
  if (secondary_valid_) return gather(secondary_.view(), *axis().secondary);
  ConstTensorView shard = weights_.view();
  if (!weights_.on_device()) {
    const TensorView own = gathered_.view().slice(axis().rank() * shard.elements(), shard.elements());
    weights_.copy_to(own, axis().gather_stream, resources_);
    shard = own;
  }
  if (layout_.quantized) {
    gather_quantized(shard, gathered_, axis().gather, axis().gather_stream, resources_.kernels, resources_.buffers,
                     resources_.collectives, gather_scratch_);
    gathered_event_ = axis().gather_stream.record();
  } else {
    gather(shard, axis().gather);
  }
  if (has_secondary()) keep_secondary();
}

// The copy is on the stream of the gathers, so it is done before the next of them.
void ParameterGroup::keep_secondary() {
  const TensorView secondary = secondary_.view();
  const TensorView own = gathered_.view().slice(axis().secondary->rank() * secondary.elements(), secondary.elements());
  axis().gather_stream.enqueue([this, own, secondary] { resources_.kernels.copy(own, secondary); });
  gathered_event_ = axis().gather_stream.record();
  secondary_valid_ = true;
}

void ParameterGroup::wait() {
  gathered_event_.synchronize();
  gathered_event_ = {};
  gather_scratch_.clear();
}

void ParameterGroup::reshard() {
  if (!options_.lifetimes.shard_parameters) return;
  wait();
  gathered_.reset();
}

ConstTensorView ParameterGroup::weight(int index) const {
  const FlatParameter& parameter = layout_.parameters[index];
  if (options_.lifetimes.shard_parameters && gathered_.empty())
    throw std::logic_error(fmt::format(
        "zero: {} is used while it is sharded; the program lacks an UNSHARD before this instruction", parameter.name));
  const ConstTensorView whole = options_.lifetimes.shard_parameters ? ConstTensorView(gathered_) : weights_.view();
  return whole.slice(parameter.offset, parameter.elements()).reshaped(parameter.part.shape);
}

// ---- gradients

void ParameterGroup::begin_step() {
  std::fill(written_.begin(), written_.end(), false);
  shard_written_ = false;
  secondary_valid_ = false;
  reductions_ = 0;
  digests_.reset();
}

void ParameterGroup::begin_audit(int block, int audited_microbatch) {
  if (layout_.trainable)
    digests_.emplace(block, layout_, audited_microbatch, resources_.kernels, resources_.allocator.device());
}

// Integers are needed if terms are added: several contributions of this rank, or those of several ranks.
DType ParameterGroup::accumulator_dtype() const {
  if (!options_.fixed_point) return options_.gradient_dtype;
  return options_.contributions == 1 && axis().contributors() == 1 ? DType::Float32 : DType::Int64;
}

DType ParameterGroup::gradient_shard_dtype() const {
  if (!options_.fixed_point) return options_.gradient_dtype;
  return options_.contributions == 1 ? DType::Float32 : DType::Int64;
}

// Returns the whole tensor in which contributions are summed. If gradients are sharded, it exists only until retire().
TensorView ParameterGroup::accumulator() {
  if (!options_.lifetimes.shard_gradients) return gradients_.view();
  if (in_flight_.empty()) in_flight_ = ScopedTensor(resources_.buffers, accumulator_dtype(), {layout_.whole_elements});
  return in_flight_;
}

Gradient ParameterGroup::gradient(int index) {
  const FlatParameter& parameter = layout_.parameters[index];
  if (!layout_.trainable) return {};
  if (reducing_) retire();
  std::vector<bool>& written = options_.fixed_point ? in_contribution_ : written_;
  if (options_.fixed_point && scratch_.empty())
    scratch_ = ScopedTensor(resources_.buffers, DType::Float32, {layout_.whole_elements});
  const TensorView whole = options_.fixed_point ? scratch_.view() : accumulator();
  const bool accumulate = written[index];
  written[index] = true;
  return {whole.slice(parameter.offset, parameter.elements()).reshaped(parameter.part.shape), accumulate};
}

void ParameterGroup::end_contribution(Number scale, int microbatch) {
  if (!options_.fixed_point || scratch_.empty()) return;
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    if (!in_contribution_[i]) continue;
    if (digests_) digest_contribution(i, scale, microbatch);
    if (!digests_ || !digests_->recomputing()) add_contribution(i, scale);
    in_contribution_[i] = false;
  }
  scratch_.reset();
}

bool ParameterGroup::end_part(size_t index, Number scale) {
  if (!options_.fixed_point) return true;
  if (digests_) throw std::logic_error("gradients: parts of a contribution have no digests");
  add_contribution(index, scale);
  return false;
}

double ParameterGroup::contribution_limit() const { return fixed_point::limit(options_.fixed_point_terms); }

void ParameterGroup::add_contribution(size_t index, Number scale) {
  const double limit = contribution_limit();
  const FlatParameter& parameter = layout_.parameters[index];
  const TensorView sum = accumulator().slice(parameter.offset, parameter.elements());
  const TensorView contribution = scratch_.view().slice(parameter.offset, parameter.elements());
  kernels::Kernels& kernels = resources_.kernels;
  if (written_[index] && sum.dtype != DType::Int64) throw too_many_contributions(parameter.name);
  const TensorView refused = resources_.refused;
  if (sum.dtype != DType::Int64)
    kernels.fixed_point_round(contribution, scale, limit, sum, refused);
  else if (written_[index])
    kernels.fixed_point_add(contribution, scale, limit, sum, refused);
  else
    kernels.fixed_point_store(contribution, scale, limit, sum, refused);
  written_[index] = true;
}

// Rounds the contribution once more, apart from the accumulator, so that a mistake in the accumulator is not part of the
// digest.
void ParameterGroup::digest_contribution(size_t index, Number scale, int microbatch) {
  constexpr int64_t kMost = int64_t{1} << 16;  // elements at a time
  const double limit = contribution_limit();
  const FlatParameter& parameter = layout_.parameters[index];
  const ScopedTensor refused(resources_.buffers, DType::Int64, {1});  // they are counted when they are added
  const ScopedTensor rounded(resources_.buffers, accumulator_dtype(), {std::min(kMost, parameter.elements())});
  kernels::Kernels& kernels = resources_.kernels;
  for (int64_t done = 0; done < parameter.elements(); done += kMost) {
    const int64_t first = parameter.offset + done, count = std::min(kMost, parameter.elements() - done);
    const ConstTensorView contribution = scratch_.view().slice(first, count);
    const TensorView sum = rounded.view().slice(0, count);
    if (sum.dtype == DType::Int64)
      kernels.fixed_point_store(contribution, scale, limit, sum, refused);
    else
      kernels.fixed_point_round(contribution, scale, limit, sum, refused);
    digests_->add(digests_->contribution_of(microbatch), sum, first);
  }
}

// Padding and parameters without a contribution must be zero when the sum over ranks is taken.
void ParameterGroup::clear_unwritten(TensorView whole) {
  int64_t end = 0;
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    const FlatParameter& parameter = layout_.parameters[i];
    if (parameter.offset > end) resources_.kernels.zero(whole.slice(end, parameter.offset - end));
    if (!written_[i]) resources_.kernels.zero(whole.slice(parameter.offset, parameter.elements()));
    end = parameter.offset + parameter.elements();
  }
  resources_.kernels.zero(whole.slice(end, layout_.whole_elements - end));
}

void ParameterGroup::reduce() {
  if (!layout_.trainable) return;
  const TensorView whole = accumulator();
  clear_unwritten(whole);
  std::fill(written_.begin(), written_.end(), !options_.lifetimes.shard_gradients);
  if (digests_) digests_->add(&GradientDigest::accumulated, whole, 0);
  Stream& stream = axis().reduce_stream;
  if (layout_.summed_over_tensor && resources_.tensor_group)
    resources_.tensor_group->all_reduce(whole, comm::ReduceOp::Sum, stream);
  if (!options_.lifetimes.shard_optimizer) {
    reduce_whole(whole, axis().reduce, stream, resources_.collectives);
  } else if (resources_.collectives.quantized_gradients) {
    reduce_quantized(whole, {axis().reduce, axis().near, axis().far}, stream, resources_.kernels, resources_.buffers,
                     resources_.collectives, reduce_scratch_);
  } else {
    reduce_to_shard(whole, axis().reduce, stream, resources_.kernels, resources_.buffers, resources_.collectives);
  }
  const auto sum_replicas = [&](TensorView own) {
    if (axis().replicas) reduce_whole(own, *axis().replicas, stream, resources_.collectives);
  };
  const TensorView own = whole.slice(owned_first(), owned_count());
  const bool accumulates = options_.lifetimes.shard_gradients && options_.reductions > 1;
  if (!accumulates) sum_replicas(own);
  if (options_.lifetimes.shard_gradients) add_to_shard(own);
  if (++reductions_ == options_.reductions && accumulates) sum_replicas(gradients_.view());
  reduced_event_ = stream.record();
  reducing_ = true;
}

void ParameterGroup::add_to_shard(TensorView own) {
  if (shard_written_ && options_.fixed_point && gradients_.view().dtype != DType::Int64)
    throw too_many_contributions(layout_.parameters.front().name);
  axis().reduce_stream.enqueue([this, own, shard = gradients_.view(), first = !shard_written_] {
    kernels::Kernels& kernels = resources_.kernels;
    if (own.dtype == DType::Int64 && shard.dtype != DType::Int64) return kernels.fixed_point_read(own, shard);
    first ? kernels.copy(own, shard) : kernels.add(own, shard);
  });
  shard_written_ = true;
}

void ParameterGroup::retire() {
  if (!reducing_) return;
  reduced_event_.synchronize();
  reduced_event_ = {};
  if (digests_ && is_updated() && total_is_in_flight())
    digests_->add_total(in_flight_.view().slice(owned_first(), owned_count()), owned_first());
  in_flight_.reset();
  reduce_scratch_.clear();
  reducing_ = false;
}

TensorView ParameterGroup::tied_gradients() {
  retire();
  if (options_.lifetimes.shard_gradients) return gradients_.view();
  clear_unwritten(gradients_.view());
  std::fill(written_.begin(), written_.end(), true);
  return gradients_.view();
}

void ParameterGroup::digest_total() {
  if (digests_ && is_updated() && !total_is_in_flight())
    digests_->add_total(gradients_.view().slice(owned_in_gradients(), owned_count()), owned_first());
}

void ParameterGroup::begin_recomputation() {
  if (digests_) digests_->begin_recomputation();
}

// ---- the owned range

OwnedRange ParameterGroup::owned() {
  OwnedRange range{.first = owned_first(), .count = owned_count(), .host = updating_host()};
  const PlacedView weights = weights_.seen_by(range.host, owned_in_weights(), range.count);
  range.master = separate_master() ? master_.seen_by(range.host, 0, range.count) : weights;
  if (separate_master()) range.copy_out = weights;
  const PlacedView gradient = gradients_.seen_by(range.host, owned_in_gradients(), range.count);
  range.gradient = ConstPlacedView{gradient, gradient.staged};
  for (PlacedTensor& state : states_) range.states.push_back(state.seen_by(range.host, 0, range.count));
  return range;
}

HeldWeights ParameterGroup::held_weights() const {
  if (!has_weights() || !weights_.on_device()) return {};
  const bool whole = !options_.lifetimes.shard_parameters;
  HeldWeights held{.view = weights_.view(),
                   .first = whole ? 0 : owned_first(),
                   .whole = whole,
                   .owned_first = owned_first(),
                   .owned_count = owned_count(),
                   .updated_whole = !options_.lifetimes.shard_optimizer};
  if (separate_master() && master_.on_device()) held.updated.push_back(master_.view());
  for (const PlacedTensor& state : states_)
    if (state.on_device()) held.updated.push_back(state.view());
  return held;
}

void ParameterGroup::with_owned_weights(bool written, const std::function<void(TensorView)>& use) {
  weights_.use_on_device(owned_in_weights(), owned_count(), written, resources_.buffers, use);
}

void ParameterGroup::change_held(int index, const std::function<void(int64_t first, TensorView values)>& change) {
  if (!weights_.on_device()) throw std::logic_error("zero: weights that are offloaded cannot be changed in place");
  secondary_valid_ = false;
  const bool sharded = options_.lifetimes.shard_parameters;
  const int64_t first = sharded ? owned_first() : 0, count = sharded ? owned_count() : layout_.whole_elements;
  const Intersection part = intersection(layout_.parameters[index], first, count);
  if (part.count > 0) change(part.first_in_parameter, weights_.view().slice(part.first_in_range, part.count));
}

void ParameterGroup::publish() {
  secondary_valid_ = false;
  if (!options_.lifetimes.shard_optimizer || options_.lifetimes.shard_parameters || !has_weights()) return;
  const TensorView whole = weights_.view();
  gather_whole(whole.slice(owned_first(), owned_count()), whole, axis().gather, axis().gather_stream, resources_.kernels,
               resources_.buffers, resources_.collectives);
  gathered_event_ = axis().gather_stream.record();
}

// The values are those of the whole parameter; they are made row by row if the part is a range of columns.
void ParameterGroup::initialize(uint64_t seed) {
  if (!has_weights()) return;
  const auto pieces = pieces_of(*this, resources_.offload.staging.most_elements);
  visit(pieces, {.master = Access::Write, .copy_out = Access::Write}, resources_.buffers, resources_.offload.staging,
        [&](const OwnedPiece&, const OwnedRange& range) {
          kernels::Kernels& kernels = range.kernels(resources_.kernels);
          if (range.master.staged) kernels.zero(range.master);  // with the padding: memory of a group starts as zeros
          for (const FlatParameter& parameter : layout_.parameters)
            for (const tensor_parallel::LocalBox& box : parameter.part.boxes) initialize_box(parameter, box, seed, range);
          if (!range.copy_out.absent()) kernels.copy(range.master, range.copy_out);
        });
}

void ParameterGroup::initialize_box(const FlatParameter& parameter, const tensor_parallel::LocalBox& box, uint64_t seed,
                                    const OwnedRange& range) {
  const int64_t cols = box.shape.cols(), whole_cols = parameter.spec.shape.cols();
  const bool full_rows = cols == whole_cols;  // then the box is one run of the whole parameter, too
  const int64_t runs = full_rows ? 1 : box.shape.rows(), run = full_rows ? box.shape.elements() : cols;
  const int64_t start = first_element(box.start, parameter.spec.shape);
  for (int64_t i = 0; i < runs; ++i) {
    const Intersection part = intersection(parameter.offset + box.first + i * run, run, range.first, range.count);
    if (part.count == 0) continue;
    initialize_run(range, range.master.slice(part.first_in_range, part.count), parameter.spec.init,
                   random_key(seed, parameter.name), start + i * whole_cols + part.first_in_parameter);
  }
}

// Uses the device's kernels wherever the values are kept: on the host the last bit of a normal number may be different
// (docs/cuda.md).
void ParameterGroup::initialize_run(const OwnedRange& range, TensorView run, const Init& init, uint64_t key,
                                    int64_t first_element) {
  if (!range.host) return resources_.kernels.initialize(run, init, key, first_element);
  constexpr int64_t kMost = int64_t{1} << 20;
  for (int64_t first = 0; first < run.elements(); first += kMost) {
    const ScopedTensor values(resources_.buffers, run.dtype, {std::min(kMost, run.elements() - first)});
    resources_.kernels.initialize(values, init, key, first_element + first);
    range.host->to_host(values, run.slice(first, values.view().elements())).wait_on_host();
  }
}

}  // namespace trivet::zero
