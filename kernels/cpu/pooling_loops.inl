// The loops of pooling over a row of windows, compiled per instruction set. They read a padded plane (pooling.cpp), in which
// every window lies inside and after which whole vectors may be read.
#include "kernels/cpu/lanes.inl"

// lanes[i] = from[i stride]
template <typename Sum>
[[gnu::always_inline]] inline void load_every(const Sum* from, int64_t stride, typename Lanes<Sum>::type& lanes) {
  constexpr int64_t kLanes = Lanes<Sum>::kCount;
  if (stride == 1) return load(from, lanes);
  if (stride == 2) {
    typename Lanes<Sum>::type low, high;
    typename Lanes<Sum>::Int even;
    for (int lane = 0; lane < kLanes; ++lane) even[lane] = 2 * lane;
    load(from, low);
    load(from + kLanes, high);
    lanes = __builtin_shuffle(low, high, even);
    return;
  }
  for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = from[lane * stride];
}

// places[q] = where the largest pixel of window q is, counted from the window's first pixel: pixel (i, j) has the place
// i place_pitch + j. The first of equal pixels is the largest; a NaN is larger than every number, and the first NaN
// counts. Pixels outside of the image are -infinity; where the others are, too, the place is that of the first pixel
// inside. Whole vectors of places are written.
template <typename Sum>
void places_of_maxima(const WindowRow<Sum>& row, int64_t place_pitch, PlaceOf<Sum>* places) {
  using Vector = typename Lanes<Sum>::type;
  using Int = typename Lanes<Sum>::Int;
  constexpr int64_t kLanes = Lanes<Sum>::kCount;
  const Window& window = row.window;
  for (int64_t first = 0; first < row.count; first += kLanes) {
    Vector largest = -static_cast<Sum>(__builtin_inf()) - Vector{};
    Int place;
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const int64_t col = (first + lane) * window.stride;
      place[lane] =
          static_cast<PlaceOf<Sum>>(row.rows_outside * place_pitch + (col < window.padding ? window.padding - col : 0));
    }
    for (int64_t i = 0; i < window.rows; ++i)
      for (int64_t j = 0; j < window.cols; ++j) {
        Vector value;
        load_every(row.pixels + i * row.pitch + first * window.stride + j, window.stride, value);
        const Int larger = ~(value <= largest) & (largest == largest);
        largest = larger ? value : largest;
        place = larger ? static_cast<PlaceOf<Sum>>(i * place_pitch + j) - Int{} : place;
      }
    __builtin_memcpy(places + first, &place, sizeof place);
  }
}

// averages[q] = the sum of the pixels of window q, divided by their number. Whole vectors are written.
template <typename Sum>
void averages_of_windows(const WindowRow<Sum>& row, Sum* averages) {
  constexpr int64_t kLanes = Lanes<Sum>::kCount;
  const Window& window = row.window;
  for (int64_t first = 0; first < row.count; first += kLanes) {
    typename Lanes<Sum>::type sum = {}, value;
    for (int64_t i = 0; i < window.rows; ++i)
      for (int64_t j = 0; j < window.cols; ++j) {
        load_every(row.pixels + i * row.pitch + first * window.stride + j, window.stride, value);
        sum += value;
      }
    sum /= static_cast<Sum>(window.rows * window.cols);
    store(sum, averages + first);
  }
}
