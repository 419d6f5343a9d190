// Matrix products. The shapes alone decide how `out` is cut into tiles. Each tile is one oneDNN product on one thread, and the
// steps after it (bias, rounding, adding to a narrower type) are done while the tile is in the cache.
//
// With cuts (kernels/products.h, ProductCuts) no tile crosses the edge of a piece of out, and a tile is summed over the leaves
// of K in a tree of float32 tiles that stay in the cache.
//
// [Note: why oneDNN does not thread the product]  oneDNN may divide K among its threads if M and N are small, and the bits of
// the sum then depend on the number of threads.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <vector>

#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"
#include "kernels/cpu/pieces.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/tile_product.h"

namespace trivet::kernels::cpu {
namespace {

struct Sizes {
  int64_t m = 0, n = 0, k = 0;
};

[[noreturn]] void refuse(const Matmul& args, const char* why) {
  throw std::logic_error("matmul: a " + to_string(args.a.shape) + ", b " + to_string(args.b.shape) + ", out " +
                         to_string(args.out.shape) + ": " + why);
}

Sizes checked_sizes(const Matmul& args) {
  if (args.a.shape.dims() != 2 || args.b.shape.dims() != 2 || args.out.shape.dims() != 2)
    refuse(args, "a, b and out must be matrices");
  const auto& [a, b, out] = std::tie(args.a.shape, args.b.shape, args.out.shape);
  const Sizes sizes{out[0], out[1], args.transpose_a ? a[0] : a[1]};
  if ((args.transpose_a ? a[1] : a[0]) != sizes.m) refuse(args, "rows of op(a) and out differ");
  if ((args.transpose_b ? b[0] : b[1]) != sizes.n) refuse(args, "columns of op(b) and out differ");
  if ((args.transpose_b ? b[1] : b[0]) != sizes.k) refuse(args, "columns of op(a) and rows of op(b) differ");
  if (args.a.dtype != args.b.dtype) refuse(args, "a and b have different types");
  if (args.out.dtype != args.a.dtype && args.out.dtype != DType::Float32)
    refuse(args, "out must have the type of a or float32");
  if (args.out.dtype != args.a.dtype && args.a.dtype == DType::Float64) refuse(args, "out must be float64 if a and b are");
  if (!args.bias.absent() && args.accumulate) refuse(args, "bias and accumulate exclude each other");
  if (!args.bias.absent() && args.bias.elements() != sizes.n)
    refuse(args, "bias must have as many elements as out has columns");
  return sizes;
}

Operand operand(const ConstTensorView& x, bool transposed) {
  return {x.data, x.dtype, std::max<int64_t>(x.shape[1], 1), transposed};
}

// The division of `out` into tiles. It depends only on the sizes; the last tile of a row or column may be smaller.
struct Tiling {
  int64_t tile_m = 0, tile_n = 0, rows = 0, cols = 0;

  // Every tile reads its rows of a and columns of b, which oneDNN copies into its own layout, so this chooses the tiling that
  // reads least. It makes few tiles, because each copy costs time, but more if the product is so large that several threads
  // should get equal shares of it.
  explicit Tiling(const Sizes& sizes) {
    const double gflop = 2e-9 * static_cast<double>(sizes.m) * static_cast<double>(sizes.n) * static_cast<double>(sizes.k);
    const int64_t wanted = gflop > 12 ? 12 : 4;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int64_t candidate = 1; candidate <= wanted; ++candidate) {
      if (wanted % candidate != 0) continue;
      const int64_t m = tile_edge(sizes.m, candidate), n = tile_edge(sizes.n, wanted / candidate);
      const int64_t candidate_rows = pieces_of(sizes.m, m), candidate_cols = pieces_of(sizes.n, n);
      const int64_t read = candidate_cols * sizes.m + candidate_rows * sizes.n, count = candidate_rows * candidate_cols;
      if (count < rows * cols || (count == rows * cols && read >= least)) continue;
      least = read, tile_m = m, tile_n = n, rows = candidate_rows, cols = candidate_cols;
    }
  }

 private:
  static int64_t pieces_of(int64_t size, int64_t edge) { return (size + edge - 1) / edge; }
  // A multiple of 16, which suits oneDNN's kernels, and not so small that the copies take longer than the product.
  static int64_t tile_edge(int64_t size, int64_t pieces) {
    return std::max<int64_t>(64, pieces_of(pieces_of(size, pieces), 16) * 16);
  }
};

// The part of the bias that belongs to a tile, as float32 (float64); null if there is no bias.
template <typename Sum>
const Sum* bias_of_tile(const ConstTensorView& bias, int64_t col, int64_t cols) {
  if (bias.absent()) return nullptr;
  thread_local Scratch scratch;
  Sum* part = scratch.reserve_elements<Sum>(cols);
  dispatch_float(bias.dtype, [&]<typename T>() {
    std::transform(bias.as<T>() + col, bias.as<T>() + col + cols, part, [](T x) { return widen<Sum>(x); });
  });
  return part;
}

// out (+)= tile (+ bias); out may be the tile itself.
template <typename Out, typename Sum>
void finish_tile(const Sum* tile, int64_t tile_stride, const TileSize& size, Out* out, int64_t out_stride, const Sum* bias,
                 bool accumulate) {
  for (int64_t row = 0; row < size.m; ++row) {
    const Sum* from = tile + row * tile_stride;
    Out* to = out + row * out_stride;
    if (bias)
      for (int64_t col = 0; col < size.n; ++col) to[col] = narrow<Out>(from[col] + bias[col]);
    else if (accumulate)
      for (int64_t col = 0; col < size.n; ++col) to[col] = narrow<Out>(widen<Sum>(to[col]) + from[col]);
    else
      for (int64_t col = 0; col < size.n; ++col) to[col] = narrow<Out>(from[col]);
  }
}

template <typename Out, typename Sum>
void make_tile(const Matmul& args, const TileSize& size, int64_t row, int64_t col) {
  const Operand a = operand(args.a, args.transpose_a).at(row, 0), b = operand(args.b, args.transpose_b).at(0, col);
  const int64_t stride = args.out.shape[1];
  Out* out = args.out.as<Out>() + row * stride + col;
  const void* raw_bias = args.bias.absent() ? nullptr : args.bias.slice(col, size.n).data;
  if (complete_tile(size, a, b, {out, args.out.dtype, stride, args.accumulate, raw_bias, args.bias.dtype})) return;
  const Sum* bias = bias_of_tile<Sum>(args.bias, col, size.n);
  if constexpr (std::is_same_v<Out, Sum>) {
    tile_product(size, a, b, out, stride, args.accumulate);
    if (bias) finish_tile(out, stride, size, out, stride, bias, false);
  } else {
    thread_local Scratch scratch;
    Sum* tile = scratch.reserve_elements<Sum>(size.m * size.n);
    tile_product(size, a, b, tile, size.n, false);
    finish_tile(tile, size.n, size, out, stride, bias, args.accumulate);
  }
}

struct Tile {
  int64_t row = 0, col = 0, rows = 0, cols = 0;
};

// The tiles of a product with cuts: how a piece of out is cut depends only on the size of the piece.
class CutTiling {
 public:
  CutTiling(const Sizes& sizes, const ProductCuts& cuts) {
    const Edges edges = cuts.leaves.empty() ? Edges{512, 512} : kTreeEdges;
    for_each_part(sizes.m, cuts.row_ends, edges.rows, [&](int64_t row, int64_t rows) {
      for_each_part(sizes.n, cuts.col_ends, edges.cols, [&](int64_t col, int64_t cols) {
        tiles_.push_back({row, col, rows, cols});
      });
    });
  }
  const std::vector<Tile>& tiles() const { return tiles_; }

 private:
  struct Edges {
    int64_t rows, cols;
  };
  static constexpr Edges kTreeEdges{128, 256};  // a float32 tile for each level of the tree stays in the second-level cache

  template <typename Body>
  static void for_each_part(int64_t size, const std::vector<int64_t>& ends, int64_t edge, const Body& body) {
    const int64_t whole[] = {size};
    int64_t begin = 0;
    for (int64_t end : ends.empty() ? std::span<const int64_t>(whole) : std::span<const int64_t>(ends)) {
      const int64_t parts = (end - begin + edge - 1) / edge;
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t first = begin + (end - begin) * part / parts, last = begin + (end - begin) * (part + 1) / parts;
        body(first, last - first);
      }
      begin = end;
    }
  }

  std::vector<Tile> tiles_;
};

// [Note: why operands of cut products are packed]  oneDNN's choice among its kernels also depends on the strides, and the
// kernels' sums differ in the last bits: this was seen for bfloat16, and for float32 with K = 2048. If an operand's lines run
// along the cut dim, its stride depends on how many ranks share that dim.
Operand packed(const Operand& x, int64_t rows, int64_t cols, Scratch& scratch) {
  const int64_t lines = x.transposed ? cols : rows, width = x.transposed ? rows : cols, bytes = size_of(x.dtype);
  auto* to = static_cast<std::byte*>(scratch.reserve(lines * width * bytes));
  for (int64_t line = 0; line < lines; ++line)
    std::memcpy(to + line * width * bytes, static_cast<const std::byte*>(x.data) + line * x.stride * bytes, width * bytes);
  return {to, x.dtype, width, x.transposed};
}

// The sum over the leaves of K for one tile of out, in dense float32 (float64) tiles, one for each level of the tree.
template <typename Sum>
class TileTree {
 public:
  TileTree(const Matmul& args, const TileSize& size, const Operand& a, const Operand& b)
      : leaves_(args.cuts->leaves),
        size_(size),
        a_(a),
        b_(b),
        pack_a_(args.transpose_a ? !args.cuts->row_ends.empty() : !leaves_.empty()),
        pack_b_(args.transpose_b ? !leaves_.empty() : !args.cuts->col_ends.empty()) {
    if (leaves_.empty()) leaves_ = {{{0, size.k}}};
  }

  // Sums leaves [first, first + count) into `to`, with room for the deeper levels behind it. Returns false if they have no
  // elements.
  bool sum(size_t first, size_t count, Sum* to) const {
    if (count == 1) return leaf(leaves_[first], to);
    const bool left = sum(first, count / 2, to);
    Sum* other = left ? to + elements() : to;
    const bool right = sum(first + count / 2, count / 2, other);
    if (left && right)
      for (int64_t i = 0; i < elements(); ++i) to[i] += other[i];
    return left || right;
  }
  // The sum of all leaves, or zeros if there is nothing to add. Valid until the thread's next call.
  const Sum* sum_of_all() const {
    thread_local Scratch scratch;
    const int64_t levels = 1 + std::bit_width(leaves_.size());
    Sum* to = scratch.reserve_elements<Sum>(levels * elements());
    if (!sum(0, leaves_.size(), to)) std::fill_n(to, elements(), Sum{0});
    return to;
  }

 private:
  int64_t elements() const { return size_.m * size_.n; }
  bool leaf(const std::vector<ProductCuts::Range>& ranges, Sum* to) const {
    bool any = false;
    for (const ProductCuts::Range& range : ranges) {
      if (range.begin == range.end) continue;
      const int64_t length = range.end - range.begin;
      thread_local Scratch a_scratch, b_scratch;
      Operand a = a_.at(0, range.begin), b = b_.at(range.begin, 0);
      if (pack_a_) a = packed(a, size_.m, length, a_scratch);
      if (pack_b_) b = packed(b, length, size_.n, b_scratch);
      tile_product({size_.m, size_.n, length}, a, b, to, size_.n, any);
      any = true;
    }
    return any;
  }

  std::vector<std::vector<ProductCuts::Range>> leaves_;
  TileSize size_;
  Operand a_, b_;
  bool pack_a_, pack_b_;
};

template <typename Out, typename Sum>
void make_cut_tile(const Matmul& args, const TileSize& size, int64_t row, int64_t col) {
  const Operand a = operand(args.a, args.transpose_a).at(row, 0), b = operand(args.b, args.transpose_b).at(0, col);
  const int64_t stride = args.out.shape[1];
  finish_tile(TileTree<Sum>(args, size, a, b).sum_of_all(), size.n, size, args.out.as<Out>() + row * stride + col, stride,
              bias_of_tile<Sum>(args.bias, col, size.n), args.accumulate);
}

void matmul_in_cuts(const Matmul& args, const Sizes& sizes, int threads) {
  const CutTiling tiling(sizes, *args.cuts);
  for_each_piece(static_cast<int64_t>(tiling.tiles().size()), threads, [&](int64_t piece) {
    const Tile& tile = tiling.tiles()[piece];
    dispatch_float(args.out.dtype, [&]<typename Out>() {
      make_cut_tile<Out, SumOf<Out>>(args, {tile.rows, tile.cols, sizes.k}, tile.row, tile.col);
    });
  });
}

void matmul_in_tiles(const Matmul& args, const Sizes& sizes, int threads) {
  const Tiling tiling(sizes);
  for_each_piece(tiling.rows * tiling.cols, threads, [&](int64_t piece) {
    const int64_t row = piece % tiling.rows * tiling.tile_m, col = piece / tiling.rows * tiling.tile_n;
    const TileSize size{std::min(tiling.tile_m, sizes.m - row), std::min(tiling.tile_n, sizes.n - col), sizes.k};
    dispatch_float(args.out.dtype, [&]<typename Out>() { make_tile<Out, SumOf<Out>>(args, size, row, col); });
  });
}

}  // namespace

void compute(const Matmul& args, int threads) {
  const Sizes sizes = checked_sizes(args);
  if (sizes.m == 0 || sizes.n == 0) return;
  if (args.cuts)
    matmul_in_cuts(args, sizes, threads);
  else
    matmul_in_tiles(args, sizes, threads);
  if (!args.activated.absent()) compute(Gelu{.x = args.out, .y = args.activated}, threads);
  if (!args.before_gelu.absent()) compute(GeluBackward{.dy = args.out, .x = args.before_gelu, .dx = args.out}, threads);
}

}  // namespace trivet::kernels::cpu
