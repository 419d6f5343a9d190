// Checks every operation against closed formulas, in every kind of world.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/stream.h"
#include "tests/comm/ranks.h"

namespace trivet::comm {
namespace {

const std::vector<int64_t> kSizes{0, 1, 3, 1000, 100003};

// The value of element i on rank r: small integers, whose sums over at most 5 ranks are exact in every dtype.
template <typename T>
T element(int rank, int64_t i) {
  const int64_t value = (rank + 1) * (i % 5 + 1);
  if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>)
    return T(static_cast<float>(value));
  else
    return static_cast<T>(value);
}
template <typename T>
T sum_of_elements(int ranks, int64_t i) {
  return element<T>(ranks * (ranks + 1) / 2 - 1, i);
}
template <typename T>
std::vector<T> elements(int rank, int64_t count) {
  std::vector<T> data(count);
  for (int64_t i = 0; i < count; ++i) data[i] = element<T>(rank, i);
  return data;
}

template <typename T>
double number(T value) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return static_cast<float>(value);
  else
    return static_cast<double>(value);
}

template <typename T>
void expect_equal(const std::vector<T>& got, const std::function<T(int64_t)>& expected, const char* what) {
  for (size_t i = 0; i < got.size(); ++i)
    if (!(got[i] == expected(static_cast<int64_t>(i)))) {
      ADD_FAILURE() << what << " of " << got.size() << " " << name_of(kDTypeOf<T>) << ": element " << i << " is "
                    << number(got[i]) << ", not " << number(expected(static_cast<int64_t>(i)));
      return;
    }
}

template <typename T>
void check_reductions(ProcessGroup& group, int64_t count, Stream& stream) {
  const int n = group.size(), rank = group.rank();
  auto data = elements<T>(rank, count);
  group.all_reduce(view(data), ReduceOp::Sum, stream);
  expect_equal<T>(
      data, [&](int64_t i) { return sum_of_elements<T>(n, i); }, "all_reduce");

  data = elements<T>(rank, count);
  group.all_reduce(view(data), ReduceOp::Max, stream);
  expect_equal<T>(
      data, [&](int64_t i) { return element<T>(n - 1, i); }, "all_reduce (max)");

  if ((n & (n - 1)) == 0) {
    data = elements<T>(rank, count);
    group.all_reduce(view(data), ReduceOp::TreeSum, stream);
    expect_equal<T>(
        data, [&](int64_t i) { return sum_of_elements<T>(n, i); }, "all_reduce (tree sum)");
  }

  auto whole = elements<T>(rank, n * count);
  std::vector<T> shard(count);
  group.reduce_scatter(view(whole), view(shard), ReduceOp::Sum, stream);
  expect_equal<T>(
      shard, [&](int64_t i) { return sum_of_elements<T>(n, rank * count + i); }, "reduce_scatter");
  group.reduce_scatter(view(whole), view(whole).slice(rank * count, count), ReduceOp::Sum, stream);
  std::copy_n(whole.begin() + rank * count, count, shard.begin());
  expect_equal<T>(
      shard, [&](int64_t i) { return sum_of_elements<T>(n, rank * count + i); }, "reduce_scatter in place");
}

template <typename T>
void check_copies(ProcessGroup& group, int64_t count, Stream& stream) {
  const int n = group.size(), rank = group.rank();
  const auto shard = elements<T>(rank, count);
  std::vector<T> whole(n * count);
  const auto gathered = [&](int64_t i) { return element<T>(static_cast<int>(i / count), i % count); };
  group.all_gather(view(shard), view(whole), stream);
  expect_equal<T>(whole, gathered, "all_gather");
  std::fill(whole.begin(), whole.end(), T{});
  std::copy(shard.begin(), shard.end(), whole.begin() + rank * count);
  group.all_gather(view(whole).slice(rank * count, count), view(whole), stream);
  expect_equal<T>(whole, gathered, "all_gather in place");

  for (int root = 0; root < n; ++root) {
    auto data = elements<T>(rank, count);
    group.broadcast(view(data), root, stream);
    expect_equal<T>(
        data, [&](int64_t i) { return element<T>(root, i); }, "broadcast");
  }

  const auto in = elements<T>(rank, n * count);
  group.all_to_all(view(in), view(whole), stream);
  expect_equal<T>(
      whole, [&](int64_t i) { return element<T>(static_cast<int>(i / count), rank * count + i % count); }, "all_to_all");
}

// How many elements rank a sends to rank b in all_to_all_v.
using CountBetween = std::function<int64_t(int a, int b)>;

template <typename T>
void check_exchange(ProcessGroup& group, const CountBetween& count, Stream& stream) {
  const int n = group.size(), rank = group.rank();
  ExchangeCounts counts;
  std::vector<T> in, expected;
  for (int peer = 0; peer < n; ++peer) {
    counts.sent.push_back(count(rank, peer));
    counts.received.push_back(count(peer, rank));
    for (int64_t i = 0; i < counts.sent.back(); ++i) in.push_back(element<T>(rank, peer + i));
    for (int64_t i = 0; i < counts.received.back(); ++i) expected.push_back(element<T>(peer, rank + i));
  }
  std::vector<T> out(expected.size());
  group.all_to_all_v(view(in), view(out), counts, stream);
  expect_equal<T>(
      out, [&](int64_t i) { return expected[i]; }, "all_to_all_v");
}

// Every rank sends to the next rank while it receives from the previous one.
template <typename T>
void check_ring(ProcessGroup& group, int64_t count, Stream& stream) {
  const int n = group.size(), rank = group.rank();
  if (n == 1) return;
  const auto out = elements<T>(rank, count);
  std::vector<T> in(count);
  const auto sending = make_thread_stream("sending");
  group.send(view(out), (rank + 1) % n, *sending);
  group.receive(view(in), (rank + n - 1) % n, stream);
  sending->synchronize();
  expect_equal<T>(
      in, [&](int64_t i) { return element<T>((rank + n - 1) % n, i); }, "receive");
}

class Collectives : public testing::TestWithParam<std::tuple<Kind, int>> {
 protected:
  void run(const std::function<void(World&)>& body) { run_ranks(std::get<0>(GetParam()), std::get<1>(GetParam()), body); }
};

TEST_P(Collectives, MatchClosedFormulasForEverySizeAndDtype) {
  run([](World& world) {
    const auto stream = make_inline_stream();
    for (int64_t count : kSizes) {
      check_reductions<float>(world.group(), count, *stream);
      check_reductions<bfloat16>(world.group(), count, *stream);
      check_reductions<float16>(world.group(), count, *stream);
      check_reductions<double>(world.group(), count, *stream);
      check_reductions<int64_t>(world.group(), count, *stream);
      check_copies<float>(world.group(), count, *stream);
      check_copies<uint8_t>(world.group(), count, *stream);
      check_copies<int64_t>(world.group(), count, *stream);
      check_ring<uint16_t>(world.group(), count, *stream);
      check_ring<int64_t>(world.group(), count, *stream);
      world.group().barrier(*stream);
    }
    world.close();
  });
}

TEST_P(Collectives, RunOnAStreamAndAreDoneWithItsEvent) {
  run([](World& world) {
    const auto stream = make_thread_stream("communication");
    auto data = elements<float>(world.rank(), 1000);
    for (int i = 0; i < 20; ++i) world.group().all_reduce(view(data), ReduceOp::Max, *stream);
    stream->record().synchronize();
    expect_equal<float>(
        data, [&](int64_t i) { return element<float>(world.size() - 1, i); }, "the twentieth all_reduce");
    world.close();
  });
}

TEST_P(Collectives, OfTwoGroupsRunAtTheSameTimeFromTwoThreads) {
  run([](World& world) {
    std::vector<int> all, even;
    for (int rank = 0; rank < world.size(); ++rank) all.push_back(rank);
    for (int rank = 0; rank < world.size(); rank += 2) even.push_back(rank);
    const auto first = world.group().subgroup(all, "first");
    const auto second = world.group().subgroup(even, "second");
    EXPECT_EQ(second != nullptr, world.rank() % 2 == 0);
    const auto one = make_thread_stream("one"), two = make_thread_stream("two");
    std::vector<int64_t> a(70001, 1), b(50021, 1);
    for (int i = 0; i < 20; ++i) {
      first->all_reduce(view(a), ReduceOp::Sum, *one);
      if (second) second->all_reduce(view(b), ReduceOp::Sum, *two);
      if (world.rank() % 2) one->synchronize();  // so that the two groups are not in step
    }
    one->synchronize();
    two->synchronize();
    int64_t expected_a = 1, expected_b = 1;
    for (int i = 0; i < 20; ++i) expected_a *= world.size(), expected_b *= static_cast<int64_t>(even.size());
    expect_equal<int64_t>(
        a, [&](int64_t) { return expected_a; }, "all_reduce of the first group");
    if (second)
      expect_equal<int64_t>(
          b, [&](int64_t) { return expected_b; }, "all_reduce of the second group");
    world.close();
  });
}

// 30011 elements do not fit into a staging slot; some ranks send or receive nothing at all.
TEST_P(Collectives, ExchangeCountsThatDiffer) {
  run([](World& world) {
    const auto stream = make_inline_stream();
    for (int64_t most : {0, 1, 1000, 30011}) {
      const auto all_kinds = [&](const CountBetween& count) {
        check_exchange<int64_t>(world.group(), count, *stream);
        check_exchange<bfloat16>(world.group(), count, *stream);
        check_exchange<uint8_t>(world.group(), count, *stream);
      };
      all_kinds([&](int a, int b) { return most * ((a + 2 * b) % 4); });
      all_kinds([&](int a, int b) { return a == b ? most : 0; });
      all_kinds([&](int a, int b) { return a == world.size() - 1 && b == 0 ? most : 0; });
      all_kinds([&](int a, int b) { return a == 0 && b > 0 ? most + b : 0; });
    }
    world.close();
  });
}

// Relays data from rank to rank: a transfer may need no rank except its sender and its receiver.
TEST_P(Collectives, MessagesNeedTheTwoRanksOnly) {
  run([](World& world) {
    const int n = world.size(), rank = world.rank();
    const auto stream = make_inline_stream();
    std::vector<int32_t> data(300007, rank);
    if (rank > 0) world.group().receive(view(data), rank - 1, *stream);
    for (int32_t& value : data) value += 1;
    if (rank + 1 < n) world.group().send(view(data), rank + 1, *stream);
    expect_equal<int32_t>(
        data, [&](int64_t) { return rank + 1; }, "relay");
    world.close();
  });
}

TEST_P(Collectives, OfASubgroupUseItsRanks) {
  run([](World& world) {
    const auto stream = make_inline_stream();
    for (int skipped = 0; skipped < world.size(); ++skipped) {
      std::vector<int> ranks;
      for (int rank = 0; rank < world.size(); ++rank)
        if (rank != skipped) ranks.push_back(rank);
      if (ranks.empty()) continue;
      const auto group = world.group().subgroup(ranks, "without " + std::to_string(skipped));
      ASSERT_EQ(group == nullptr, world.rank() == skipped);
      if (!group) continue;
      EXPECT_EQ(group->size(), world.size() - 1);
      EXPECT_EQ(ranks[group->rank()], world.rank());
      std::vector<int64_t> whole(ranks.size());
      const std::vector<int64_t> mine{world.rank()};
      group->all_gather(view(mine), view(whole), *stream);
      EXPECT_EQ(whole, std::vector<int64_t>(ranks.begin(), ranks.end()));
      const auto inner = group->subgroup({0}, "first of " + group->name());
      EXPECT_EQ(inner != nullptr, group->rank() == 0);
    }
    world.close();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Combine(testing::ValuesIn(kAllKinds), testing::Values(1, 2, 3, 4, 5)),
                         [](const auto& given) {
                           return to_string(std::get<0>(given.param)) + std::to_string(std::get<1>(given.param));
                         });

// The terms are 1, 2^-24, 2^-24 and 2^-24. Added in rank order, float32 stays at 1; in a tree, and on hosts of two ranks that
// exchange sums, 2^-24 + 2^-24 counts.
TEST(TreeSum, AddsNeighboursFirst) {
  for (Kind kind : kAllKinds)
    run_ranks(kind, 4, [kind](World& world) {
      const auto stream = make_inline_stream();
      const float mine = world.rank() == 0 ? 1.0f : 0x1p-24f;
      std::vector<float> data(1003, mine), shard(1003), whole(4 * 1003, mine);
      world.group().all_reduce(view(data), ReduceOp::Sum, *stream);
      EXPECT_EQ(data.back(), kind == Kind::ExchangingHosts ? 1.0f + 0x1p-23f : 1.0f);
      data.assign(1003, mine);
      world.group().all_reduce(view(data), ReduceOp::TreeSum, *stream);
      EXPECT_EQ(data, std::vector<float>(1003, 1.0f + 0x1p-23f));
      world.group().reduce_scatter(view(whole), view(shard), ReduceOp::TreeSum, *stream);
      EXPECT_EQ(shard, data);
    });
}

TEST(TreeSum, NeedsAPowerOfTwoRanks) {
  const auto group = make_meta_group(0, 3, "tensor");
  std::vector<float> data(3);
  EXPECT_THROW(group->all_reduce(view(data), ReduceOp::TreeSum, *make_inline_stream()), std::logic_error);
}

}  // namespace
}  // namespace trivet::comm
