// The log of operations between ranks: what it counts, the bandwidths, and that the operations stay what they are.
#include "engine/timeline/operation_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/world.h"

namespace trivet::timeline {
namespace {

using comm::Operation;
using testing::HasSubstr;

// 8e6 bits take 2 ms: 4 Gbit/s.
LoggedOperation megabyte(Operation operation, int ranks) {
  return {.operation = operation, .group = "data", .ranks = ranks, .bytes = 1'000'000, .ms = 2};
}

TEST(OperationLog, BandwidthsAreThoseOfDeepSpeed) {
  EXPECT_DOUBLE_EQ(megabyte(Operation::AllReduce, 4).algorithm_bandwidth(), 8);
  EXPECT_DOUBLE_EQ(megabyte(Operation::AllReduce, 4).bus_bandwidth(), 4 * 2 * 0.75);
  for (const Operation operation :
       {Operation::AllGather, Operation::ReduceScatter, Operation::AllToAll, Operation::AllToAllV}) {
    EXPECT_DOUBLE_EQ(megabyte(operation, 4).algorithm_bandwidth(), 4);
    EXPECT_DOUBLE_EQ(megabyte(operation, 4).bus_bandwidth(), 4 * 0.75);
  }
  for (const Operation operation : {Operation::Broadcast, Operation::Send, Operation::Receive}) {
    EXPECT_DOUBLE_EQ(megabyte(operation, 2).algorithm_bandwidth(), 4);
    EXPECT_DOUBLE_EQ(megabyte(operation, 2).bus_bandwidth(), 4);
  }
  EXPECT_EQ((LoggedOperation{.operation = Operation::Barrier, .group = "", .ranks = 4}.bus_bandwidth()), 0);
}

// A clock that adds 3 ms at each look.
class CountingClock final : public StreamClock {
 public:
  Moment now() override { return ++looks_; }
  Moment turn(Moment queued, Moment) override { return queued; }
  double milliseconds(Moment moment) override { return 3 * static_cast<double>(moment); }

 private:
  Moment looks_ = 0;
};

std::vector<LoggedOperation> logged(const std::set<Operation>& operations) {
  std::vector<LoggedOperation> of_rank_0;
  comm::run_threads(3, [&](comm::World& world) {
    OperationLog log(std::make_unique<CountingClock>(), operations);
    const auto group = make_logged_group(world.group().subgroup({0, 1, 2}, "all"), log);
    const auto stream = make_inline_stream();
    std::vector<float> whole(6, 1.0f + static_cast<float>(world.rank())), shard(2);
    const TensorView all{whole.data(), DType::Float32, {6}}, part{shard.data(), DType::Float32, {2}};
    group->all_reduce(all, comm::ReduceOp::Sum, *stream);
    EXPECT_EQ(whole, std::vector<float>(6, 6));
    group->reduce_scatter(all, part, comm::ReduceOp::Sum, *stream);
    EXPECT_EQ(shard, std::vector<float>(2, 18));
    shard.assign(2, static_cast<float>(world.rank()));
    group->all_gather(part, all, *stream);
    EXPECT_EQ(whole, (std::vector<float>{0, 0, 1, 1, 2, 2}));
    group->broadcast(part, 1, *stream);
    EXPECT_EQ(shard, std::vector<float>(2, 1));
    std::vector<float> received(6);
    group->all_to_all(all, {received.data(), DType::Float32, {6}}, *stream);
    group->all_to_all_v(all, {received.data(), DType::Float32, {6}}, {{2, 2, 2}, {2, 2, 2}}, *stream);
    if (world.rank() == 0) group->send(part, 1, *stream);
    if (world.rank() == 1) group->receive(part, 0, *stream);
    group->barrier(*stream);
    EXPECT_EQ(group->size(), 3);
    EXPECT_EQ(group->rank(), world.rank());
    EXPECT_EQ(group->traffic().operations, world.rank() == 2 ? 7 : 8);
    if (world.rank() == 0) of_rank_0 = log.take();
    EXPECT_TRUE(world.rank() != 0 || log.take().empty());
  });
  return of_rank_0;
}

TEST(OperationLog, HasTheBytesAndTheTimeOfEachOperation) {
  const std::vector<LoggedOperation> operations = logged({});
  const std::vector<std::pair<Operation, int64_t>> expected{
      {Operation::AllReduce, 24}, {Operation::ReduceScatter, 24}, {Operation::AllGather, 24}, {Operation::Broadcast, 8},
      {Operation::AllToAll, 24},  {Operation::AllToAllV, 24},     {Operation::Send, 8},       {Operation::Barrier, 0}};
  ASSERT_EQ(operations.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(operations[i].operation, expected[i].first) << i;
    EXPECT_EQ(operations[i].bytes, expected[i].second) << i;
    EXPECT_EQ(operations[i].group, "all");
    EXPECT_EQ(operations[i].ranks, 3);
    EXPECT_DOUBLE_EQ(operations[i].ms, 3) << i;
  }
}

TEST(OperationLog, LogsOnlyWhatIsAskedFor) {
  const std::vector<LoggedOperation> operations = logged({Operation::AllGather, Operation::Send});
  ASSERT_EQ(operations.size(), 2u);
  EXPECT_EQ(operations[0].operation, Operation::AllGather);
  EXPECT_EQ(operations[1].operation, Operation::Send);
}

TEST(OperationLog, AGroupOfOneRankIsNotLogged) {
  OperationLog log(std::make_unique<CountingClock>());
  const auto group = make_logged_group(comm::make_single_group("alone"), log);
  group->barrier(*make_inline_stream());
  EXPECT_TRUE(log.take().empty());
}

TEST(OperationTotals, AreByOperationSizeAndIfWantedByGroup) {
  const auto totals_of = [](bool by_group) {
    OperationTotals totals(by_group);
    LoggedOperation operation = megabyte(Operation::AllGather, 4);
    totals.add(operation);
    operation.ms = 6;
    operation.group = "other";
    totals.add(operation);
    operation.bytes = 500'000;
    totals.add(operation);
    totals.add(megabyte(Operation::AllReduce, 4));
    return totals.all();
  };
  const std::vector<OperationTotal> together = totals_of(false), apart = totals_of(true);
  ASSERT_EQ(together.size(), 3u);
  EXPECT_EQ(together[0].sum.operation, Operation::AllReduce);
  EXPECT_EQ(together[1].sum.bytes, 500'000);
  EXPECT_EQ(together[2].count, 2);
  EXPECT_DOUBLE_EQ(together[2].sum.ms, 8);
  ASSERT_EQ(apart.size(), 4u);
  EXPECT_EQ(apart[1].sum.group, "data");
  EXPECT_EQ(apart[2].sum.group, "other");
  EXPECT_EQ(apart[3].count, 1);
}

TEST(OperationTotals, TheTableHasMeansOverTheOperations) {
  OperationTotals totals(true);
  LoggedOperation operation{.operation = Operation::AllGather, .group = "data.gather", .ranks = 4, .bytes = 1 << 20, .ms = 1};
  totals.add(operation);
  operation.ms = 3;
  totals.add(operation);
  const std::vector<std::string> lines = table_of(totals.all());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "operation                      ranks         size    count    total ms    mean ms  alg Gb/s  bus Gb/s");
  EXPECT_EQ(lines[1], "all_gather data.gather             4     1.00 MiB        2       4.000     2.0000     4.194     3.146");
  EXPECT_EQ(line_of(operation), "all_gather data.gather of 4 ranks, 1.00 MiB, 3.0000 ms, alg 2.796 Gb/s, bus 2.097 Gb/s");
}

}  // namespace
}  // namespace trivet::timeline
