#include "kernels/cpu/fused/numbers.inl"

// Rotates the pairs (i, i + half) of `heads` consecutive heads by the angles of one position. direction: 1, or -1 for the
// other direction.
template <typename T>
void rotate_heads(T* head, int64_t heads, int64_t head_size, int64_t half, const SumOf<T>* cosine, const SumOf<T>* sine,
                  SumOf<T> direction) {
  for (int64_t h = 0; h < heads; ++h, head += head_size) {
    T *low = head, *high = head + half;
#pragma GCC ivdep
    for (int64_t i = 0; i < half; ++i) {
      const SumOf<T> x = read(low[i]), y = read(high[i]), s = direction * sine[i];
      low[i] = write<T>(x * cosine[i] - y * s);
      high[i] = write<T>(y * cosine[i] + x * s);
    }
  }
}
