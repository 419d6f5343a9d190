#include "engine/optimizer/muon.h"

#include <algorithm>
#include <cmath>

#include "engine/optimizer/newton_schulz.h"

namespace trivet {
namespace {

using zero::Access;

bool is_muon(const OwnedGroup& group, const zero::FlatParameter& parameter) {
  return group.role == LayerRole::Hidden && parameter.spec.shape.dims() == 2;
}

Shape shape_of_matrix(const ParameterSpec& parameter) { return {parameter.shape[0] / parameter.matrices, parameter.shape[1]}; }

bool has_muon(const OwnedGroup& group) {
  const auto& parameters = group.group->layout().parameters;
  return std::any_of(parameters.begin(), parameters.end(), [&](const auto& parameter) { return is_muon(group, parameter); });
}

}  // namespace

void MuonRule::update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) {
  if (!is_muon(elements.group, elements.parameter)) return adam_.add(side, elements, scalars, scalars.adam_lr, context_.config);
  side.kernels.momentum_update({.momentum_buffer = elements.state(0),
                                .out = elements.state(1),
                                .gradient = elements.gradient,
                                .verdict = side.verdict,
                                .momentum = context_.config.momentum,
                                .gradient_scale = elements.gradient_scale,
                                .nesterov = context_.config.nesterov});
}

void MuonRule::finish(const StepScalars& scalars) {
  int matrix = 0;
  for (const OwnedGroup& group : context_.owned.groups()) {
    if (!has_muon(group)) continue;
    ScopedTensor updates(context_.resources.buffers, DType::Float32, {group.group->layout().whole_elements});
    gather(*group.group, updates);
    matrix = orthogonalize(group, updates, matrix);
    apply(group, updates, scalars);
  }
}

void MuonRule::gather(zero::ParameterGroup& group, TensorView updates) {
  const UpdateResources& resources = context_.resources;
  const zero::OwnedRange owned = group.owned();
  zero::visit(zero::pieces_of(group, resources.offload.staging.most_elements),
              {Access::None, Access::None, {Access::None, Access::Read}}, resources.buffers, resources.offload.staging,
              [&](const zero::OwnedPiece&, const zero::OwnedRange& range) {
                const TensorView own = updates.slice(range.first, range.count);
                if (!range.host) return resources.kernels.copy(range.states[1], own);
                range.host->from_host(range.states[1], own).wait_on_host();
              });
  if (owned.count == updates.elements()) return;
  Stream& stream = resources.stream;
  zero::gather_whole(updates.slice(owned.first, owned.count), updates, resources.shard_group(group.layout().sharing), stream,
                     resources.kernels, resources.buffers, resources.collectives);
  stream.synchronize();
}

// Orthogonalizes the matrices of a group. `matrix` counts those of the groups before it, and determines which rank takes which.
int MuonRule::orthogonalize(const OwnedGroup& group, TensorView updates, int matrix) {
  const UpdateResources& resources = context_.resources;
  const zero::ShardAxis& axis = group.group->axis();
  Stream& stream = resources.stream;
  for (const zero::FlatParameter& parameter : group.group->layout().parameters) {
    if (!is_muon(group, parameter)) continue;
    const Shape shape = shape_of_matrix(parameter.spec);
    const NewtonSchulzScratch scratch(resources.buffers, shape);
    // A rank that shares experts has some of the matrices.
    for (int64_t place = 0; place < parameter.elements() / shape.elements(); ++place) {
      const int64_t first = parameter.offset + place * shape.elements();
      const TensorView update = updates.slice(first, shape.elements()).reshaped(shape);
      const int owner = matrix++ % axis.size();
      if (owner == axis.rank()) newton_schulz(resources.kernels, scratch, update);
      resources.shard_group(group.group->layout().sharing).broadcast(update, owner, stream);
      stream.synchronize();
    }
  }
  return matrix;
}

void MuonRule::apply(const OwnedGroup& group, TensorView updates, const StepScalars& scalars) {
  const UpdateResources& resources = context_.resources;
  zero::visit(zero::pieces_of(*group.group, resources.offload.staging.most_elements), {Access::ReadWrite, Access::ReadWrite},
              resources.buffers, resources.offload.staging, [&](const zero::OwnedPiece&, const zero::OwnedRange& range) {
                const TensorView own = updates.slice(range.first, range.count);
                if (!range.host) return apply_range(group, range, own, scalars);
                const ScopedTensor on_host(range.host->staging(), own.dtype, own.shape);
                range.host->to_host(own, on_host).wait_on_host();
                apply_range(group, range, on_host, scalars);
              });
}

// The update of a matrix [R, C] is scaled by sqrt(max(1, R / C)), so that its size does not depend on the shape. `updates` are
// those of the range.
void MuonRule::apply_range(const OwnedGroup& group, const zero::OwnedRange& range, ConstTensorView updates,
                           const StepScalars& scalars) {
  const UpdateSide& side = context_.sides.of(range);
  for (const zero::FlatParameter& parameter : group.group->layout().parameters) {
    const zero::Intersection part = intersection(parameter, range.first, range.count);
    if (part.count == 0 || !is_muon(group, parameter)) continue;
    const Shape shape = shape_of_matrix(parameter.spec);
    const double shape_scale = std::sqrt(std::max(1.0, static_cast<double>(shape[0]) / static_cast<double>(shape[1])));
    side.kernels.apply_update({.master = part_of(range.master, part.first_in_range, part.count),
                               .copy_out = part_of(range.copy_out, part.first_in_range, part.count),
                               .update = updates.slice(part.first_in_range, part.count),
                               .verdict = side.verdict,
                               .lr = scalars.muon_lr,
                               .scale = shape_scale,
                               .weight_decay = weight_decay_of(parameter, context_.config)});
  }
}

}  // namespace trivet
