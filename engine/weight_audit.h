// Finds ranks whose weights differ although they should be equal, because memory or a processor changed a value without an
// error (silent data corruption; "Cores that don't count", Hochschild et al., HotOS'21).
//
// Three kinds of weights are held by several ranks:
//   - weights that are whole on each rank of the data axis (all below ZeRO stage 3, small parameters at stage 3); at stage 0
//     this includes the float32 master weights and the optimizer states; those of experts that ranks share are whole on the
//     ranks with the same experts,
//   - shards that have replicas (zero/shard_axis.h), with their master weights and optimizer states,
//   - parameters that the tensor axis does not split (norms, some biases), with their master weights and optimizer states: each
//     tensor rank updates its own copy.
// Weights that only one rank holds cannot be compared, and neither can offloaded ones.
//
// The digests (kernels/element_digest.h) of a parameter's shards add up to that of the whole, so the ranks may split a
// parameter into shards differently.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/participants.h"
#include "engine/mesh.h"
#include "zero/parameters.h"

namespace trivet {

struct WeightDigest {
  std::string parameter;
  // The digest of what is whole on this rank: equal on all ranks that differ only along the data axis.
  uint64_t whole = 0;
  // The digest of this rank's shards that have replicas: equal on all ranks that hold the same shard.
  uint64_t replicated = 0;
  // The digest of this rank's shard of an unsplit parameter: its sum over the data axis is equal on all tensor ranks.
  uint64_t unsplit = 0;
  // The digest of what is whole of experts that ranks share: equal on all ranks that have the same ones.
  uint64_t experts = 0;
};

// Computes a digest of each parameter that this rank holds and of what its optimizer keeps for it, in the order of the layout.
// Gathers must have finished.
std::vector<WeightDigest> digest_weights(zero::Parameters& parameters, kernels::Kernels& kernels, Device device);

struct Disagreement {
  std::vector<int> differing;  // world ranks, ascending: those outvoted by `agreeing`, or all if there is no majority
  std::vector<int> agreeing;   // the majority that holds equal weights; empty if there is none
};
// Compares one digest of each world rank. The result is empty if everything that should be equal is equal. `shards`: ranks that
// divide dense parameters (engine/sharing.h).
std::optional<Disagreement> find_disagreement(const Mesh& mesh, int shards, std::span<const WeightDigest> of_rank);

// Compares the weights of all ranks, which call it together. Throws CommError (ranks disagree) that names the ranks, their
// hosts and the first parameter. `host` is this rank's; `last_equal` is the step after which the last comparison passed.
void compare_weights(const Mesh& mesh, int shards, std::span<const WeightDigest> mine, const comm::Participants& all_ranks,
                     const std::string& host, int64_t step, int64_t last_equal);

}  // namespace trivet
