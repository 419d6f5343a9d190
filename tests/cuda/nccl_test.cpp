// Groups over NCCL give what groups over threads give, to the last bit. Ranks are threads; NCCL and the devices are those of
// tests/cuda/shim.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "comm/nccl/rank_sum.h"
#include "comm/reduce.h"
#include "tests/cuda/nccl_ranks.h"

namespace trivet::comm::nccl_test {
namespace {

// Values of very different magnitudes, so that a different order or an extra rounding changes the sum.
template <typename T>
std::vector<T> values(int rank, int64_t count) {
  std::vector<T> data(count);
  for (int64_t i = 0; i < count; ++i) {
    uint64_t x = (static_cast<uint64_t>(rank) << 40) + static_cast<uint64_t>(i) + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 31;
    if constexpr (std::is_integral_v<T>)
      data[i] = static_cast<T>(x);
    else
      data[i] = static_cast<T>(std::ldexp(static_cast<float>(x & 0xffff) - 32768.f, static_cast<int>((x >> 16) % 12) - 20));
  }
  return data;
}

template <typename T>
TensorView view(std::vector<T>& data) {
  return {data.data(), kDTypeOf<T>, {static_cast<int64_t>(data.size())}};
}
template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Runs an operation on host tensors in the host's group, and on copies of them on the device in NCCL's group. Afterwards all
// tensors must have the same bits.
template <typename T>
class Twin {
 public:
  Twin(NcclRank& rank, std::vector<std::vector<T>> tensors) : rank_(rank), host_(std::move(tensors)) {
    for (const auto& tensor : host_) device_.push_back(std::make_unique<DeviceVector<T>>(tensor));
  }
  using Operation = std::function<void(ProcessGroup&, const std::vector<TensorView>&, Stream&)>;
  void expect_same(const char* what, const Operation& operation) {
    std::vector<TensorView> host, device;
    for (auto& tensor : host_) host.push_back(view(tensor));
    for (auto& tensor : device_) device.push_back(tensor->view());
    operation(rank_.world.group(), host, *make_inline_stream());
    operation(rank_.group, device, rank_.stream);
    rank_.wait();
    for (size_t i = 0; i < host_.size(); ++i)
      EXPECT_TRUE(same_bits(device_[i]->read(), host_[i]))
          << what << " of " << host_[0].size() << " " << name_of(kDTypeOf<T>) << ", tensor " << i << ", rank "
          << rank_.group.rank() << " of " << rank_.group.size();
  }

 private:
  NcclRank& rank_;
  std::vector<std::vector<T>> host_;
  std::vector<std::unique_ptr<DeviceVector<T>>> device_;
};

template <typename T>
void check_reductions(NcclRank& rank, int64_t count) {
  const int n = rank.group.size(), r = rank.group.rank();
  std::vector<ReduceOp> ops{ReduceOp::Sum, ReduceOp::Max};
  if ((n & (n - 1)) == 0) ops.push_back(ReduceOp::TreeSum);
  for (ReduceOp op : ops) {
    Twin<T>(rank, {values<T>(r, count)}).expect_same("all_reduce", [&](auto& group, auto& t, auto& stream) {
      group.all_reduce(t[0], op, stream);
    });
    Twin<T>(rank, {values<T>(r, n * count), values<T>(r, count)})
        .expect_same("reduce_scatter",
                     [&](auto& group, auto& t, auto& stream) { group.reduce_scatter(t[0], t[1], op, stream); });
  }
  // In place; what the places of other ranks hold afterwards does not matter.
  DeviceVector<T> whole(values<T>(r, n * count));
  auto on_host = values<T>(r, n * count);
  rank.group.reduce_scatter(whole.view(), whole.view().slice(r * count, count), ReduceOp::Sum, rank.stream);
  rank.world.group().reduce_scatter(view(on_host), view(on_host).slice(r * count, count), ReduceOp::Sum, *make_inline_stream());
  rank.wait();
  const auto got = whole.read();
  const auto own = [&](const std::vector<T>& all) {
    return std::vector<T>(all.begin() + r * count, all.begin() + (r + 1) * count);
  };
  EXPECT_TRUE(same_bits(own(got), own(on_host))) << "reduce_scatter in place of " << count << " " << name_of(kDTypeOf<T>);
}

template <typename T>
void check_copies(NcclRank& rank, int64_t count) {
  const int n = rank.group.size(), r = rank.group.rank();
  Twin<T>(rank, {values<T>(r, count), values<T>(9, n * count)})
      .expect_same("all_gather", [](auto& group, auto& t, auto& stream) { group.all_gather(t[0], t[1], stream); });
  Twin<T>(rank, {values<T>(r, n * count)}).expect_same("all_gather in place", [&](auto& group, auto& t, auto& stream) {
    group.all_gather(t[0].slice(r * count, count), t[0], stream);
  });
  for (int root = 0; root < n; ++root)
    Twin<T>(rank, {values<T>(r, count)}).expect_same("broadcast", [&](auto& group, auto& t, auto& stream) {
      group.broadcast(t[0], root, stream);
    });
  Twin<T>(rank, {values<T>(r, n * count), values<T>(9, n * count)})
      .expect_same("all_to_all", [](auto& group, auto& t, auto& stream) { group.all_to_all(t[0], t[1], stream); });
  // Rank a sends (a + 1) b elements to rank b, so rank 0 receives nothing.
  ExchangeCounts counts;
  for (int peer = 0; peer < n; ++peer) {
    counts.sent.push_back(count * (r + 1) * peer);
    counts.received.push_back(count * (peer + 1) * r);
  }
  const int64_t in = std::accumulate(counts.sent.begin(), counts.sent.end(), int64_t{0});
  const int64_t out = std::accumulate(counts.received.begin(), counts.received.end(), int64_t{0});
  Twin<T>(rank, {values<T>(r, in), values<T>(9, out)}).expect_same("all_to_all_v", [&](auto& group, auto& t, auto& stream) {
    group.all_to_all_v(t[0], t[1], counts, stream);
  });
}

class NcclGroups : public testing::TestWithParam<int> {};

TEST_P(NcclGroups, ReduceToTheBitsOfGroupsOnTheHost) {
  run_nccl(GetParam(), [](NcclRank& rank) {
    for (int64_t count : {0, 1, 3, 100, 2011}) {
      check_reductions<float>(rank, count);
      check_reductions<bfloat16>(rank, count);
      check_reductions<float16>(rank, count);
      check_reductions<double>(rank, count);
      check_reductions<int64_t>(rank, count);
      check_reductions<int32_t>(rank, count);
    }
  });
}

TEST_P(NcclGroups, MoveTheBytesThatGroupsOnTheHostMove) {
  run_nccl(GetParam(), [](NcclRank& rank) {
    for (int64_t count : {0, 1, 3, 1000}) {
      check_copies<float>(rank, count);
      check_copies<bfloat16>(rank, count);
      check_copies<int64_t>(rank, count);
      check_copies<int32_t>(rank, count);
      check_copies<uint16_t>(rank, count);
      check_copies<uint8_t>(rank, count);
    }
    rank.group.barrier(rank.stream);
  });
}

// Slices of flat groups begin anywhere.
TEST_P(NcclGroups, TakeTensorsThatAreNotAligned) {
  run_nccl(GetParam(), [](NcclRank& rank) {
    const int n = rank.group.size(), r = rank.group.rank();
    for (int64_t offset : {1, 3, 5})
      Twin<bfloat16>(rank, {values<bfloat16>(r, 2011 + offset), values<bfloat16>(r, n * 500 + offset)})
          .expect_same("a slice", [&](auto& group, auto& t, auto& stream) {
            group.all_reduce(t[0].slice(offset, 2011), ReduceOp::Sum, stream);
            group.reduce_scatter(t[1].slice(offset, n * 500), t[0].slice(offset, 500), ReduceOp::Sum, stream);
          });
  });
}

TEST_P(NcclGroups, CountTheTrafficOfTheFormulas) {
  run_nccl(GetParam(), [](NcclRank& rank) {
    const int n = rank.group.size();
    const auto before = rank.world.group().traffic().bytes_sent;
    const std::vector<int64_t> equal(n, 1001);
    const ExchangeCounts counts{equal, equal};
    Twin<float>(rank, {values<float>(rank.group.rank(), n * 1001), values<float>(9, n * 1001), values<float>(7, 1001)})
        .expect_same("every operation", [&](auto& group, auto& t, auto& stream) {
          group.all_reduce(t[2], ReduceOp::Sum, stream);
          group.reduce_scatter(t[0], t[2], ReduceOp::Sum, stream);
          group.all_gather(t[2], t[0], stream);
          group.broadcast(t[2], 0, stream);
          group.all_to_all(t[0], t[1], stream);
          group.all_to_all_v(t[0], t[1], counts, stream);
          if (group.size() > 1 && group.rank() == 0) group.send(t[2], 1, stream);
          if (group.rank() == 1) group.receive(t[2], 0, stream);
          group.barrier(stream);
        });
    EXPECT_EQ(rank.group.traffic().bytes_sent, rank.world.group().traffic().bytes_sent - before);
    EXPECT_EQ(rank.group.traffic().operations, n == 1 ? 7 : rank.group.rank() <= 1 ? 8 : 7);
  });
}

TEST_P(NcclGroups, HaveSubgroups) {
  run_nccl(GetParam(), [](NcclRank& rank) {
    for (int skipped = 0; skipped < rank.world.size(); ++skipped) {
      std::vector<int> ranks;
      for (int other = 0; other < rank.world.size(); ++other)
        if (other != skipped) ranks.push_back(other);
      if (ranks.empty()) continue;
      const auto group = rank.group.subgroup(ranks, "without " + std::to_string(skipped));
      ASSERT_EQ(group == nullptr, rank.world.rank() == skipped);
      if (!group) continue;
      DeviceVector<int64_t> whole(std::vector<int64_t>(ranks.size())), mine({rank.world.rank()});
      group->all_gather(mine.view(), whole.view(), rank.stream);
      rank.wait();
      EXPECT_EQ(whole.read(), std::vector<int64_t>(ranks.begin(), ranks.end()));
      const auto inner = group->subgroup({0}, "first of " + group->name());
      EXPECT_EQ(inner != nullptr, group->rank() == 0);
      close_nccl_group(*group);
    }
  });
}

// The links of a pipeline are groups, one for each pair of neighbours. Every rank sends to the next rank and only then receives
// from the previous one: as sends and receives have streams of their own, no rank waits for another one to finish.
TEST_P(NcclGroups, OfTwoRanksSendAndReceiveAtTheSameTime) {
  run_nccl(GetParam(), [](NcclRank& rank) {
    const int n = rank.world.size(), r = rank.world.rank();
    if (n < 2) return;
    std::vector<std::unique_ptr<ProcessGroup>> links(n);  // [a]: between rank a and the next rank
    for (int a = 0; a < n; ++a) {
      auto link = rank.group.subgroup({std::min(a, (a + 1) % n), std::max(a, (a + 1) % n)}, "link " + std::to_string(a));
      if (link) links[a] = std::move(link);
    }
    ProcessGroup &to_next = *links[r], &from_last = *links[(r + n - 1) % n];
    DeviceStream receives;
    const DeviceVector<int64_t> out(values<int64_t>(r, 5003)), in(values<int64_t>(9, 5003));
    for (int round = 0; round < 3; ++round) {
      to_next.send(out.view(), 1 - to_next.rank(), rank.stream);
      from_last.send(out.view().slice(0, 100), 1 - from_last.rank(), rank.stream);  // in the other direction, on the same links
      from_last.receive(in.view(), 1 - from_last.rank(), receives);
      to_next.receive(in.view().slice(0, 100), 1 - to_next.rank(), receives);
    }
    rank.wait();
    receives.synchronize();
    auto expected = values<int64_t>((r + n - 1) % n, 5003);
    const auto of_next = values<int64_t>((r + 1) % n, 100);
    std::copy(of_next.begin(), of_next.end(), expected.begin());
    EXPECT_EQ(in.read(), expected);
    for (auto& link : links)
      if (link) close_nccl_group(*link);
  });
}

// In a larger group, a transfer may need no rank except its sender and its receiver.
TEST_P(NcclGroups, MessagesNeedTheTwoRanksOnly) {
  run_nccl(GetParam(), [](NcclRank& rank) {
    const int n = rank.world.size(), r = rank.world.rank();
    const DeviceVector<int32_t> data(values<int32_t>(r, 3001));
    if (r > 0) rank.group.receive(data.view(), r - 1, rank.stream);
    if (r + 1 < n) rank.group.send(data.view(), r + 1, rank.stream);
    rank.wait();
    EXPECT_EQ(data.read(), values<int32_t>(0, 3001));
  });
}

TEST_P(NcclGroups, RunOnDifferentStreamsAtTheSameTime) {
  run_nccl(GetParam(), [](NcclRank& rank) {
    std::vector<int> all, even;
    for (int other = 0; other < rank.world.size(); ++other) all.push_back(other);
    for (int other = 0; other < rank.world.size(); other += 2) even.push_back(other);
    const auto first = rank.group.subgroup(all, "first"), second = rank.group.subgroup(even, "second");
    DeviceStream one, two;
    const DeviceVector<int64_t> a(std::vector<int64_t>(7001, 1)), b(std::vector<int64_t>(5021, 1));
    int64_t expected_a = 1, expected_b = 1;
    for (int i = 0; i < 10; ++i) {
      first->all_reduce(a.view(), ReduceOp::Sum, one);
      if (second) second->all_reduce(b.view(), ReduceOp::Sum, two);
      if (rank.world.rank() % 2) one.synchronize();  // so that the two groups are not in step
      expected_a *= rank.world.size(), expected_b *= static_cast<int64_t>(even.size());
    }
    one.synchronize();
    two.synchronize();
    EXPECT_EQ(a.read(), std::vector<int64_t>(7001, expected_a));
    if (second) {
      EXPECT_EQ(b.read(), std::vector<int64_t>(5021, expected_b));
    }
    close_nccl_group(*first);
    if (second) close_nccl_group(*second);
  });
}

// A step may become a graph: operations that are captured once run each time the graph is launched.
TEST_P(NcclGroups, CanBeCapturedIntoAGraph) {
  run_nccl(GetParam(), [](NcclRank& rank) {
    const int n = rank.group.size(), r = rank.group.rank();
    const DeviceVector<float> data(std::vector<float>(2011, static_cast<float>(r + 1)));
    const DeviceVector<int64_t> flag({r});
    rank.group.all_reduce(data.view(), ReduceOp::Sum, rank.stream);  // the first use makes what it needs
    rank.wait();
    CUDA_CHECK(cudaStreamBeginCapture(rank.stream.get(), cudaStreamCaptureModeThreadLocal));
    rank.group.all_reduce(data.view(), ReduceOp::Sum, rank.stream);
    rank.group.all_reduce(flag.view(), ReduceOp::Max, rank.stream);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    CUDA_CHECK(cudaStreamEndCapture(rank.stream.get(), &graph));
    CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int launch = 0; launch < 2; ++launch) CUDA_CHECK(cudaGraphLaunch(executable, rank.stream.get()));
    rank.wait();
    const float sum = static_cast<float>(n * (n + 1) / 2);
    EXPECT_EQ(data.read(), std::vector<float>(2011, sum * static_cast<float>(n * n)));
    EXPECT_EQ(flag.read()[0], n - 1);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclGroups, testing::Values(1, 2, 3, 4, 5));

TEST(NcclMaxima, KeepANanOfAnyRank) {
  for (int culprit = 0; culprit < 3; ++culprit)
    run_nccl(3, [&](NcclRank& rank) {
      const int r = rank.group.rank();
      const DeviceVector<float> data({r == culprit ? NAN : 1.f, static_cast<float>(-r)});
      rank.group.all_reduce(data.view(), ReduceOp::Max, rank.stream);
      rank.wait();
      EXPECT_TRUE(std::isnan(data.read()[0]));
      EXPECT_EQ(data.read()[1], 0.f);
    });
}

// The kernel alone, for more ranks than could run as threads.
TEST(RankSum, HasTheBitsOfTheHostsReductions) {
  for (int ranks : {1, 2, 7, 16, 64})
    for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Max, ReduceOp::TreeSum}) {
      if (op == ReduceOp::TreeSum && (ranks & (ranks - 1)) != 0) continue;
      const int64_t count = 131, stride = 136;
      const int own = ranks / 2;
      std::vector<float> received(std::max(ranks - 1, 1) * stride), expected(count);
      std::vector<std::vector<float>> pieces;
      std::vector<const void*> from;
      for (int rank = 0; rank < ranks; ++rank) pieces.push_back(values<float>(rank, count));
      for (int rank = 0; rank < ranks; ++rank) {
        from.push_back(pieces[rank].data());
        if (rank == own) continue;
        const int64_t place = (rank < own ? rank : rank - 1) * stride;
        std::copy(pieces[rank].begin(), pieces[rank].end(), received.begin() + place);
      }
      void* const to[] = {expected.data()};
      reduce(DType::Float32, op, from, to, count);
      const DeviceVector<float> staged(received), mine(pieces[own]);
      rank_sum({.dtype = DType::Float32,
                .op = op,
                .received = staged.view().data,
                .stride = stride,
                .own = mine.view().data,
                .out = mine.view().data,
                .count = count,
                .rank = own,
                .ranks = ranks},
               2, nullptr);
      CUDA_CHECK(cudaStreamSynchronize(nullptr));
      EXPECT_TRUE(same_bits(mine.read(), expected)) << ranks << " ranks, operation " << static_cast<int>(op);
    }
}

}  // namespace
}  // namespace trivet::comm::nccl_test
