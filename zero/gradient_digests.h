// Digests of a group's gradients on their way from microbatches to the sum over ranks, in a step that is audited
// (engine/gradient_audit.h). Only layout mode has them: there a gradient is summed as integers, and the digest of a sum of
// integers is the sum of their digests (kernels/element_digest.h).
//
//   contribution of a microbatch --round, add--> accumulator --reduce--> sum over ranks
//     chosen, others                             accumulated             total
//
// So chosen + others = accumulated on each rank, and the sum of `accumulated` over ranks = total. A contribution that is
// computed once more must have the digest `recomputed` = chosen of the rank that contributed it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/element_digest.h"
#include "zero/shard_layout.h"

namespace trivet::zero {

struct GradientDigest {
  int block = 0;
  std::string parameter;
  int shard = 0;            // a parameter that lies in several shards has one digest in each
  uint64_t chosen = 0;      // contribution of the audited microbatch
  uint64_t others = 0;      // contributions of this rank's other microbatches
  uint64_t recomputed = 0;  // contribution of another rank's microbatch, computed here once more
  uint64_t accumulated = 0;
  uint64_t total = 0;
  bool holds_total = false;  // this rank has the sum over ranks of these elements

  uint64_t contributed() const { return chosen + others; }
};

class GradientDigests {
 public:
  using Field = uint64_t GradientDigest::*;

  // `layout` and `kernels` must outlive it. `audited_microbatch`: number among this rank's microbatches of the step.
  GradientDigests(int block, const FlatGroup& layout, int audited_microbatch, kernels::Kernels& kernels, Device device);

  // Where a contribution of this microbatch goes.
  Field contribution_of(int microbatch) const;
  // From now on, contributions are those of another rank's microbatch. They are not added to the accumulator.
  void begin_recomputation();
  bool recomputing() const { return recomputing_; }

  // Adds the digest of `values`, which are elements first, first + 1 ... of the group.
  void add(Field field, ConstTensorView values, int64_t first);
  void add_total(ConstTensorView values, int64_t first);

  const std::vector<GradientDigest>& digests() const { return digests_; }

 private:
  // Elements of a parameter within one shard.
  struct Piece {
    int64_t first = 0, count = 0;  // in the group
    int64_t first_in_parameter = 0;
    uint64_t key = 0;
  };

  int audited_microbatch_;
  bool recomputing_ = false;
  kernels::ElementDigest element_digest_;
  std::vector<Piece> pieces_;
  std::vector<GradientDigest> digests_;  // [piece]
};

}  // namespace trivet::zero
