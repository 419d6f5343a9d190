// Products of experts: one product for each expert, or for each piece of its rows.
//
// [Note: rows of experts in pieces] The bits of a row must not depend on how many rows its expert has. oneDNN's kernels for
// fewer than 16 rows sum in another order than those for more, so a piece with fewer is filled up with zeros. How columns are
// cut does not depend on the number of rows, since empty cuts say so (kernels/cpu/matmul.cpp, CutTiling).
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"
#include "kernels/cpu/pieces.h"
#include "kernels/cpu/scratch.h"
#include "kernels/experts.h"

namespace trivet::kernels::cpu {
namespace {

constexpr int64_t kMostRows = 256, kLeastRows = 16;

struct Piece {
  int64_t expert = 0, first = 0, rows = 0;
};

std::vector<Piece> pieces_of(ConstTensorView ends) {
  std::vector<Piece> pieces;
  const int64_t ranges = ends.shape[1];
  int64_t begin = 0;
  for (int64_t expert = 0; expert < ends.shape[0]; ++expert) {
    const int64_t end = ends.as<int32_t>()[(expert + 1) * ranges - 1];
    for (; begin < end; begin += kMostRows) pieces.push_back({expert, begin, std::min(kMostRows, end - begin)});
    begin = end;
  }
  return pieces;
}

template <typename View>
View matrix_of(const View& view, int64_t expert) {
  const int64_t rows = view.shape[1], cols = view.shape[2];
  return view.slice(expert * rows * cols, rows * cols).reshaped({rows, cols});
}

void multiply_piece(const GroupedMatmul& args, const Piece& piece, const ProductCuts& cuts) {
  ConstTensorView a = args.a.row_range(piece.first, piece.rows);
  const TensorView out = args.out.row_range(piece.first, piece.rows);
  Matmul product{.a = a, .b = matrix_of(args.b, piece.expert), .out = out, .transpose_b = args.transpose_b, .cuts = &cuts};
  if (piece.rows >= kLeastRows) return compute(product, 1);
  thread_local Scratch a_scratch, out_scratch;
  const Shape filled_a{kLeastRows, a.shape[1]}, filled_out{kLeastRows, out.shape[1]};
  const int64_t bytes = filled_a.elements() * size_of(a.dtype);
  auto* memory = static_cast<std::byte*>(a_scratch.reserve(bytes));
  std::memcpy(memory, a.data, static_cast<size_t>(a.bytes()));
  std::memset(memory + a.bytes(), 0, static_cast<size_t>(bytes - a.bytes()));
  product.a = ConstTensorView{memory, a.dtype, filled_a};
  product.out = TensorView{out_scratch.reserve(filled_out.elements() * size_of(out.dtype)), out.dtype, filled_out};
  compute(product, 1);
  std::memcpy(out.data, product.out.data, static_cast<size_t>(out.bytes()));
}

}  // namespace

void compute(const GroupedMatmul& args, int threads) {
  if (args.out.shape[1] == 0) return;
  const std::vector<Piece> pieces = pieces_of(args.ends);
  const ProductCuts none;
  for_each_piece(static_cast<int64_t>(pieces.size()), threads,
                 [&](int64_t piece) { multiply_piece(args, pieces[piece], args.cuts ? *args.cuts : none); });
}

void compute(const GroupedGradient& args, int threads) {
  const int64_t ranges = args.ends.shape[1], of_leaf = ranges / args.leaves;
  ProductCuts cuts = args.cuts ? *args.cuts : ProductCuts{};
  int64_t begin = 0;
  for (int64_t expert = 0; expert < args.ends.shape[0]; ++expert) {
    const int32_t* ends = args.ends.as<int32_t>() + expert * ranges;
    const int64_t rows = ends[ranges - 1] - begin;
    const TensorView out = matrix_of(args.out, expert);
    if (rows == 0) {
      if (!args.accumulate) compute(Zero{out}, threads);
      continue;
    }
    cuts.leaves.clear();
    for (int64_t r = 0; args.leaves > 1 && r < ranges; ++r) {
      if (r % of_leaf == 0) cuts.leaves.emplace_back();
      cuts.leaves.back().push_back({r == 0 ? 0 : ends[r - 1] - begin, ends[r] - begin});
    }
    compute(Matmul{.a = args.a.row_range(begin, rows),
                   .b = args.b.row_range(begin, rows),
                   .out = out,
                   .transpose_a = true,
                   .accumulate = args.accumulate,
                   .cuts = args.cuts || args.leaves > 1 ? &cuts : nullptr},
            threads);
    begin += rows;
  }
}

}  // namespace trivet::kernels::cpu
