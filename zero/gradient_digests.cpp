#include "zero/gradient_digests.h"

#include <algorithm>

#include "core/random.h"

namespace trivet::zero {

GradientDigests::GradientDigests(int block, const FlatGroup& layout, int audited_microbatch, kernels::Kernels& kernels,
                                 Device device)
    : audited_microbatch_(audited_microbatch), element_digest_(kernels, device) {
  for (const FlatParameter& parameter : layout.parameters)
    for (int shard = 0; shard < layout.shards; ++shard) {
      const Intersection part = intersection(parameter, shard * layout.shard_elements, layout.shard_elements);
      if (part.count == 0) continue;
      pieces_.push_back({.first = parameter.offset + part.first_in_parameter,
                         .count = part.count,
                         .first_in_parameter = part.first_in_parameter,
                         .key = random_key(0, parameter.name)});
      digests_.push_back({.block = block, .parameter = parameter.name, .shard = shard});
    }
}

GradientDigests::Field GradientDigests::contribution_of(int microbatch) const {
  if (recomputing_) return &GradientDigest::recomputed;
  return microbatch == audited_microbatch_ ? &GradientDigest::chosen : &GradientDigest::others;
}

void GradientDigests::begin_recomputation() {
  recomputing_ = true;
  for (GradientDigest& digest : digests_) digest.recomputed = 0;
}

void GradientDigests::add(Field field, ConstTensorView values, int64_t first) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    const Intersection part = intersection(piece.first, piece.count, first, values.elements());
    if (part.count == 0) continue;
    digests_[i].*field += element_digest_.of(values.slice(part.first_in_range, part.count), piece.key,
                                             piece.first_in_parameter + part.first_in_parameter);
  }
}

void GradientDigests::add_total(ConstTensorView values, int64_t first) {
  add(&GradientDigest::total, values, first);
  for (size_t i = 0; i < pieces_.size(); ++i)
    if (intersection(pieces_[i].first, pieces_[i].count, first, values.elements()).count > 0) digests_[i].holds_total = true;
}

}  // namespace trivet::zero
