// Products of experts: one product for each expert, or for each piece of its rows.
//
// [Note: rows of experts in pieces] The bits of a row must not depend on how many rows its expert has. oneDNN's kernels for
// other numbers of rows may sum in another order, so pieces are filled up with zeros to a multiple of what tile_rows says (16
// with AVX-512, 12 without). How columns are cut does not depend on the number of rows, since empty cuts say so
// (kernels/cpu/matmul.cpp, CutTiling).
//
// [Note: few sizes of products] For bfloat16, a kernel of oneDNN, some 50 KiB, is kept for each size of a product, and experts
// have any number of rows. So pieces have a multiple of some rows, and gradients sum the rows of a range in two steps: a
// multiple of 64, then the rest.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"
#include "kernels/cpu/pieces.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/tile_product.h"
#include "kernels/experts.h"

namespace trivet::kernels::cpu {
namespace {

constexpr int64_t kSumUnit = 64;

struct Piece {
  int64_t expert = 0, first = 0, rows = 0;
};

std::vector<Piece> pieces_of(ConstTensorView ends) {
  std::vector<Piece> pieces;
  const int64_t most = tile_rows().most;
  const int64_t ranges = ends.shape[1];
  int64_t begin = 0;
  for (int64_t expert = 0; expert < ends.shape[0]; ++expert) {
    const int64_t end = ends.as<int32_t>()[(expert + 1) * ranges - 1];
    for (; begin < end; begin += most) pieces.push_back({expert, begin, std::min(most, end - begin)});
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
  Matmul product{.a = a,
                 .b = matrix_of(args.b, piece.expert),
                 .out = out,
                 .transpose_b = args.transpose_b,
                 .accumulate = args.accumulate,
                 .cuts = &cuts};
  const int64_t unit = tile_rows().unit;
  if (piece.rows % unit == 0) return compute(product, 1);
  thread_local Scratch a_scratch, out_scratch;
  const int64_t rows = (piece.rows + unit - 1) / unit * unit;
  const Shape filled_a{rows, a.shape[1]}, filled_out{rows, out.shape[1]};
  const int64_t bytes = filled_a.elements() * size_of(a.dtype);
  auto* memory = static_cast<std::byte*>(a_scratch.reserve(bytes));
  std::memcpy(memory, a.data, static_cast<size_t>(a.bytes()));
  std::memset(memory + a.bytes(), 0, static_cast<size_t>(bytes - a.bytes()));
  product.a = ConstTensorView{memory, a.dtype, filled_a};
  product.out = TensorView{out_scratch.reserve(filled_out.elements() * size_of(out.dtype)), out.dtype, filled_out};
  if (args.accumulate) {
    auto* const sums = static_cast<std::byte*>(product.out.data);
    std::memcpy(sums, out.data, static_cast<size_t>(out.bytes()));
    std::memset(sums + out.bytes(), 0, static_cast<size_t>(product.out.bytes() - out.bytes()));
  }
  compute(product, 1);
  std::memcpy(out.data, product.out.data, static_cast<size_t>(out.bytes()));
}

int64_t rows_of_first_step(const GroupedGradient& args, int64_t rows) {
  return args.a.dtype == DType::BFloat16 ? rows - rows % kSumUnit : rows;
}

// The gradient of an expert whose rows begin at `begin`, summed in one leaf or several.
void sum_in_leaves(const GroupedGradient& args, TensorView out, int64_t begin, std::span<const int32_t> ends, int threads) {
  const auto ranges = static_cast<int64_t>(ends.size()), of_leaf = ranges / args.leaves;
  ProductCuts cuts = args.cuts ? *args.cuts : ProductCuts{};
  cuts.leaves.resize(static_cast<size_t>(args.leaves));
  for (int64_t r = 0; r < ranges; ++r) {
    const int64_t first = r == 0 ? 0 : ends[r - 1] - begin, last = ends[r] - begin;
    const int64_t middle = first + rows_of_first_step(args, last - first);
    cuts.leaves[r / of_leaf].push_back({first, middle});
    cuts.leaves[r / of_leaf].push_back({middle, last});
  }
  const int64_t rows = ends.back() - begin;
  compute(Matmul{.a = args.a.row_range(begin, rows),
                 .b = args.b.row_range(begin, rows),
                 .out = out,
                 .transpose_a = true,
                 .accumulate = args.accumulate,
                 .cuts = &cuts},
          threads);
}

// The same without leaves, in a type that may be rounded to after each step.
void sum_in_steps(const GroupedGradient& args, TensorView out, int64_t begin, int64_t end, int threads) {
  const int64_t middle = begin + rows_of_first_step(args, end - begin);
  bool accumulate = args.accumulate;
  for (const auto& [first, last] : {std::pair(begin, middle), std::pair(middle, end)}) {
    if (first == last) continue;
    compute(Matmul{.a = args.a.row_range(first, last - first),
                   .b = args.b.row_range(first, last - first),
                   .out = out,
                   .transpose_a = true,
                   .accumulate = accumulate},
            threads);
    accumulate = true;
  }
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
  const int64_t ranges = args.ends.shape[1];
  // With cuts, a rank's only leaf has the bits of a leaf among others. bfloat16 is rounded to once.
  const bool in_leaves = args.cuts || ranges > 1 || args.out.dtype == DType::BFloat16;
  int64_t begin = 0;
  for (int64_t expert = 0; expert < args.ends.shape[0]; ++expert) {
    const std::span<const int32_t> ends(args.ends.as<int32_t>() + expert * ranges, static_cast<size_t>(ranges));
    const int64_t end = ends.back();
    const TensorView out = matrix_of(args.out, expert);
    if (begin == end && !args.accumulate) compute(Zero{out}, threads);
    if (begin != end && in_leaves) sum_in_leaves(args, out, begin, ends, threads);
    if (begin != end && !in_leaves) sum_in_steps(args, out, begin, end, threads);
    begin = end;
  }
}

}  // namespace trivet::kernels::cpu
