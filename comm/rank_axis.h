// One axis of the mesh as a layer on one rank sees it: the ranks that differ along the axis only, and how layers share work
// with them. Layers find it by name: context.axes[Axis::Tensor] (core/layer.h).
//
// On the tensor axis the ranks hold the parts of split parameters. Activations between blocks are whole on every one of them,
// [B, S, H]. If the axis splits tokens (sequence parallelism, Korthikanti et al. 2022), each rank has its S / size consecutive
// tokens of every sequence, [B, S / size, H]; a layer that needs all tokens gathers them, and a layer that sums over ranks
// scatters the sum. Gradients of unsplit parameters are then sums over a rank's own tokens only; ZeRO sums them over the axis
// when it reduces.
//
// On the context axis each rank has a part of every sequence (core/sequence_part.h), and all parameters. For attention, ranks
// exchange tokens for heads, or keep their own tokens and get keys and values from each other. ContextKind::UlyssesRing does
// both, over two axes into which the context axis is cut:
//
//   4 ranks, 2 neighbours    exchanging_heads: {0, 1}, {2, 3}    keeping_tokens: {0, 2}, {1, 3}
//
// On the expert axis the ranks have tokens of their own, and different experts. Where sums over tokens have a fixed order, what
// context ranks contribute to an expert's gradient for one microbatch is one sum: `of_one_microbatch` consecutive ranks of the
// axis are context ranks of one microbatch, and context ranks beyond the axis that have the same experts are `same_experts`.
#pragma once

#include <optional>

#include "comm/process_group.h"
#include "core/sequence_part.h"
#include "core/stream.h"

namespace trivet::comm {

struct RankAxis {
  ProcessGroup& group;
  Stream& stream;  // runs the group's operations, on another thread if they overlap with computation
  bool splits_tokens = false;
  // reproducible "layout": sums over a split dim run over a fixed number of chunks in a balanced tree, so that their bits do
  // not depend on how many ranks share the dim (tensor_parallel/cuts.h).
  bool fixed_sums = false;
  ContextKind context_kind = ContextKind::Ulysses;  // of context ranks; not Auto
  SequencePart::Cut cut = SequencePart::Cut::InOrder;
  // For UlyssesRing: this rank's run of consecutive ranks, and the ranks at its place of each run. They share the stream.
  ProcessGroup *neighbours = nullptr, *across_neighbours = nullptr;
  int of_one_microbatch = 1;
  ProcessGroup* same_experts = nullptr;  // null: there are none

  int rank() const { return group.rank(); }
  int size() const { return group.size(); }
  // What this context rank has of each sequence.
  SequencePart part() const { return {rank(), size(), cut, neighbours ? neighbours->size() : 1}; }

  // The context ranks that exchange tokens for heads; empty if none do.
  std::optional<RankAxis> exchanging_heads() const {
    if (context_kind == ContextKind::UlyssesRing) return part_of_axis(*neighbours, ContextKind::Ulysses);
    return context_kind == ContextKind::Ulysses ? std::optional(*this) : std::nullopt;
  }
  // Those that keep their own tokens for attention, as a run of neighbours together does; empty if none do.
  std::optional<RankAxis> keeping_tokens() const {
    if (context_kind == ContextKind::UlyssesRing) return part_of_axis(*across_neighbours, ContextKind::Ring);
    return context_kind == ContextKind::Ulysses ? std::nullopt : std::optional(*this);
  }

 private:
  RankAxis part_of_axis(ProcessGroup& part, ContextKind kind) const {
    return {.group = part, .stream = stream, .fixed_sums = fixed_sums, .context_kind = kind, .cut = cut};
  }
};

}  // namespace trivet::comm
