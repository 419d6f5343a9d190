// Tests that an all-reduce finds the largest number of all ranks, wherever it is and whatever its sign.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/stream.h"
#include "tests/comm/ranks.h"

namespace trivet::comm {
namespace {

// Values are negative and positive, and each rank has the largest value of some elements.
double value(int rank, int64_t e) { return static_cast<double>((rank * 7 + e * 3) % 11 - 5 - (e % 2 == 0 ? 20 : 0)); }
double largest(int ranks, int64_t e) {
  double all = value(0, e);
  for (int rank = 1; rank < ranks; ++rank) all = std::max(all, value(rank, e));
  return all;
}

template <typename T>
void check(ProcessGroup& group, int64_t count, Stream& stream) {
  std::vector<T> data, expected;
  for (int64_t e = 0; e < count; ++e) data.push_back(static_cast<T>(value(group.rank(), e)));
  for (int64_t e = 0; e < count; ++e) expected.push_back(static_cast<T>(largest(group.size(), e)));
  group.all_reduce(view(data), ReduceOp::Max, stream);
  EXPECT_EQ(data, expected) << name_of(kDTypeOf<T>);
}

class Largest : public testing::TestWithParam<Kind> {};

TEST_P(Largest, IsFoundOnAnyRank) {
  for (int ranks : {1, 2, 3, 5})
    run_ranks(GetParam(), ranks, [](World& world) {
      const auto stream = make_inline_stream();
      for (int64_t count : {int64_t{1}, int64_t{77}, int64_t{5000}}) {
        check<float>(world.group(), count, *stream);
        check<double>(world.group(), count, *stream);
        check<int64_t>(world.group(), count, *stream);
        check<int32_t>(world.group(), count, *stream);
      }
    });
}

INSTANTIATE_TEST_SUITE_P(Kinds, Largest, testing::ValuesIn(kAllKinds),
                         [](const auto& given) { return to_string(given.param); });

}  // namespace
}  // namespace trivet::comm
