// Sums have the same bits as a serial sum in the defined order (added_first of ranks.h), in every kind of world, however the
// elements are cut.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "comm/reduce.h"
#include "core/stream.h"
#include "tests/comm/ranks.h"

namespace trivet::comm {
namespace {

constexpr int64_t kCount = 300007;  // several staging chunks, the last one ragged

// Values of very different magnitudes, so that a different order or an extra rounding changes the sum.
float value_of(int rank, int64_t i) {
  uint64_t x = (static_cast<uint64_t>(rank) << 40) + static_cast<uint64_t>(i) + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return std::ldexp(static_cast<float>(x & 0xffff) - 32768.f, static_cast<int>((x >> 16) % 12) - 20);
}

template <typename T>
std::vector<T> values(int rank) {
  std::vector<T> data(kCount);
  for (int64_t i = 0; i < kCount; ++i) data[i] = static_cast<T>(value_of(rank, i));
  return data;
}

// The sum in this order, computed in float32 and rounded once (float64 is summed in float64).
template <typename T>
std::vector<T> serial_sum(const std::vector<std::vector<int>>& order) {
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
  std::vector<T> data(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    Sum sum = 0;  // changes no bit: no value is -0
    for (const std::vector<int>& ranks : order) {
      Sum part = 0;
      for (int rank : ranks) part += static_cast<Sum>(static_cast<T>(value_of(rank, i)));
      sum += part;
    }
    data[i] = static_cast<T>(sum);
  }
  return data;
}

template <typename T>
bool same_bits(const T* a, const T* b, int64_t count) {
  return std::memcmp(a, b, static_cast<size_t>(count) * sizeof(T)) == 0;
}

template <typename T>
void check(ProcessGroup& group, const std::vector<std::vector<int>>& order) {
  const auto stream = make_inline_stream();
  const auto expected = serial_sum<T>(order);
  auto data = values<T>(group.rank());
  group.all_reduce(view(data), ReduceOp::Sum, *stream);
  EXPECT_TRUE(same_bits(data.data(), expected.data(), kCount)) << "all_reduce of " << name_of(kDTypeOf<T>);

  const int64_t share = kCount / group.size();
  const auto whole = values<T>(group.rank());
  std::vector<T> shard(share);
  group.reduce_scatter(view(whole).slice(0, share * group.size()), view(shard), ReduceOp::Sum, *stream);
  EXPECT_TRUE(same_bits(shard.data(), expected.data() + group.rank() * share, share))
      << "reduce_scatter of " << name_of(kDTypeOf<T>);
}

TEST(Sums, HaveTheBitsOfASerialSumInTheDefinedOrderInEveryKindOfWorld) {
  for (Kind kind : kAllKinds)
    for (int ranks : {2, 3, 4, 5}) {
      SCOPED_TRACE(to_string(kind) + " " + std::to_string(ranks));
      const auto order = added_first(kind, ranks);
      run_ranks(kind, ranks, [&order](World& world) {
        check<float>(world.group(), order);
        check<bfloat16>(world.group(), order);
        check<float16>(world.group(), order);
        check<double>(world.group(), order);
        world.close();
      });
    }
}

// A tree adds (a + b) + (c + d): one 1 is lost in 1e8 and the other in -1e8. A serial sum keeps the last 1.
TEST(Sums, OfATreeAreMadeInPairs) {
  for (Kind kind : kAllKinds)
    for (int64_t count : {1, 1000})
      run_ranks(kind, 4, [count, kind](World& world) {
        const auto stream = make_inline_stream();
        const float terms[] = {1e8f, 1, -1e8f, 1};
        const bool in_rank_order = added_first(kind, 4).size() == 4;
        std::vector<float> tree(count, terms[world.rank()]), serial = tree;
        world.group().all_reduce(view(tree), ReduceOp::TreeSum, *stream);
        world.group().all_reduce(view(serial), ReduceOp::Sum, *stream);
        EXPECT_EQ(tree, std::vector<float>(count, 0));
        EXPECT_EQ(serial, std::vector<float>(count, in_rank_order ? 1 : 0));
      });
}

TEST(Sums, OfInt64AreExactAndWrap) {
  const auto body = [](World& world) {
    const auto stream = make_inline_stream();
    std::vector<int64_t> data{(int64_t{1} << 62) + world.rank(), INT64_MAX, -(int64_t{1} << 53) - 1};
    world.group().all_reduce(view(data), ReduceOp::Sum, *stream);
    const auto three_times = [](int64_t value) { return static_cast<int64_t>(3 * static_cast<uint64_t>(value)); };
    EXPECT_EQ(data, (std::vector<int64_t>{three_times((int64_t{1} << 62) + 1), three_times(INT64_MAX),
                                          -3 * ((int64_t{1} << 53) + 1)}));
  };
  for (Kind kind : kAllKinds) run_ranks(kind, 3, body);
}

TEST(Sums, DoNotDependOnHowTheElementsAreCut) {
  const auto a = values<bfloat16>(0), b = values<bfloat16>(1), c = values<bfloat16>(2);
  std::vector<bfloat16> whole(kCount), pieces(kCount);
  const auto sum = [&](std::vector<bfloat16>& to, int64_t first, int64_t count) {
    const void* const from[] = {a.data() + first, b.data() + first, c.data() + first};
    void* const targets[] = {to.data() + first};
    reduce(DType::BFloat16, ReduceOp::Sum, from, targets, count);
  };
  sum(whole, 0, kCount);
  for (int64_t first = 0, count = 1; first < kCount; first += count, count = count * 3 % 4099)
    sum(pieces, first, std::min(count, kCount - first));
  EXPECT_TRUE(same_bits(whole.data(), pieces.data(), kCount));
}

TEST(Maxima, KeepANanOfAnyRank) {
  for (Kind kind : kAllKinds)
    for (int culprit = 0; culprit < 3; ++culprit)
      run_ranks(kind, 3, [&](World& world) {
        const auto stream = make_inline_stream();
        std::vector<float> data{world.rank() == culprit ? NAN : 1.f, static_cast<float>(-world.rank())};
        world.group().all_reduce(view(data), ReduceOp::Max, *stream);
        EXPECT_TRUE(std::isnan(data[0]));
        EXPECT_EQ(data[1], 0.f);
      });
}

}  // namespace
}  // namespace trivet::comm
