// The loops of softmax cross-entropy over one row, compiled per instruction set.
#include "kernels/cpu/fused/numbers.inl"
#include "kernels/cpu/lanes.inl"

template <typename T>
SumOf<T> row_maximum(const T* logits, int64_t vocabulary) {
  using Sum = SumOf<T>;
  constexpr int64_t kLanes = Lanes<Sum>::kCount;
  const Sum lowest = -static_cast<Sum>(__builtin_inf());
  typename Lanes<Sum>::type maximum = lowest - typename Lanes<Sum>::type{}, lanes;
  for (int64_t v = 0; v < vocabulary; v += kLanes) {
    load_some(logits + v, vocabulary - v, lowest, lanes);
    maximum = lanes > maximum ? lanes : maximum;
  }
  spread_maximum<Sum>(maximum);
  return maximum[0];
}

// exponentials[v] = exp(logits[v] - maximum); the array has room for full vectors. Returns the sum: lanes are added in
// SumOf<T>, blocks in double.
template <typename T>
double exponentials_of_row(const T* logits, int64_t vocabulary, SumOf<T> maximum, SumOf<T>* exponentials) {
  using Sum = SumOf<T>;
  constexpr int64_t kLanes = Lanes<Sum>::kCount, kBlock = 64 * kLanes;
  double total = 0;
  for (int64_t first = 0; first < vocabulary; first += kBlock) {
    const int64_t end = first + kBlock < vocabulary ? first + kBlock : vocabulary;
    typename Lanes<Sum>::type sum = {}, lanes;
    for (int64_t v = first; v < end; v += kLanes) {
      load_some(logits + v, end - v, -static_cast<Sum>(__builtin_inf()), lanes);
      lanes -= maximum;
      exponentiate(lanes);
      sum += lanes;
      store(lanes, exponentials + v);
    }
    spread_sum<Sum>(sum);
    total += static_cast<double>(sum[0]);
  }
  return total;
}

template <typename Sum, typename Out>
void scale_row(const Sum* exponentials, int64_t vocabulary, Sum factor, Out* dlogits) {
  for (int64_t v = 0; v < vocabulary; ++v) dlogits[v] = write<Out>(exponentials[v] * factor);
}

// Does the same, times the derivative of a soft cap by its argument, 1 - (logit / soft_cap)^2. dlogits may be logits.
template <typename T, typename Out>
void scale_capped_row(const SumOf<T>* exponentials, const T* logits, int64_t vocabulary, SumOf<T> factor, SumOf<T> soft_cap,
                      Out* dlogits) {
  for (int64_t v = 0; v < vocabulary; ++v) {
    const SumOf<T> share = read(logits[v]) / soft_cap;
    dlogits[v] = write<Out>(exponentials[v] * factor * (SumOf<T>(1) - share * share));
  }
}
