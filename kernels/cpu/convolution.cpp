// Convolutions as matrix products. The pixels under the windows of some rows of output pixels are copied next to each other
// ("columns"), so that a convolution of one image is a product of the weight and the columns:
//
//   y[O, P Q] = weight[O, C R S] columns[C R S, P Q]         R x S the window, P x Q output pixels
//   columns' gradient = weight^T dy, of which each element is added to the pixel that it was copied from
//   weight's gradient[O, C R S] = sum over images of dy[O, P Q] columns^T[P Q, C R S]
//
// Pieces are images, or blocks of rows of output pixels of one image; for the weight's gradient, ranges of images, whose sums
// are added in order. The shapes alone decide how work is cut, and each piece is done by one thread (kernels/cpu/pieces.h).
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/convolution.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"
#include "kernels/cpu/pieces.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/tile_product.h"

namespace trivet::kernels::cpu {
namespace {

// Rows that are added to pixels of an image, `stride` pixels apart.
template <typename Sum>
struct AddedRows {
  const Sum* from;
  int64_t from_pitch;  // elements from a row to the next
  Sum* to;
  int64_t to_pitch;
  int64_t rows, cols, stride;
};

}  // namespace
}  // namespace trivet::kernels::cpu

#define TRIVET_LOOPS "kernels/cpu/convolution_loops.inl"
#include "kernels/cpu/for_each_isa.inl"

namespace trivet::kernels::cpu {
namespace {

// Sizes of one image and of what a convolution makes of it.
struct ImageSizes {
  int64_t images, channels, rows, cols;      // sizes of x
  int64_t out_channels, out_rows, out_cols;  // sizes of y
  Window window;

  ImageSizes(const Shape& x, const Shape& y, const Window& given)
      : images(x[0]),
        channels(x[1]),
        rows(x[2]),
        cols(x[3]),
        out_channels(y[1]),
        out_rows(y[2]),
        out_cols(y[3]),
        window(given) {}

  int64_t x_elements() const { return channels * rows * cols; }
  int64_t y_elements() const { return out_channels * out_pixels(); }
  int64_t out_pixels() const { return out_rows * out_cols; }
  int64_t column_height() const { return channels * window.pixels(); }  // elements of one column
  bool empty() const { return images * y_elements() == 0; }
  // Columns of so many output rows are made at a time that they stay in the second-level cache.
  int64_t rows_of_block() const {
    constexpr int64_t kBlockElements = int64_t{1} << 17;
    const int64_t of_a_row = std::max<int64_t>(column_height() * out_cols, 1);
    return std::clamp<int64_t>(kBlockElements / of_a_row, 1, std::max<int64_t>(out_rows, 1));
  }
  int64_t blocks() const { return (out_rows + rows_of_block() - 1) / rows_of_block(); }
};

// Some rows of output pixels of an image.
struct RowBlock {
  int64_t first, rows, pixels;

  RowBlock(const ImageSizes& sizes, int64_t block)
      : first(block * sizes.rows_of_block()),
        rows(std::min(sizes.rows_of_block(), sizes.out_rows - first)),
        pixels(rows * sizes.out_cols) {}
};

// Output pixels [begin, end) along an edge of the image whose window has its pixel `window_pixel` inside of the image.
struct Inside {
  int64_t begin, end;

  Inside(const Window& window, int64_t pixels, int64_t out_pixels, int64_t window_pixel) {
    const int64_t offset = window_pixel - window.padding, stride = window.stride;
    begin = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
    const int64_t last = pixels - 1 - offset;
    end = last < 0 ? 0 : std::min(out_pixels, last / stride + 1);
    begin = std::min(begin, out_pixels);
    end = std::max(begin, end);
  }
};

// The pixels that a block takes from one channel for one pixel of its windows: rows of the image, `stride` pixels apart
// in both directions, which are adjacent in the columns.
struct Rectangle {
  int64_t rows, cols;                // output pixels whose window has this pixel inside of the image
  int64_t rows_before, cols_before;  // output pixels of the block outside of the image, above and to the left
  int64_t pixel;                     // the first element of the image
};

// Calls use(element of a column, rectangle) for all elements in order.
template <typename Use>
void for_each_rectangle(const ImageSizes& sizes, const RowBlock& block, const Use& use) {
  const Window& w = sizes.window;
  int64_t element = 0;
  for (int64_t channel = 0; channel < sizes.channels; ++channel)
    for (int64_t i = 0; i < w.rows; ++i) {
      const Inside of_image(w, sizes.rows, sizes.out_rows, i);
      const int64_t begin = std::clamp(of_image.begin, block.first, block.first + block.rows);
      const int64_t end = std::clamp(of_image.end, begin, block.first + block.rows);
      for (int64_t j = 0; j < w.cols; ++j, ++element) {
        const Inside cols(w, sizes.cols, sizes.out_cols, j);
        const int64_t row = begin * w.stride + i - w.padding, col = cols.begin * w.stride + j - w.padding;
        use(element, Rectangle{.rows = end - begin,
                               .cols = cols.end - cols.begin,
                               .rows_before = begin - block.first,
                               .cols_before = cols.begin,
                               .pixel = (channel * sizes.rows + row) * sizes.cols + col});
      }
    }
}

// to[i] = from[i stride]
template <typename T>
void copy_every(const T* from, int64_t stride, T* to, int64_t count) {
  constexpr int64_t kChunk = 16 / sizeof(T);
  if (stride != 1) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * stride];
    return;
  }
  // Most rows are so short that a call of memcpy would take longer than the copy.
  if (count < kChunk || count > 16 * kChunk) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < count - kChunk; i += kChunk) std::memcpy(to + i, from + i, 16);
  std::memcpy(to + count - kChunk, from + count - kChunk, 16);
}

// columns[C R S, pixels of the block]
template <typename T>
void make_columns(const ImageSizes& sizes, const RowBlock& block, const T* image, T* columns) {
  const int64_t stride = sizes.window.stride;
  for_each_rectangle(sizes, block, [&](int64_t element, const Rectangle& r) {
    T* to = columns + element * block.pixels;
    if (r.rows * r.cols != block.pixels) std::fill_n(to, block.pixels, T{});
    to += r.rows_before * sizes.out_cols + r.cols_before;
    for (int64_t row = 0; row < r.rows && r.cols > 0; ++row)
      copy_every(image + r.pixel + row * stride * sizes.cols, stride, to + row * sizes.out_cols, r.cols);
  });
}

// Adds each element of the columns to the pixel that it stands for.
template <typename Sum>
void add_columns(const ImageSizes& sizes, const RowBlock& block, const Sum* columns, Sum* image) {
  const auto add = by_isa(&baseline::add_rows<Sum>, &v3::add_rows<Sum>, &v4::add_rows<Sum>);
  const int64_t stride = sizes.window.stride;
  for_each_rectangle(sizes, block, [&](int64_t element, const Rectangle& r) {
    if (r.rows * r.cols == 0) return;
    add({.from = columns + element * block.pixels + r.rows_before * sizes.out_cols + r.cols_before,
         .from_pitch = sizes.out_cols,
         .to = image + r.pixel,
         .to_pitch = stride * sizes.cols,
         .rows = r.rows,
         .cols = r.cols,
         .stride = stride});
  });
}

template <typename T>
Operand matrix(const T* data, int64_t stride, bool transposed = false) {
  return {data, kDTypeOf<T>, std::max<int64_t>(stride, 1), transposed};
}

template <typename T>
void convolve(const Convolution& args, int threads) {
  using Sum = SumOf<T>;
  const ImageSizes sizes(args.x.shape, args.y.shape, args.window);
  if (sizes.empty()) return;
  const T *weight = args.weight.as<T>(), *bias = args.bias.absent() ? nullptr : args.bias.as<T>();
  for_each_piece(sizes.images * sizes.blocks(), threads, [&](int64_t piece) {
    thread_local Scratch column_scratch, product_scratch;
    const int64_t image = piece / sizes.blocks();
    const RowBlock block(sizes, piece % sizes.blocks());
    T* columns = column_scratch.reserve_elements<T>(sizes.column_height() * block.pixels);
    Sum* product = product_scratch.reserve_elements<Sum>(sizes.out_channels * block.pixels);
    make_columns(sizes, block, args.x.as<T>() + image * sizes.x_elements(), columns);
    tile_product({sizes.out_channels, block.pixels, sizes.column_height()}, matrix(weight, sizes.column_height()),
                 matrix(columns, block.pixels), product, block.pixels, false);
    for (int64_t channel = 0; channel < sizes.out_channels; ++channel) {
      const Sum* from = product + channel * block.pixels;
      T* to = args.y.as<T>() + image * sizes.y_elements() + channel * sizes.out_pixels() + block.first * sizes.out_cols;
      const Sum added = bias ? widen<Sum>(bias[channel]) : Sum{0};
      for (int64_t pixel = 0; pixel < block.pixels; ++pixel) to[pixel] = narrow<T>(from[pixel] + added);
    }
  });
}

template <typename T>
void input_gradient(const ConvolutionBackwardInput& args, int threads) {
  using Sum = SumOf<T>;
  const ImageSizes sizes(args.dx.shape, args.dy.shape, args.window);
  for_each_piece(sizes.images, threads, [&](int64_t image) {
    thread_local Scratch column_scratch, image_scratch;
    Sum* sum = image_scratch.reserve_elements<Sum>(sizes.x_elements());
    std::fill_n(sum, sizes.x_elements(), Sum{0});
    const T* dy = args.dy.as<T>() + image * sizes.y_elements();
    for (int64_t b = 0; b < sizes.blocks() && !sizes.empty(); ++b) {
      const RowBlock block(sizes, b);
      Sum* columns = column_scratch.reserve_elements<Sum>(sizes.column_height() * block.pixels);
      tile_product({sizes.column_height(), block.pixels, sizes.out_channels},
                   matrix(args.weight.as<T>(), sizes.column_height(), true),
                   matrix(dy + block.first * sizes.out_cols, sizes.out_pixels()), columns, block.pixels, false);
      add_columns(sizes, block, columns, sum);
    }
    T* dx = args.dx.as<T>() + image * sizes.x_elements();
    for (int64_t e = 0; e < sizes.x_elements(); ++e) dx[e] = narrow<T>(sum[e]);
  });
}

// sums[c] += the sum of the pixels of channel c, for kChannels channels. Several at a time are faster, because an addition has
// to wait for the one before it of the same channel.
template <int64_t kChannels, typename T>
void add_sums_together(const T* image, int64_t pixels, SumOf<T>* sums) {
  SumOf<T> own[kChannels] = {};
  for (int64_t pixel = 0; pixel < pixels; ++pixel)
    for (int64_t c = 0; c < kChannels; ++c) own[c] += widen<SumOf<T>>(image[c * pixels + pixel]);
  for (int64_t c = 0; c < kChannels; ++c) sums[c] += own[c];
}

template <typename T>
void add_channel_sums(const T* image, int64_t channels, int64_t pixels, SumOf<T>* sums) {
  int64_t channel = 0;
  for (; channel + 8 <= channels; channel += 8) add_sums_together<8>(image + channel * pixels, pixels, sums + channel);
  for (; channel < channels; ++channel) add_sums_together<1>(image + channel * pixels, pixels, sums + channel);
}

// The sums of a range of images: the weight's gradient [O, C R S], then the bias's [O].
template <typename T>
void sum_of_images(const ConvolutionBackwardWeight& args, const ImageSizes& sizes, int64_t first, int64_t end,
                   SumOf<T>* dweight, SumOf<T>* dbias) {
  thread_local Scratch column_scratch;
  for (int64_t image = first; image < end; ++image) {
    const T* dy = args.dy.as<T>() + image * sizes.y_elements();
    for (int64_t b = 0; b < sizes.blocks() && !args.dweight.absent(); ++b) {
      const RowBlock block(sizes, b);
      T* columns = column_scratch.reserve_elements<T>(sizes.column_height() * block.pixels);
      make_columns(sizes, block, args.x.as<T>() + image * sizes.x_elements(), columns);
      tile_product({sizes.out_channels, sizes.column_height(), block.pixels},
                   matrix(dy + block.first * sizes.out_cols, sizes.out_pixels()), matrix(columns, block.pixels, true), dweight,
                   sizes.column_height(), image > first || b > 0);
    }
    add_channel_sums(dy, sizes.out_channels, sizes.out_pixels(), dbias);
  }
}

// out (+)= the sums of all ranges, which are `stride` elements apart, in order.
template <typename Sum>
void store_total(TensorView out, bool accumulate, const Sum* sums, int64_t stride, int64_t ranges) {
  if (out.absent()) return;
  dispatch_float(out.dtype, [&]<typename G>() {
    G* to = out.as<G>();
    for (int64_t e = 0; e < out.elements(); ++e) {
      Sum total{0};
      for (int64_t range = 0; range < ranges; ++range) total += sums[range * stride + e];
      to[e] = narrow<G>(accumulate ? widen<Sum>(to[e]) + total : total);
    }
  });
}

template <typename T>
void weight_gradient(const ConvolutionBackwardWeight& args, int threads) {
  using Sum = SumOf<T>;
  constexpr int64_t kRanges = 8;  // so many threads can work at a time; each has sums of its own
  const ImageSizes sizes(args.x.shape, args.dy.shape, args.window);
  const int64_t ranges = sizes.empty() ? 0 : std::min(sizes.images, kRanges);
  const int64_t weights = sizes.out_channels * sizes.column_height(), stride = weights + sizes.out_channels;
  thread_local Scratch scratch;
  Sum* sums = scratch.reserve_elements<Sum>(ranges * stride);
  std::fill_n(sums, ranges * stride, Sum{0});
  for_each_piece(ranges, threads, [&](int64_t range) {
    Sum* own = sums + range * stride;
    sum_of_images<T>(args, sizes, sizes.images * range / ranges, sizes.images * (range + 1) / ranges, own, own + weights);
  });
  store_total(args.dweight, args.accumulate_weight, sums, stride, ranges);
  store_total(args.dbias, args.accumulate_bias, sums + weights, stride, ranges);
}

}  // namespace

void compute(const Convolution& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() { convolve<T>(args, threads); });
}

void compute(const ConvolutionBackwardInput& args, int threads) {
  dispatch_float(args.dy.dtype, [&]<typename T>() { input_gradient<T>(args, threads); });
}

void compute(const ConvolutionBackwardWeight& args, int threads) {
  dispatch_float(args.dy.dtype, [&]<typename T>() { weight_gradient<T>(args, threads); });
}

}  // namespace trivet::kernels::cpu
