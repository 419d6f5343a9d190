// Finds gradients that a processor, memory or a message changed without an error (silent data corruption; see weight_audit.h
// for weights). It relies on reproducible "layout", in which a microbatch has the same gradient bits on every rank.
//
// Every audit.every_steps steps, after the program of a step and before its update, each data rank computes one microbatch of
// another data rank again, and the digests of all gradients are compared (zero/gradient_digests.h). All ranks of a data rank's
// pipeline and tensor axes do so together. A random number from seed and step says which microbatch, and how far away the data
// rank is that computes it again:
//
//   distance 1       data rank      0    1    2
//                    recomputes     1    2    0        a microbatch of this data rank
//
// Three things must be equal:
//   - the gradient of the audited microbatch where it belongs, and where it is computed again: else a processor, or memory that
//     holds weights, inputs or activations, changed a value. With one data rank, the same rank computes both.
//   - a rank's sum over microbatches, and the sum of the digests of its contributions: else memory that holds sums changed.
//   - the sum over ranks, and the sum of their digests: else a message changed, or memory after it arrived.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/participants.h"
#include "engine/mesh.h"
#include "zero/gradient_digests.h"

namespace trivet {

struct AuditChoice {
  int microbatch = 0;  // among those of each data rank
  int distance = 0;    // data rank d computes that of d + distance again; 0: there is only one data rank
};
AuditChoice choose_audit(uint64_t seed, int64_t step, int microbatches, int data_ranks);
// Another distance, for a third opinion; needs at least 3 data ranks.
int other_distance(int distance, int data_ranks);

// The inputs of an audit on one rank.
struct GradientAudit {
  const Mesh& mesh;
  int holders = 1;  // ranks that have the sum over ranks of an element
  AuditChoice choice;
  int64_t step = 0;  // counted from 1
  std::string host;  // this rank's
  const comm::Participants& all_ranks;
  // Computes the audited microbatch of the data rank at this distance, and returns the digests of this rank.
  std::function<std::vector<zero::GradientDigest>(int distance)> recompute;
  std::function<void()> compare_weights;  // throws if ranks hold different weights
};
// All ranks call it together. Throws CommError (ranks disagree) that names the ranks, their hosts, the microbatch and the
// parameter. Weights are compared first: that identifies a weight that changed, and finds one that the microbatch does not use.
// After the update it would be too late: a rank that owns a shard sends it to all others, wrong or not.
void audit_gradients(const GradientAudit& audit);

}  // namespace trivet
