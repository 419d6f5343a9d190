#include "engine/optimizer/lamb.h"

#include <algorithm>

#include "core/exact_sum.h"
#include "engine/optimizer/sum_over.h"
#include "kernels/kernels.h"

namespace trivet {
namespace {

using zero::Access;

constexpr size_t kLambUpdate = 2;  // the state that holds the update

zero::RangeAccess lamb_access(Access weights) {
  const Access copy_out = weights == Access::ReadWrite ? Access::ReadWrite : Access::None;
  return {weights, copy_out, {Access::None, Access::None, Access::Read}};
}

}  // namespace

LambRule::LambRule(const RuleContext& context) : context_(context) {
  const UpdateResources& resources = context.resources;
  const Shape shape{static_cast<int64_t>(context.owned.all().size()) * 2 * ExactSum::kWords};
  sums_ = Buffer(resources.allocator, resources.meter, MemoryCategory::Buffers, DType::Int64, shape);
  if (zero::HostSide* const host = resources.offload.host)
    sums_on_host_ = Buffer(host->allocator(), host->meter(), MemoryCategory::Buffers, DType::Int64, shape);
}

void LambRule::update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) {
  side.kernels.lamb_update({.master = elements.master(),
                            .moment1 = elements.state(0),
                            .moment2 = elements.state(1),
                            .update = elements.state(kLambUpdate),
                            .gradient = elements.gradient,
                            .verdict = side.verdict,
                            .beta1 = scalars.beta1,
                            .beta2 = scalars.beta2,
                            .epsilon = context_.config.epsilon,
                            .weight_decay = elements.weight_decay,
                            .gradient_scale = elements.gradient_scale,
                            .correction1 = scalars.correction1,
                            .correction2 = scalars.correction2});
}

void LambRule::finish(const StepScalars& scalars) {
  sum_squares();
  for (const UpdateSide& side : context_.sides.all())
    zero::visit(side.pieces, lamb_access(Access::ReadWrite), side.buffers, context_.resources.offload.staging,
                [&](const zero::OwnedPiece& piece, const zero::OwnedRange& range) { apply(side, piece, range, scalars); });
}

void LambRule::apply(const UpdateSide& side, const zero::OwnedPiece& piece, const zero::OwnedRange& range,
                     const StepScalars& scalars) {
  const auto& parameters = piece.group->layout().parameters;
  const size_t first_parameter = context_.owned.of(*piece.group).first_parameter;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const zero::Intersection part = intersection(parameters[i], range.first, range.count);
    if (part.count == 0) continue;
    side.kernels.apply_update({.master = part_of(range.master, part.first_in_range, part.count),
                               .copy_out = part_of(range.copy_out, part.first_in_range, part.count),
                               .update = part_of(range.states[kLambUpdate], part.first_in_range, part.count),
                               .verdict = side.verdict,
                               .lr = scalars.lr,
                               .square_sums = sums(side, first_parameter + i),
                               .min_ratio = context_.config.min_coefficient,
                               .max_ratio = context_.config.max_coefficient});
  }
}

// The sums are integers (core/exact_sum.h), so neither the place nor the order of the additions changes a bit. The device's
// sums start from the host's.
void LambRule::sum_squares() {
  kernels::Kernels& kernels = context_.sides.device().kernels;
  const UpdateSide* const host = context_.sides.host();
  if (host) {
    host->kernels.zero(sums_on_host_.view());
    sum_squares_of(*host);
    kernels.from_host(sums_on_host_.view(), sums_.view());
  } else {
    kernels.zero(sums_.view());
  }
  sum_squares_of(context_.sides.device());
  sum_over(context_.resources.of_stage, sums_.view(), context_.resources.stream);
  if (host) kernels.to_host(sums_.view(), sums_on_host_.view());
}

// Sums over the elements that this rank counts. Pieces end where blocks of the sums end; blocks count from the start of the
// part.
void LambRule::sum_squares_of(const UpdateSide& side) {
  const zero::StagingOptions& staging = context_.resources.offload.staging;
  std::vector<zero::OwnedPiece> pieces;
  std::vector<size_t> owners;  // [piece] index of its parameter
  int64_t set_bytes = 0;       // not those of the pieces, which differ between data ranks
  const zero::RangeAccess how = lamb_access(Access::Read);
  const int64_t most = std::max<int64_t>(staging.most_elements / kernels::kSumBlock, 1) * kernels::kSumBlock;
  const auto all = context_.owned.all();
  for (size_t i = 0; i < all.size(); ++i) {
    const zero::OwnedRange range = all[i].group->owned();
    if (range.host != side.host) continue;
    set_bytes = std::max(set_bytes, zero::most_staged_bytes(*all[i].group, how, std::min(most, range.count)));
    for (const OwnedPart& part : counted_parts(all[i], range))
      for (int64_t done = 0; done < part.count; done += most) {
        pieces.push_back({all[i].group, part.first + done, std::min(most, part.count - done)});
        owners.push_back(i);
      }
  }
  size_t next = 0;
  const auto sum_piece = [&](const zero::OwnedPiece&, const zero::OwnedRange& range) {
    const size_t owner = owners[next++];
    const TensorView both = sums(side, owner);
    const int64_t block = sum_block(all[owner]);
    side.kernels.sum_of_squares(range.master, 1.0, block, both.slice(0, ExactSum::kWords));
    side.kernels.sum_of_squares(range.states[kLambUpdate], 1.0, block, both.slice(ExactSum::kWords, ExactSum::kWords));
  };
  zero::visit(pieces, how, side.buffers, staging, sum_piece, set_bytes);
}

TensorView LambRule::sums(const UpdateSide& side, size_t parameter) {
  const TensorView all = side.host ? sums_on_host_.view() : sums_.view();
  return all.slice(static_cast<int64_t>(parameter) * 2 * ExactSum::kWords, 2 * ExactSum::kWords);
}

}  // namespace trivet
