#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"

#define TRIVET_LOOPS "kernels/cpu/fused/rotary_loops.inl"
#include "kernels/cpu/for_each_isa.inl"

namespace trivet::kernels::cpu {
namespace {

// cos and sin of every position's angles, times the magnitude. A thread keeps the table it used last, because every layer of a
// model needs the same one.
template <typename Sum>
class RotaryTable {
 public:
  static const RotaryTable& of(int64_t positions, std::span<const double> frequencies, double magnitude) {
    thread_local RotaryTable table;
    const bool same = std::ranges::equal(table.frequencies_, frequencies) && table.magnitude_ == magnitude;
    if (!same || table.positions_ < positions) table.fill(positions, frequencies, magnitude);
    return table;
  }
  const Sum* cosine(int64_t position) const { return cosine_.data() + position * pairs(); }
  const Sum* sine(int64_t position) const { return sine_.data() + position * pairs(); }

 private:
  int64_t pairs() const { return static_cast<int64_t>(frequencies_.size()); }
  void fill(int64_t positions, std::span<const double> frequencies, double magnitude) {
    positions_ = positions, magnitude_ = magnitude;
    frequencies_.assign(frequencies.begin(), frequencies.end());
    cosine_.resize(positions * pairs());
    sine_.resize(cosine_.size());
    for (int64_t position = 0; position < positions; ++position)
      for (int64_t i = 0; i < pairs(); ++i) {
        const double angle = static_cast<double>(position) * frequencies_[i];
        cosine_[position * pairs() + i] = static_cast<Sum>(magnitude * std::cos(angle));
        sine_[position * pairs() + i] = static_cast<Sum>(magnitude * std::sin(angle));
      }
  }

  int64_t positions_ = 0;
  double magnitude_ = 0;
  std::vector<double> frequencies_;
  std::vector<Sum> cosine_, sine_;
};

template <typename T>
void multiply(T* x, int64_t count, SumOf<T> factor) {
  for (int64_t i = 0; i < count; ++i) x[i] = static_cast<T>(static_cast<SumOf<T>>(x[i]) * factor);
}

}  // namespace

void compute(const Rotary& args, int threads) {
  const int64_t sequence = args.qkv.shape[1], width = args.qkv.shape[2];
  dispatch_float(args.qkv.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    const auto loop = by_isa(&baseline::rotate_heads<T>, &v3::rotate_heads<T>, &v4::rotate_heads<T>);
    const int32_t* given = args.positions.absent() ? nullptr : args.positions.as<int32_t>();
    const int64_t rows = args.qkv.shape[0] * sequence;
    const int64_t most = given && rows > 0 ? *std::max_element(given, given + rows) + int64_t{1} : args.first + sequence;
    const RotaryTable<Sum>& table = RotaryTable<Sum>::of(most, args.frequencies, args.magnitude);
    T* qkv = args.qkv.as<T>();
    for_each_range(rows, threads, 1, width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t position = given ? given[row] : args.first + row % sequence;
        loop(qkv + row * width, args.heads + args.key_value_heads, args.head_size(), args.pairs(), table.cosine(position),
             table.sine(position), args.backward ? Sum(-1) : Sum(1));
        if (args.query_growth > 0 && position >= args.query_step)
          multiply(qkv + row * width, args.heads * args.head_size(), static_cast<Sum>(args.query_factor(position)));
      }
    });
  });
}

}  // namespace trivet::kernels::cpu
