// Pooling. Each plane (one channel of one image) is done by one thread, which copies it into a padded plane, so that the loops
// over windows need no bounds.
#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/convolution.h"
#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"

namespace trivet::kernels::cpu {
namespace {

// A row of windows in a padded plane.
template <typename Sum>
struct WindowRow {
  const Sum* pixels;     // the first pixel of the first window
  int64_t pitch;         // from a row of pixels to the next
  int64_t count;         // windows
  int64_t rows_outside;  // each window's rows above the image
  Window window;
};

// A place within a window; as wide as a pixel, so that both fit the same vectors.
template <typename Sum>
using PlaceOf = std::conditional_t<std::is_same_v<Sum, double>, int64_t, int32_t>;

}  // namespace
}  // namespace trivet::kernels::cpu

#define TRIVET_LOOPS "kernels/cpu/pooling_loops.inl"
#include "kernels/cpu/for_each_isa.inl"

namespace trivet::kernels::cpu {
namespace {

constexpr int64_t kVector = 16;  // elements of the longest vector

int64_t whole_vectors(int64_t count) { return (count + kVector - 1) / kVector * kVector; }

// A plane in the type of sums, with its padding around it and room for a vector of windows after it.
template <typename Sum>
class PaddedPlane {
 public:
  PaddedPlane(const Window& window, const Shape& x, const Shape& y, Sum outside)
      : window_(window),
        rows_(x[2]),
        cols_(x[3]),
        out_cols_(y[3]),
        pitch_(cols_ + 2 * window.padding),
        elements_((rows_ + 2 * window.padding) * pitch_ + kVector * window.stride, outside) {}

  int64_t pitch() const { return pitch_; }
  // Where the windows of an output row begin.
  int64_t first_window(int64_t out_row) const { return out_row * window_.stride * pitch_; }
  WindowRow<Sum> windows(int64_t out_row) const {
    const int64_t outside = std::max<int64_t>(window_.padding - out_row * window_.stride, 0);
    return {elements_.data() + first_window(out_row), pitch_, out_cols_, outside, window_};
  }
  Sum* data() { return elements_.data(); }
  void fill(Sum value) { std::ranges::fill(elements_, value); }

  template <typename T>
  void read(const T* plane) {
    for_each_run([&](int64_t at, int64_t pixel, int64_t count) {
      for (int64_t e = 0; e < count; ++e) elements_[at + e] = widen<Sum>(plane[pixel + e]);
    });
  }
  template <typename T>
  void write(T* plane) const {
    for_each_run([&](int64_t at, int64_t pixel, int64_t count) {
      for (int64_t e = 0; e < count; ++e) plane[pixel + e] = narrow<T>(elements_[at + e]);
    });
  }

 private:
  // use(element, pixel of the image, count) for every run of pixels of the image that are adjacent here, too
  template <typename Use>
  void for_each_run(const Use& use) const {
    if (window_.padding == 0) return use(int64_t{0}, int64_t{0}, rows_ * cols_);
    for (int64_t row = 0; row < rows_; ++row) use((row + window_.padding) * pitch_ + window_.padding, row * cols_, cols_);
  }

  Window window_;
  int64_t rows_, cols_, out_cols_, pitch_;
  std::vector<Sum> elements_;
};

template <typename Sum>
Sum outside_of_image(Pooling kind) {
  return kind == Pooling::Max ? -std::numeric_limits<Sum>::infinity() : Sum{0};
}

template <typename Sum>
void find_places(const PaddedPlane<Sum>& plane, int64_t out_row, int64_t place_pitch, std::vector<PlaceOf<Sum>>& places) {
  const auto find = by_isa(&baseline::places_of_maxima<Sum>, &v3::places_of_maxima<Sum>, &v4::places_of_maxima<Sum>);
  find(plane.windows(out_row), place_pitch, places.data());
}

template <typename T>
void pool(const Pool& args, int threads) {
  using Sum = SumOf<T>;
  const Shape &x = args.x.shape, &y = args.y.shape;
  const Window& window = args.window;
  const auto average =
      by_isa(&baseline::averages_of_windows<Sum>, &v3::averages_of_windows<Sum>, &v4::averages_of_windows<Sum>);
  for_each_range(x[0] * x[1], threads, 1, y[2] * y[3] * window.pixels(), [&](int64_t begin, int64_t end) {
    PaddedPlane<Sum> padded(window, x, y, outside_of_image<Sum>(args.kind));
    std::vector<PlaceOf<Sum>> places(whole_vectors(y[3]));
    std::vector<Sum> averages(whole_vectors(y[3]));
    for (int64_t plane = begin; plane < end; ++plane) {
      const T* from = args.x.as<T>() + plane * x[2] * x[3];
      padded.read(from);
      for (int64_t row = 0; row < y[2]; ++row) {
        T* to = args.y.as<T>() + (plane * y[2] + row) * y[3];
        if (args.kind == Pooling::Average) {
          average(padded.windows(row), averages.data());
          for (int64_t col = 0; col < y[3]; ++col) to[col] = narrow<T>(averages[col]);
          continue;
        }
        find_places(padded, row, x[3], places);
        const int64_t first = (row * window.stride - window.padding) * x[3] - window.padding;
        for (int64_t col = 0; col < y[3]; ++col) to[col] = from[first + col * window.stride + places[col]];
      }
    }
  });
}

// Windows may overlap, so that a pixel's gradient is a sum. Its terms are added in the order of the windows, in rows: where
// several windows of a row share a pixel, a later window has it further left.
template <typename T>
void add_averages(const PoolBackward& args, int64_t plane, PaddedPlane<SumOf<T>>& sums, std::vector<SumOf<T>>& shares) {
  using Sum = SumOf<T>;
  const Window& window = args.window;
  const Shape& y = args.dy.shape;
  for (int64_t row = 0; row < y[2]; ++row) {
    const T* dy = args.dy.as<T>() + (plane * y[2] + row) * y[3];
    for (int64_t col = 0; col < y[3]; ++col) shares[col] = widen<Sum>(dy[col]) / static_cast<Sum>(window.pixels());
    for (int64_t i = 0; i < window.rows; ++i)
      for (int64_t j = window.cols - 1; j >= 0; --j) {
        Sum* to = sums.data() + sums.first_window(row) + i * sums.pitch() + j;
        for (int64_t col = 0; col < y[3]; ++col) to[col * window.stride] += shares[col];
      }
  }
}

template <typename T>
void add_to_maxima(const PoolBackward& args, int64_t plane, const PaddedPlane<SumOf<T>>& x, PaddedPlane<SumOf<T>>& sums,
                   std::vector<PlaceOf<SumOf<T>>>& places) {
  using Sum = SumOf<T>;
  const Shape& y = args.dy.shape;
  for (int64_t row = 0; row < y[2]; ++row) {
    const T* dy = args.dy.as<T>() + (plane * y[2] + row) * y[3];
    Sum* first = sums.data() + sums.first_window(row);
    find_places(x, row, sums.pitch(), places);
    for (int64_t col = 0; col < y[3]; ++col) first[col * args.window.stride + places[col]] += widen<Sum>(dy[col]);
  }
}

template <typename T>
void pool_backward(const PoolBackward& args, int threads) {
  using Sum = SumOf<T>;
  const Shape &x = args.dx.shape, &y = args.dy.shape;
  const int64_t pixels = x[2] * x[3];
  for_each_range(x[0] * x[1], threads, 1, y[2] * y[3] * args.window.pixels(), [&](int64_t begin, int64_t end) {
    PaddedPlane<Sum> sums(args.window, x, y, Sum{0}), padded(args.window, x, y, outside_of_image<Sum>(args.kind));
    std::vector<PlaceOf<Sum>> places(whole_vectors(y[3]));
    std::vector<Sum> shares(y[3]);
    for (int64_t plane = begin; plane < end; ++plane) {
      sums.fill(Sum{0});
      if (args.kind == Pooling::Max) {
        padded.read(args.x.as<T>() + plane * pixels);
        add_to_maxima<T>(args, plane, padded, sums, places);
      } else {
        add_averages<T>(args, plane, sums, shares);
      }
      sums.write(args.dx.as<T>() + plane * pixels);
    }
  });
}

}  // namespace

void compute(const Pool& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() { pool<T>(args, threads); });
}

void compute(const PoolBackward& args, int threads) {
  dispatch_float(args.dy.dtype, [&]<typename T>() { pool_backward<T>(args, threads); });
}

}  // namespace trivet::kernels::cpu
