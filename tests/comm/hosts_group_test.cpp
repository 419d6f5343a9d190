// Groups whose ranks are on several hosts, dealt in every way that matters, with both orders of sums: what the operations
// compute, and how many bytes cross between the hosts. (The other tests of operations run on hosts of two ranks, Kind::Hosts
// and Kind::ExchangingHosts.)
#include "comm/hosts/hosts_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>
#include <type_traits>

#include "comm/reduce.h"
#include "core/stream.h"
#include "tests/comm/ranks.h"

namespace trivet::comm {
namespace {

using testing::HasSubstr;

const std::vector<std::vector<int>> kDeals = {
    {0, 1},                    // one rank each
    {0, 0, 1, 1},              // two hosts of two
    {0, 1, 2, 3},              // four hosts of one
    {0, 0, 0, 1},              // uneven
    {0, 1, 1, 1},              //
    {0, 0, 1, 1, 2, 2},        // three hosts of two
    {0, 0, 1, 1, 1, 2},        // uneven, three hosts
    {0, 1, 0, 1},              // not in rank order
    {0, 0, 0, 0, 1, 1, 1, 1},  // hosts of four
    {0, 0, 1, 1, 2, 2, 3, 3},  // four hosts of two
};

std::string name_of_deal(const std::vector<int>& hosts) {
  std::string name;
  for (int host : hosts) name += std::to_string(host);
  return name;
}

// The order in which the ranks of a group are summed: the sums of these lists of ranks are added, in order.
using SumOrder = std::vector<std::vector<int>>;

SumOrder in_rank_order(int ranks) {
  SumOrder order(1);
  for (int rank = 0; rank < ranks; ++rank) order[0].push_back(rank);
  return order;
}

// The group ranks on each host; hosts in the order of their first ranks. `members` are ranks of the job.
SumOrder by_host(const std::vector<int>& hosts, const std::vector<int>& members) {
  SumOrder order;
  std::vector<int> known;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    const auto place = static_cast<size_t>(std::find(known.begin(), known.end(), hosts[members[rank]]) - known.begin());
    if (place == known.size()) {
      known.push_back(hosts[members[rank]]);
      order.emplace_back();
    }
    order[place].push_back(static_cast<int>(rank));
  }
  return order;
}

class OnHosts : public testing::TestWithParam<std::tuple<std::vector<int>, HostSums>> {
 protected:
  const std::vector<int>& hosts() const { return std::get<0>(GetParam()); }
  HostSums sums() const { return std::get<1>(GetParam()); }
  void run(const std::function<void(World&)>& body) const {
    WorldOptions options;
    options.sums = sums();
    run_on_hosts(hosts(), body, options);
  }
  // Of sums of floats in a group of these ranks of the job.
  SumOrder order(const std::vector<int>& members) const {
    return sums() == HostSums::Exchange ? by_host(hosts(), members) : in_rank_order(static_cast<int>(members.size()));
  }
  SumOrder order() const {
    std::vector<int> all;
    for (int rank = 0; rank < static_cast<int>(hosts().size()); ++rank) all.push_back(rank);
    return order(all);
  }
};
INSTANTIATE_TEST_SUITE_P(Deals, OnHosts,
                         testing::Combine(testing::ValuesIn(kDeals), testing::Values(HostSums::Chain, HostSums::Exchange)),
                         [](const auto& test) {
                           return "Hosts" + name_of_deal(std::get<0>(test.param)) +
                                  (std::get<1>(test.param) == HostSums::Exchange ? "Exchange" : "Chain");
                         });

// Values with all the digits that the type has, and of different magnitudes, so that another order of a sum, or another
// rounding, changes it.
template <typename T>
T value_of(int rank, int64_t i) {
  uint64_t x = (static_cast<uint64_t>(rank) << 40) + static_cast<uint64_t>(i) + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  if constexpr (std::is_integral_v<T>) return static_cast<T>(x);
  const double digits = static_cast<double>(static_cast<int64_t>(x)) * std::ldexp(1.0, -63);
  return static_cast<T>(static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(
      std::ldexp(digits, static_cast<int>(x % 13) - 6)));
}

template <typename T>
std::vector<T> values(int rank, int64_t count) {
  std::vector<T> data(count);
  for (int64_t i = 0; i < count; ++i) data[i] = value_of<T>(rank, i);
  return data;
}

// What the ranks' values are reduced to. Without an order, in rank order or as a tree.
template <typename T>
std::vector<T> reduced(ReduceOp op, int ranks, int64_t count, const SumOrder& order = {}) {
  std::vector<std::vector<T>> all;
  std::vector<const void*> from;
  std::vector<T> out(count);
  void* const to[] = {out.data()};
  for (int rank = 0; rank < ranks; ++rank) all.push_back(values<T>(rank, count));
  if (order.size() > 1) {
    using Sum = std::conditional_t<sizeof(T) == 2, float, T>;
    std::vector<Sum> sum(count);
    for (size_t i = 0; i < order.size(); ++i) {
      for (int64_t element = 0; element < count; ++element) {
        Sum part = static_cast<Sum>(all[order[i][0]][element]);
        for (size_t j = 1; j < order[i].size(); ++j) part += static_cast<Sum>(all[order[i][j]][element]);
        sum[element] = i == 0 ? part : sum[element] + part;
      }
    }
    for (int64_t element = 0; element < count; ++element) out[element] = static_cast<T>(sum[element]);
    return out;
  }
  for (const auto& of_rank : all) from.push_back(of_rank.data());
  reduce(kDTypeOf<T>, op, from, to, count);
  return out;
}

template <typename T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Counts: one element, a part of a chunk, exactly one chunk of 4-byte elements, a few with a ragged end.
const std::vector<int64_t> kCounts = {1, 1000, (512 << 10) / 4, 150007};
const std::vector<int64_t> kManyChunks = {1700003};  // so that every buffer is used several times

template <typename T>
void check_reductions(ProcessGroup& group, ReduceOp op, const SumOrder& order = {},
                      const std::vector<int64_t>& counts = kCounts) {
  const auto stream = make_inline_stream();
  const int size = group.size();
  for (int64_t count : counts) {
    SCOPED_TRACE(std::string(name_of(kDTypeOf<T>)) + " " + std::string(name_of(op)) + " of " + std::to_string(count));
    std::vector<T> data = values<T>(group.rank(), count);
    group.all_reduce(view(data), op, *stream);
    EXPECT_TRUE(same(data, reduced<T>(op, size, count, order))) << "all_reduce";

    const int64_t share = (count + size - 1) / size;
    const std::vector<T> expected = reduced<T>(op, size, share * size, order);
    std::vector<T> whole = values<T>(group.rank(), share * size), shard(share);
    const std::vector<T> mine(expected.begin() + group.rank() * share, expected.begin() + (group.rank() + 1) * share);
    group.reduce_scatter(view(std::as_const(whole)), view(shard), op, *stream);
    EXPECT_TRUE(same(shard, mine)) << "reduce_scatter";
    const TensorView in_place = view(whole).slice(group.rank() * share, share);
    group.reduce_scatter(view(std::as_const(whole)), in_place, op, *stream);
    EXPECT_EQ(std::memcmp(in_place.data, mine.data(), mine.size() * sizeof(T)), 0) << "reduce_scatter in place";
  }
}

TEST(ValuesOfTheTest, HaveOtherSumsInAnotherOrder) {
  const auto differs = [](auto one) {
    using T = decltype(one);
    const std::vector<T> a = values<T>(0, 1000), b = values<T>(1, 1000), c = values<T>(2, 1000);
    using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
    int different = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const Sum x = static_cast<Sum>(a[i]), y = static_cast<Sum>(b[i]), z = static_cast<Sum>(c[i]);
      if ((x + y) + z != x + (y + z)) ++different;
    }
    return different;
  };
  EXPECT_GT(differs(1.0f), 100);
  EXPECT_GT(differs(1.0), 100);
}

TEST_P(OnHosts, SumsOfManyChunksAreAsThoseOfOne) {
  run([this](World& world) {
    check_reductions<float>(world.group(), ReduceOp::Sum, order(), kManyChunks);
    check_reductions<int32_t>(world.group(), ReduceOp::Sum, {}, kManyChunks);
    world.close();
  });
}

// In rank order, or in the order of an exchange.
TEST_P(OnHosts, SumsOfFloatsHaveTheBitsOfASumInTheDefinedOrder) {
  run([this](World& world) {
    check_reductions<float>(world.group(), ReduceOp::Sum, order());
    check_reductions<bfloat16>(world.group(), ReduceOp::Sum, order());
    check_reductions<float16>(world.group(), ReduceOp::Sum, order());
    check_reductions<double>(world.group(), ReduceOp::Sum, order());
    world.close();
  });
}

TEST_P(OnHosts, IntegersAndMaximaAreExact) {
  run([](World& world) {
    check_reductions<int64_t>(world.group(), ReduceOp::Sum);
    check_reductions<int32_t>(world.group(), ReduceOp::Sum);
    check_reductions<float>(world.group(), ReduceOp::Max);
    check_reductions<bfloat16>(world.group(), ReduceOp::Max);
    check_reductions<int64_t>(world.group(), ReduceOp::Max);
    world.close();
  });
}

TEST_P(OnHosts, TreeSumsAddNeighboursFirst) {
  if ((hosts().size() & (hosts().size() - 1)) != 0) return;  // tree sums need a power of two
  run([](World& world) {
    check_reductions<float>(world.group(), ReduceOp::TreeSum);
    check_reductions<bfloat16>(world.group(), ReduceOp::TreeSum);
    check_reductions<int64_t>(world.group(), ReduceOp::TreeSum);
    world.close();
  });
}

TEST_P(OnHosts, GathersAndBroadcastsDeliverWhatWasSent) {
  run([](World& world) {
    ProcessGroup& group = world.group();
    const auto stream = make_inline_stream();
    for (int64_t count : kCounts) {
      SCOPED_TRACE(count);
      std::vector<float> expected;
      for (int rank = 0; rank < group.size(); ++rank) {
        const auto shard = values<float>(rank, count);
        expected.insert(expected.end(), shard.begin(), shard.end());
      }
      std::vector<float> whole(count * group.size());
      const std::vector<float> mine = values<float>(group.rank(), count);
      group.all_gather(view(mine), view(whole), *stream);
      EXPECT_TRUE(same(whole, expected)) << "all_gather";
      std::fill(whole.begin(), whole.end(), -1.0f);
      const TensorView in_place = view(whole).slice(group.rank() * count, count);
      std::copy(mine.begin(), mine.end(), static_cast<float*>(in_place.data));
      group.all_gather(in_place, view(whole), *stream);
      EXPECT_TRUE(same(whole, expected)) << "all_gather in place";
      for (int root = 0; root < group.size(); ++root) {
        std::vector<float> data = values<float>(group.rank(), count);
        group.broadcast(view(data), root, *stream);
        EXPECT_TRUE(same(data, values<float>(root, count))) << "broadcast from " << root;
      }
    }
    world.close();
  });
}

TEST_P(OnHosts, SubgroupsOfEveryKindWork) {
  run([this](World& world) {
    const auto stream = make_inline_stream();
    const int size = world.size(), half = size / 2;
    std::vector<int> first, odd;
    for (int rank = 0; rank < size; ++rank) {
      if (rank < half) first.push_back(rank);
      if (rank % 2 == 1) odd.push_back(rank);
    }
    for (const auto& members : {first, odd}) {
      const auto group = world.group().subgroup(members, "some");
      if (!group) continue;
      check_reductions<float>(*group, ReduceOp::Sum, order(members));
      check_reductions<int64_t>(*group, ReduceOp::Sum);
      std::vector<float> whole(1000 * members.size());
      const std::vector<float> mine = values<float>(world.rank(), 1000);
      group->all_gather(view(mine), view(whole), *stream);
      for (size_t i = 0; i < members.size(); ++i)
        EXPECT_TRUE(
            std::equal(whole.begin() + i * 1000, whole.begin() + (i + 1) * 1000, values<float>(members[i], 1000).begin()));
    }
    world.close();
  });
}

TEST_P(OnHosts, MessagesPassWithinAHostAndBetweenHosts) {
  run([](World& world) {
    const auto stream = make_inline_stream();
    const int rank = world.rank(), size = world.size();
    std::vector<float> data = values<float>(rank, 200000), got(data.size());
    for (int from = 0; from < size; ++from)
      for (int to = 0; to < size; ++to) {
        if (from == to) continue;
        if (rank == from) world.group().send(view(data), to, *stream);
        if (rank == to) {
          world.group().receive(view(got), from, *stream);
          EXPECT_TRUE(same(got, values<float>(from, 200000))) << from << " to " << to;
        }
      }
    world.close();
  });
}

// Counts the bytes that leave each host for another.
class CountingTransport final : public Transport {
 public:
  CountingTransport(std::unique_ptr<Transport> inner, const std::vector<int>& hosts, std::vector<std::atomic<int64_t>>& leaving)
      : inner_(std::move(inner)), hosts_(hosts), leaving_(leaving) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<PendingMessage> send(int peer, uint64_t tag, std::span<const std::byte> bytes) override {
    if (hosts_[peer] != hosts_[rank()]) leaving_[hosts_[rank()]] += static_cast<int64_t>(bytes.size());
    return inner_->send(peer, tag, bytes);
  }
  std::unique_ptr<PendingMessage> receive(int peer, uint64_t tag, std::span<std::byte> bytes) override {
    return inner_->receive(peer, tag, bytes);
  }
  void progress() override { inner_->progress(); }
  bool has_given_up() const override { return inner_->has_given_up(); }
  std::string why_gone(int peer) const override { return inner_->why_gone(peer); }

 private:
  const std::unique_ptr<Transport> inner_;
  const std::vector<int>& hosts_;
  std::vector<std::atomic<int64_t>>& leaving_;
};

using Operate = std::function<void(ProcessGroup&, Stream&)>;

// The bytes that leave each host in one operation.
std::vector<int64_t> bytes_leaving(const std::vector<int>& hosts, const Operate& operate, HostSums sums) {
  WorldOptions options;
  options.sums = sums;
  std::vector<std::atomic<int64_t>> leaving(hosts.back() + 1);
  run_on_hosts(
      hosts,
      [&](World& world) {
        operate(world.group(), *make_inline_stream());
        world.close();
      },
      options,
      [&](std::unique_ptr<Transport> inner) { return std::make_unique<CountingTransport>(std::move(inner), hosts, leaving); });
  return {leaving.begin(), leaving.end()};
}

// `of_whole`: what should leave each host, as a multiple of the bytes of the whole tensor. The tolerance is for headers, which
// are some tens of bytes for each rank and operation.
void expect_leaving(const std::vector<int>& hosts, const std::vector<double>& of_whole, const Operate& operate,
                    int64_t whole_bytes, HostSums sums = HostSums::Chain) {
  const std::vector<int64_t> leaving = bytes_leaving(hosts, operate, sums);
  for (size_t host = 0; host < leaving.size(); ++host)
    EXPECT_NEAR(static_cast<double>(leaving[host]), of_whole[host] * static_cast<double>(whole_bytes), 20000)
        << "host " << host;
}

// With H hosts, a chain sends the whole from host to host and back; an exchange sends 2 (H-1)/H of it, whichever is chosen for
// floats.
TEST(TrafficBetweenHosts, OfSumsAndGathersIsThatOfTheFormula) {
  constexpr int64_t kWhole = 240000, kWholeBytes = kWhole * 4;
  const auto all_reduce = [](DType dtype, int64_t elements) {
    return [=](ProcessGroup& group, Stream& stream) {
      std::vector<std::byte> data(elements * size_of(dtype));
      group.all_reduce({data.data(), dtype, Shape{elements}}, ReduceOp::Sum, stream);
    };
  };
  const Operate reduce_scatter = [](ProcessGroup& group, Stream& stream) {
    std::vector<float> whole(kWhole), shard(kWhole / group.size());
    group.reduce_scatter(view(whole), view(shard), ReduceOp::Sum, stream);
  };
  const Operate exchange_scatter = [](ProcessGroup& group, Stream& stream) {
    std::vector<int32_t> whole(kWhole), shard(kWhole / group.size());
    group.reduce_scatter(view(whole), view(shard), ReduceOp::Sum, stream);
  };
  const Operate all_gather = [](ProcessGroup& group, Stream& stream) {
    std::vector<float> whole(kWhole), shard(kWhole / group.size());
    group.all_gather(view(shard), view(whole), stream);
  };
  const std::vector<int> two{0, 0, 1, 1}, three{0, 0, 1, 1, 2, 2}, uneven{0, 0, 0, 1};
  expect_leaving(two, {1, 1}, all_reduce(DType::Float32, kWhole), kWholeBytes);
  expect_leaving(three, {1, 2, 1}, all_reduce(DType::Float32, kWhole), kWholeBytes);
  expect_leaving(two, {2, 1}, all_reduce(DType::BFloat16, 2 * kWhole), kWholeBytes);  // sums travel as float32, results do not
  expect_leaving(two, {1, 1}, all_reduce(DType::Int32, kWhole), kWholeBytes);
  expect_leaving(three, {4 / 3., 4 / 3., 4 / 3.}, all_reduce(DType::Int32, kWhole), kWholeBytes);
  expect_leaving(two, {1, 1 / 2.}, reduce_scatter, kWholeBytes);
  expect_leaving(three, {1, 1, 2 / 3.}, reduce_scatter, kWholeBytes);
  expect_leaving(three, {2 / 3., 2 / 3., 2 / 3.}, exchange_scatter, kWholeBytes);
  const auto exchanged = [&](const std::vector<int>& hosts, const std::vector<double>& of_whole, const Operate& operate) {
    expect_leaving(hosts, of_whole, operate, kWholeBytes, HostSums::Exchange);
  };
  exchanged(two, {1, 1}, all_reduce(DType::Float32, kWhole));
  exchanged(three, {4 / 3., 4 / 3., 4 / 3.}, all_reduce(DType::Float32, kWhole));
  exchanged(three, {2, 2, 2}, all_reduce(DType::BFloat16, 2 * kWhole));  // sums travel as float32, results do not
  exchanged(uneven, {1, 1}, all_reduce(DType::Float32, kWhole));
  exchanged(two, {1 / 2., 1 / 2.}, reduce_scatter);
  exchanged(three, {2 / 3., 2 / 3., 2 / 3.}, reduce_scatter);
  exchanged(uneven, {1 / 4., 3 / 4.}, reduce_scatter);  // what the ranks of the other host own
  expect_leaving(two, {1 / 2., 1 / 2.}, all_gather, kWholeBytes);
  expect_leaving(three, {2 / 3., 2 / 3., 2 / 3.}, all_gather, kWholeBytes);
}

TEST(HostsGroup, ADisagreementBetweenHostsIsNamedOnAllRanks) {
  std::vector<std::string> texts(4);
  try {
    run_on_hosts({0, 0, 1, 1}, [&](World& world) {
      std::vector<float> data(world.rank() >= 2 ? 3 : 4);
      const Caught caught =
          catch_comm_error([&] { world.group().all_reduce(view(data), ReduceOp::Sum, *make_inline_stream()); });
      EXPECT_EQ(caught.code, ExitCode::RanksDisagree);
      texts[world.rank()] = caught.text;
    });
  } catch (const CommError&) {
  }
  for (const std::string& text : texts)
    EXPECT_THAT(text,
                HasSubstr("rank 0 (world rank 0) runs all_reduce of 4 float32, rank 2 (world rank 2) runs all_reduce of 3 "
                          "float32"));
}

// The ranks that wait for a late one must all name it, although two of them wait for others that wait for it.
TEST(HostsGroup, ALateRankIsNamedOnAllHosts) {
  WorldOptions options;
  options.operation_deadline = std::chrono::milliseconds(500);
  std::vector<std::string> texts(4);
  try {
    run_on_hosts(
        {0, 0, 1, 1},
        [&](World& world) {
          if (world.rank() == 3) return std::this_thread::sleep_for(std::chrono::milliseconds(4000));
          // It waits for rank 3 longer than the ranks of the other host wait for it.
          if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
          std::vector<float> data(4);
          texts[world.rank()] =
              catch_comm_error([&] { world.group().all_reduce(view(data), ReduceOp::Sum, *make_inline_stream()); }).text;
        },
        options);
  } catch (const CommError&) {
  }
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(texts[rank], HasSubstr("rank 3")) << rank;
    EXPECT_THAT(texts[rank], HasSubstr("has not entered all_reduce of 4 float32")) << rank;
  }
}

TEST(HostsGroup, ALostRankIsNamedWithItsHost) {
  std::vector<std::string> texts(4);
  try {
    run_on_hosts({0, 0, 1, 1}, [&](World& world) {
      if (world.rank() == 3) return;
      texts[world.rank()] = catch_comm_error([&] { world.group().barrier(*make_inline_stream()); }).text;
    });
  } catch (const CommError&) {
  }
  for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(texts[rank], HasSubstr("lost rank 3 (host host1) during barrier"));
}

TEST(HostMap, KnowsWhoSharesAHost) {
  const HostMap map = map_hosts({7, 7, 3, 7, 3}, 4);
  EXPECT_EQ(map.ranks, (std::vector<std::vector<int>>{{0, 1, 3}, {2, 4}}));
  EXPECT_EQ(map.host, 1);
  EXPECT_EQ(map.line, 1);
  EXPECT_EQ(map.fewest(), 2);
  EXPECT_FALSE(map.in_rank_order());
  EXPECT_TRUE(map_hosts({7, 7, 3, 3}, 0).in_equal_trees());
  EXPECT_FALSE(map_hosts({7, 7, 3}, 0).in_equal_trees());
  EXPECT_FALSE(map_hosts({7, 7, 7, 3, 3, 3}, 0).in_equal_trees());
  EXPECT_TRUE(map_hosts({7, 7, 7, 3}, 0).in_rank_order());
}

}  // namespace
}  // namespace trivet::comm
