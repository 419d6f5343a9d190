#include "model/row_chunks.h"

#include <algorithm>

#include "kernels/leaf_sum.h"

namespace trivet::model {
namespace {

Context inside_leaf(const Context& context) {
  return {.kernels = context.leaves->within,
          .arena = context.arena,
          .microbatch = context.microbatch,
          .random = context.random,
          .training = context.training,
          .gradient_scale = context.gradient_scale,
          .loss = context.loss,
          .correct = context.correct,
          .rewards = context.rewards,
          .expert_tokens = context.expert_tokens,
          .logits = context.logits,
          .recompute_attention = context.recompute_attention,
          .mlp_slice_tokens = context.mlp_slice_tokens,
          .positions = context.positions,
          .present_tokens = context.present_tokens,
          .leaves = nullptr,
          .axes = context.axes};
}

int64_t rows_of(const TokenLeaves& leaves) {
  int64_t rows = 0;
  for (const auto& ranges : leaves.ranges)
    for (const TokenLeaves::Range& range : ranges) rows += range.end - range.begin;
  return rows;
}

template <typename Do>
void cut(int64_t begin, int64_t end, int64_t most, const Do& run) {
  for (int64_t first = begin; first < end; first += most) run(RowChunk{first, std::min(most, end - first)});
}

void add_up(std::vector<Gradient>& gradients) {
  for (Gradient& gradient : gradients) gradient.accumulate = true;
}

// Sums of the leaves of several gradients, each in its own tree.
class LeafSums {
 public:
  LeafSums(Context& context, Gradients wanted) : wanted_(wanted) {
    for (const Gradient& gradient : wanted)
      sums_.emplace_back(context.kernels, context.arena, gradient.view.dtype, gradient.view.shape);
  }
  std::vector<Gradient> begin_leaf() {
    std::vector<Gradient> of_leaf(wanted_.size());
    for (size_t i = 0; i < sums_.size(); ++i)
      if (!wanted_[i].view.absent()) of_leaf[i] = {sums_[i].begin_leaf(), false};
    return of_leaf;
  }
  void end_leaf() {
    for (size_t i = 0; i < sums_.size(); ++i)
      if (!wanted_[i].view.absent()) sums_[i].end_leaf();
  }
  void store() {
    for (size_t i = 0; i < sums_.size(); ++i)
      if (!wanted_[i].view.absent()) sums_[i].store(wanted_[i].view, wanted_[i].accumulate);
  }

 private:
  Gradients wanted_;
  std::vector<kernels::LeafSum> sums_;
};

}  // namespace

void for_each_chunk(Context& context, int64_t rows, int64_t most, Gradients gradients, const ChunkWork& work) {
  if (!context.leaves || rows_of(*context.leaves) != rows) {
    std::vector<Gradient> sums(gradients.begin(), gradients.end());
    cut(0, rows, most, [&](const RowChunk& chunk) {
      work(context, chunk, sums);
      add_up(sums);
    });
    return;
  }
  Context within = inside_leaf(context);
  LeafSums sums(within, gradients);
  for (const auto& ranges : context.leaves->ranges) {
    std::vector<Gradient> of_leaf = sums.begin_leaf();
    for (const TokenLeaves::Range& range : ranges)
      cut(range.begin, range.end, most, [&](const RowChunk& chunk) {
        work(within, chunk, of_leaf);
        add_up(of_leaf);
      });
    sums.end_leaf();
  }
  sums.store();
}

}  // namespace trivet::model
