// [Note: why operands of cut products are packed]  cuBLASLt's choice among its kernels also depends on strides and alignments,
// and the kernels' sums differ. If an operand's lines run along the cut dim, its stride depends on how many ranks share that
// dim, and so does the alignment of a piece's first element. So a part that is not dense and aligned is copied to where it is,
// and the algorithm depends only on the part's own size.
#include "kernels/cuda/products/multiply_in_pieces.h"

#include <fmt/format.h>

#include "core/error.h"
#include "kernels/cuda/products/around_products.h"
#include "kernels/cuda/products/cublas.h"
#include "kernels/product_scratch.h"

namespace trivet::kernels::cuda {
namespace {

constexpr int kBlocksPerMultiprocessor = 8;

// op(x) in memory: rows of x are `stride` elements apart.
struct Operand {
  const std::byte* data;
  DType dtype;
  int64_t stride;
  bool transposed;

  // The operand that starts at element (row, col) of op(x).
  Operand at(int64_t row, int64_t col) const {
    const int64_t offset = transposed ? col * stride + row : row * stride + col;
    return {data + offset * size_of(dtype), dtype, stride, transposed};
  }
};

Operand operand(const ConstTensorView& x, bool transposed) {
  return {static_cast<const std::byte*>(x.data), x.dtype, x.shape[1], transposed};
}

struct Block {
  int64_t row = 0, col = 0, rows = 0, cols = 0;
};

// Computes blocks of out.
class BlockProduct {
 public:
  BlockProduct(const Matmul& args, const Launch& launch)
      : args_(args),
        launch_(launch),
        scratch_(args),
        leaves_(args.cuts ? args.cuts->leaves : std::vector<std::vector<ProductCuts::Range>>{}),
        sum_dtype_(args.a.dtype == DType::Float64 ? DType::Float64 : DType::Float32) {
    if (leaves_.empty()) leaves_ = {{{0, args.transpose_a ? args.a.shape[0] : args.a.shape[1]}}};
  }

  void make(const Block& block) const {
    const bool any = sum(block, 0, leaves_.size(), 0);
    const int64_t stride = args_.out.shape[1];
    finish_part({.sum = any ? tile(0) : nullptr,
                 .out = args_.out.slice(block.row * stride + block.col, 0).data,
                 .out_dtype = args_.out.dtype,
                 .rows = block.rows,
                 .cols = block.cols,
                 .out_stride = stride,
                 .bias = args_.bias.absent() ? nullptr : args_.bias.slice(block.col, 0).data,
                 .bias_dtype = args_.bias.dtype,
                 .accumulate = args_.accumulate},
                blocks(), launch_.stream);
  }

 private:
  int blocks() const { return kBlocksPerMultiprocessor * launch_.multiprocessors; }
  std::byte* workspace(int64_t offset) const { return static_cast<std::byte*>(launch_.workspace.data) + offset; }
  std::byte* tile(int64_t level) const { return workspace(scratch_.tiles + level * scratch_.tile_bytes); }

  // Sums leaves [first, first + count) into the tile of `level`, with the help of deeper levels. Returns false if they have no
  // elements.
  bool sum(const Block& block, size_t first, size_t count, int64_t level) const {
    if (count == 1) return leaf(block, leaves_[first], level);
    const bool left = sum(block, first, count / 2, level);
    const int64_t other = left ? level + 1 : level;
    const bool right = sum(block, first + count / 2, count / 2, other);
    if (left && right) add_part(tile(other), tile(level), sum_dtype_, block.rows * block.cols, blocks(), launch_.stream);
    return left || right;
  }

  bool leaf(const Block& block, const std::vector<ProductCuts::Range>& ranges, int64_t level) const {
    bool any = false;
    for (const ProductCuts::Range& range : ranges) {
      if (range.begin == range.end) continue;
      multiply(block, range, tile(level), any);
      any = true;
    }
    return any;
  }

  void multiply(const Block& block, const ProductCuts::Range& range, std::byte* to, bool accumulate) const {
    const int64_t k = range.end - range.begin;
    Operand a = operand(args_.a, args_.transpose_a).at(block.row, range.begin);
    Operand b = operand(args_.b, args_.transpose_b).at(range.begin, block.col);
    if (args_.cuts) {
      a = dense(a, block.rows, k, workspace(scratch_.packed_a));
      b = dense(b, k, block.cols, workspace(scratch_.packed_b));
    }
    const Product product{.a = a.data,
                          .b = b.data,
                          .out = to,
                          .dtype = args_.a.dtype,
                          .out_dtype = sum_dtype_,
                          .transpose_a = args_.transpose_a,
                          .transpose_b = args_.transpose_b,
                          .accumulate = accumulate,
                          .m = block.rows,
                          .n = block.cols,
                          .k = k,
                          .a_stride = a.stride,
                          .b_stride = b.stride,
                          .out_stride = block.cols};
    const ProductKind kind = kind_of(product);
    if (!Cublas::of_current_device().multiply(product, kind, launch_.workspace.data, launch_.stream))
      throw DeviceError(ExitCode::Internal, fmt::format("cuda: cuBLASLt has no algorithm for {}", to_string(kind)));
  }

  Operand dense(const Operand& x, int64_t rows, int64_t cols, std::byte* to) const {
    const int64_t lines = x.transposed ? cols : rows, width = x.transposed ? rows : cols;
    if (x.stride == width && reinterpret_cast<uintptr_t>(x.data) % 16 == 0) return x;
    pack_part({.from = x.data, .to = to, .dtype = x.dtype, .rows = lines, .cols = width, .stride = x.stride}, blocks(),
              launch_.stream);
    return {to, x.dtype, width, x.transposed};
  }

  const Matmul& args_;
  const Launch& launch_;
  const ProductScratch scratch_;
  std::vector<std::vector<ProductCuts::Range>> leaves_;
  const DType sum_dtype_;
};

}  // namespace

void multiply_in_pieces(const Matmul& args, const Launch& launch) {
  const ProductCuts none;
  const ProductCuts& cuts = args.cuts ? *args.cuts : none;
  const BlockProduct product(args, launch);
  int64_t col = 0;
  for (int64_t col_end : ends_or(cuts.col_ends, args.out.shape[1])) {
    int64_t row = 0;
    for (int64_t row_end : ends_or(cuts.row_ends, args.out.shape[0])) {
      const int64_t most = rows_of_block(col_end - col);
      for (; row < row_end; row += most)
        if (col_end > col) product.make({row, col, std::min(most, row_end - row), col_end - col});
      row = row_end;
    }
    col = col_end;
  }
}

}  // namespace trivet::kernels::cuda
