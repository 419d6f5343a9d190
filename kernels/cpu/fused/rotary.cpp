#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/fused/fused.h"
#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/numbers.h"

#define TRIVET_LOOPS "kernels/cpu/fused/rotary_loops.inl"
#include "kernels/cpu/for_each_isa.inl"

namespace trivet::kernels::cpu {
namespace {

// cos and sin of every position's angles. A thread keeps the table it used last, because every layer of a model needs the same
// one.
template <typename Sum>
class RotaryTable {
 public:
  static const RotaryTable& of(int64_t positions, int64_t half, float base, const RotaryScaling& scaling) {
    thread_local RotaryTable table;
    const bool same = table.half_ == half && table.base_ == base && table.scaling_ == scaling;
    if (!same || table.positions_ < positions) table.fill(positions, half, base, scaling);
    return table;
  }
  const Sum* cosine(int64_t position) const { return cosine_.data() + position * half_; }
  const Sum* sine(int64_t position) const { return sine_.data() + position * half_; }

 private:
  void fill(int64_t positions, int64_t half, float base, const RotaryScaling& scaling) {
    positions_ = positions, half_ = half, base_ = base, scaling_ = scaling;
    cosine_.resize(positions * half);
    sine_.resize(cosine_.size());
    for (int64_t i = 0; i < half; ++i) {
      const double frequency =
          scaled_frequency(std::pow(static_cast<double>(base), -static_cast<double>(i) / static_cast<double>(half)), scaling);
      for (int64_t position = 0; position < positions; ++position) {
        const double angle = static_cast<double>(position) * frequency;
        cosine_[position * half + i] = static_cast<Sum>(std::cos(angle));
        sine_[position * half + i] = static_cast<Sum>(std::sin(angle));
      }
    }
  }

  int64_t positions_ = 0, half_ = 0;
  float base_ = 0;
  RotaryScaling scaling_;
  std::vector<Sum> cosine_, sine_;
};

}  // namespace

void compute(const Rotary& args, int threads) {
  const int64_t sequence = args.qkv.shape[1], width = args.qkv.shape[2];
  dispatch_float(args.qkv.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    const auto loop = by_isa(&baseline::rotate_heads<T>, &v3::rotate_heads<T>, &v4::rotate_heads<T>);
    const int32_t* given = args.positions.absent() ? nullptr : args.positions.as<int32_t>();
    const int64_t rows = args.qkv.shape[0] * sequence;
    const int64_t most = given && rows > 0 ? *std::max_element(given, given + rows) + int64_t{1} : sequence;
    const RotaryTable<Sum>& table = RotaryTable<Sum>::of(most, args.pairs(), args.base, args.scaling);
    T* qkv = args.qkv.as<T>();
    for_each_range(rows, threads, 1, width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t position = given ? given[row] : row % sequence;
        loop(qkv + row * width, args.heads + args.key_value_heads, args.head_size(), args.pairs(), table.cosine(position),
             table.sine(position), args.inverse ? Sum(-1) : Sum(1));
      }
    });
  });
}

}  // namespace trivet::kernels::cpu
