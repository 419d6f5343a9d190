// Streams, events and process groups whose time is modelled.
#include "autotune/modelled_time.h"

#include <gtest/gtest.h>

namespace trivet::autotune {
namespace {

// A kernel takes one second, an operation ten.
class UnitCosts final : public CostModel {
 public:
  explicit UnitCosts(bool shares_cores = false) : shares_cores_(shares_cores) {}
  double kernel_seconds(const kernels::KernelCall&) const override { return 1; }
  double operation_seconds(const OperationCall& call) const override {
    return call.operation == comm::Operation::Receive ? 0 : 10;
  }
  double handover_seconds() const override { return 0.5; }
  bool streams_share_cores() const override { return shares_cores_; }

 private:
  bool shares_cores_;
};

TensorView numbers(int64_t count) { return {nullptr, DType::Float32, {count}}; }

TEST(ModelledTime, KernelsTakeWhatTheirCostIs) {
  const UnitCosts costs;
  ModelledTime time(costs);
  time.kernels().zero(numbers(3));
  time.kernels().zero(numbers(4));
  EXPECT_EQ(time.now(), 2);
}

TEST(ModelledTime, StreamsRunInParallelAndEachInOrder) {
  const UnitCosts costs;
  ModelledTime time(costs);
  const auto group = time.place(comm::make_meta_group(0, 2, "pair"));
  const auto stream = time.make_stream(true);
  time.kernels().zero(numbers(1));  // to 1
  group->all_reduce(numbers(8), comm::ReduceOp::Sum, *stream);
  const Event first = stream->record();  // 1 + 10 + 0.5
  group->all_reduce(numbers(8), comm::ReduceOp::Sum, *stream);
  const Event second = stream->record();  // after the first
  EXPECT_EQ(time.now(), 1);
  first.synchronize();
  EXPECT_EQ(time.now(), 11.5);
  time.kernels().zero(numbers(1));
  second.synchronize();
  EXPECT_EQ(time.now(), 22);
  first.synchronize();  // it was done long ago
  EXPECT_EQ(time.now(), 22);
  EXPECT_EQ(group->traffic().operations, 2);
}

TEST(ModelledTime, AStreamWaitsForAnother) {
  const UnitCosts costs;
  ModelledTime time(costs);
  const auto group = time.place(comm::make_meta_group(0, 2, "pair"));
  const auto a = time.make_stream(true), b = time.make_stream(true);
  group->all_reduce(numbers(8), comm::ReduceOp::Sum, *a);  // to 10.5
  b->wait(a->record());
  group->all_reduce(numbers(8), comm::ReduceOp::Sum, *b);
  b->synchronize();
  EXPECT_EQ(time.now(), 21);
}

TEST(ModelledTime, StreamsThatDoNotOverlapKeepTheCallerBusy) {
  const UnitCosts costs;
  ModelledTime time(costs);
  const auto group = time.place(comm::make_meta_group(0, 2, "pair"));
  const auto stream = time.make_stream(false);
  group->all_gather(numbers(4), numbers(8), *stream);
  EXPECT_EQ(time.now(), 10);
}

TEST(ModelledTime, WhereCoresAreSharedWhatStreamsDoTakesTheCallersTime) {
  const UnitCosts costs(true);
  ModelledTime time(costs);
  const auto group = time.place(comm::make_meta_group(0, 2, "pair"));
  const auto stream = time.make_stream(true);
  group->all_reduce(numbers(8), comm::ReduceOp::Sum, *stream);
  EXPECT_EQ(time.now(), 10.5);
  stream->synchronize();
  EXPECT_EQ(time.now(), 10.5);
}

TEST(ModelledTime, ReceivingAddsNothingToTheTimeOfTheSend) {
  const UnitCosts costs;
  ModelledTime time(costs);
  const auto group = time.place(comm::make_meta_group(0, 2, "pair"));
  const auto stream = time.make_stream(false);
  group->receive(numbers(8), 1, *stream);
  EXPECT_EQ(time.now(), 0);
  group->send(numbers(8), 1, *stream);
  EXPECT_EQ(time.now(), 10);
}

TEST(ModelledTime, ItsClockTellsItInNanoseconds) {
  const UnitCosts costs;
  ModelledTime time(costs);
  const auto clock = time.make_clock();
  const auto begin = clock->now();
  time.pass(0.25);
  EXPECT_EQ(clock->milliseconds(clock->now()) - clock->milliseconds(begin), 250);
}

}  // namespace
}  // namespace trivet::autotune
