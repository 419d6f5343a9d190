#include "kernels/leaf_kernels.h"

#include <stdexcept>

#include "kernels/kernels.h"
#include "kernels/leaf_sum.h"

namespace trivet::kernels {

LeafKernels::Rows LeafKernels::rows_of(int64_t batch, int64_t tokens, int leaves) const {
  if (leaves == 0 || tokens % leaves != 0)
    throw std::logic_error("leaf kernels: the leaves do not divide the tokens of a sequence");
  const int64_t of_leaf = tokens / leaves;
  Rows rows{batch * tokens, {inner_, std::vector<std::vector<TokenLeaves::Range>>(static_cast<size_t>(leaves))}, {}};
  for (int leaf = 0; leaf < leaves; ++leaf) {
    for (int64_t sequence = 0; sequence < batch; ++sequence) {
      const int64_t first = sequence * tokens + leaf * of_leaf;
      rows.leaves.ranges[static_cast<size_t>(leaf)].push_back({first, first + of_leaf});
    }
    rows.piece_ends.push_back((leaf + 1) * batch * of_leaf);
  }
  return rows;
}

void LeafKernels::set_rows(int64_t batch, int64_t tokens, int tensor_ranks) {
  const auto keep = [](Rows& to, Rows&& from) {
    to.count = from.count;
    to.leaves.ranges = std::move(from.leaves.ranges);
    to.piece_ends = std::move(from.piece_ends);
  };
  keep(all_, rows_of(batch, tokens, leaves_));
  keep(own_, rows_of(batch, tokens / tensor_ranks, leaves_ / tensor_ranks));
}

const LeafKernels::Rows* LeafKernels::find(ConstTensorView tensor) const {
  if (tensor.elements() == 0) return nullptr;
  if (tensor.shape.rows() == all_.count) return &all_;
  return tensor.shape.rows() == own_.count ? &own_ : nullptr;
}

void LeafKernels::run_product(const Matmul& product, const Rows& rows) {
  ProductCuts cuts = product.cuts ? *product.cuts : ProductCuts{};
  if (!product.transpose_a) {
    cuts.row_ends = rows.piece_ends;
  } else {
    for (const auto& ranges : rows.leaves.ranges) {
      auto& leaf = cuts.leaves.emplace_back();
      for (const TokenLeaves::Range& range : ranges) leaf.push_back({range.begin, range.end});
    }
  }
  Matmul cut = product;
  cut.cuts = &cuts;
  inner_.run(&cut);
}

template <typename Sum>
void LeafKernels::sum_leaves(const Rows& rows, TensorView out, bool accumulate, const Sum& sum) {
  LeafSum tree(inner_, arena_, out.dtype, out.shape);
  for (const auto& ranges : rows.leaves.ranges) {
    const TensorView leaf = tree.begin_leaf();
    for (const TokenLeaves::Range& range : ranges) sum(range, leaf, &range != &ranges.front());
    tree.end_leaf();
  }
  tree.store(out, accumulate);
}

void LeafKernels::run(const KernelArguments& arguments) {
  const auto rows_of = [](ConstTensorView view, const TokenLeaves::Range& range) {
    return view.row_range(range.begin, range.end - range.begin);
  };
  const auto part_of = [](ConstTensorView statistics, const TokenLeaves::Range& range) {
    return statistics.slice(range.begin, range.end - range.begin);
  };
  if (const auto* const* product = std::get_if<const Matmul*>(&arguments); product) {
    const Rows* const rows = find((*product)->a);
    return rows ? run_product(**product, *rows) : inner_.run(arguments);
  }
  if (const auto* const* bias = std::get_if<const BiasGradient*>(&arguments); bias && find((*bias)->dy))
    return sum_leaves(*find((*bias)->dy), (*bias)->dbias, (*bias)->accumulate,
                      [&](const auto& range, TensorView out, bool accumulate) {
                        inner_.bias_gradient({.dy = rows_of((*bias)->dy, range), .dbias = out, .accumulate = accumulate});
                      });
  if (const auto* const* norm = std::get_if<const RmsNormBackwardWeight*>(&arguments); norm && find((*norm)->x))
    return sum_leaves(*find((*norm)->x), (*norm)->dgain, (*norm)->accumulate,
                      [&](const auto& range, TensorView out, bool accumulate) {
                        inner_.rms_norm_backward_weight({.dy = rows_of((*norm)->dy, range),
                                                         .x = rows_of((*norm)->x, range),
                                                         .rstd = part_of((*norm)->rstd, range),
                                                         .dgain = out,
                                                         .accumulate = accumulate});
                      });
  if (const auto* const* norm = std::get_if<const LayerNormBackwardWeight*>(&arguments); norm && find((*norm)->x)) {
    const LayerNormBackwardWeight& both = **norm;
    const int64_t hidden = both.dgain.elements();
    const ScopedTensor sums(arena_, both.dgain.dtype, {2, hidden});
    sum_leaves(*find(both.x), sums, false, [&](const auto& range, TensorView out, bool accumulate) {
      inner_.layer_norm_backward_weight({.dy = rows_of(both.dy, range),
                                         .x = rows_of(both.x, range),
                                         .mean = part_of(both.mean, range),
                                         .rstd = part_of(both.rstd, range),
                                         .dgain = out.slice(0, hidden),
                                         .dbias = out.slice(hidden, hidden),
                                         .accumulate_gain = accumulate,
                                         .accumulate_bias = accumulate});
    });
    const auto store = [&](ConstTensorView sum, TensorView out, bool accumulate) {
      accumulate ? inner_.add(sum, out) : inner_.copy(sum, out);
    };
    store(sums.view().slice(0, hidden), both.dgain, both.accumulate_gain);
    store(sums.view().slice(hidden, hidden), both.dbias, both.accumulate_bias);
    return;
  }
  if (const auto* const* table = std::get_if<const EmbeddingBackward*>(&arguments);
      table && (*table)->dpositions.absent() && find((*table)->dy)) {
    const EmbeddingBackward& all = **table;
    const ConstTensorView dy = as_rows(all.dy);
    return sum_leaves(*find(all.dy), all.dtable, all.accumulate_table, [&](const auto& range, TensorView out, bool accumulate) {
      const int64_t count = range.end - range.begin;
      inner_.embedding_backward({.tokens = part_of(all.tokens, range).reshaped({1, count}),
                                 .dy = rows_of(dy, range).reshaped({1, count, dy.shape.cols()}),
                                 .dtable = out,
                                 .accumulate_table = accumulate,
                                 .rows = all.rows});
    });
  }
  inner_.run(arguments);
}

}  // namespace trivet::kernels
