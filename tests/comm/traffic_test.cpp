// The counted traffic equals the formulas in docs/communication.md, and the planner's group counts the same as a real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/stream.h"
#include "tests/comm/ranks.h"

namespace trivet::comm {
namespace {

constexpr int64_t kOddCount = 1001;

struct Views {
  TensorView whole, other, shard;
};

// Runs every operation once; the message goes from rank 0 to rank 1. The views may have no data if the group is a planner's.
void run_all(ProcessGroup& group, const Views& views, Stream& stream) {
  group.all_reduce(views.shard, ReduceOp::Sum, stream);
  group.reduce_scatter(views.whole, views.shard, ReduceOp::Sum, stream);
  group.all_gather(views.shard, views.whole, stream);
  group.broadcast(views.shard, 0, stream);
  group.all_to_all(views.whole, views.other, stream);
  if (group.size() > 1 && group.rank() == 0) group.send(views.shard, 1, stream);
  if (group.rank() == 1) group.receive(views.shard, 0, stream);
  group.barrier(stream);
}

// The number of elements that a rank sends in run_all.
int64_t expected_elements(int rank, int n, int64_t c, int64_t element_bytes) {
  const int64_t all_reduce = 2 * (n - 1) * c * element_bytes / n / element_bytes;
  const int64_t gather_scatter_exchange = 3 * (n - 1) * c;
  const int64_t broadcast = rank == 0 ? (n - 1) * c : 0;
  const int64_t message = rank == 0 && n > 1 ? c : 0;
  return all_reduce + gather_scatter_exchange + broadcast + message;
}

TEST(Traffic, EqualsTheFormulasAndThePlannersGroupAgrees) {
  const auto body = [](World& world) {
    const int n = world.size();
    std::vector<float> whole(kOddCount * n), other(whole.size()), shard(kOddCount);
    const auto stream = make_inline_stream();
    run_all(world.group(), {view(whole), view(other), view(shard)}, *stream);
    const int64_t expected = expected_elements(world.rank(), n, kOddCount, sizeof(float)) * static_cast<int64_t>(sizeof(float));
    EXPECT_EQ(world.group().traffic().bytes_sent, expected);
    EXPECT_EQ(world.group().traffic().operations, 5 + (world.rank() < 2 && n > 1 ? 1 : 0) + 1);  // a message, the barrier

    const auto planned = make_meta_group(world.rank(), n, "world");
    const TensorView no_whole{nullptr, DType::Float32, {kOddCount * n}}, no_shard{nullptr, DType::Float32, {kOddCount}};
    run_all(*planned, {no_whole, no_whole, no_shard}, *stream);
    EXPECT_EQ(planned->traffic().bytes_sent, expected);
    EXPECT_EQ(planned->traffic().operations, world.group().traffic().operations);
    world.close();
  };
  for (Kind kind : {Kind::Threads, Kind::Sockets})
    for (int n : {1, 7, 11}) run_ranks(kind, n, body);  // 1001 = 7 * 11 * 13, so that all_reduce's shares are equal
}

// Rank a sends 10 a + b elements to rank b.
TEST(Traffic, OfAllToAllVIsWhatIsSentToOthers) {
  const auto body = [](World& world) {
    const int n = world.size(), rank = world.rank();
    ExchangeCounts counts;
    int64_t sent = 0, received = 0, to_others = 0;
    for (int peer = 0; peer < n; ++peer) {
      sent += counts.sent.emplace_back(10 * rank + peer);
      received += counts.received.emplace_back(10 * peer + rank);
      if (peer != rank) to_others += counts.sent.back();
    }
    const auto stream = make_inline_stream();
    std::vector<float> in(sent), out(received);
    world.group().all_to_all_v(view(in), view(out), counts, *stream);
    EXPECT_EQ(world.group().traffic().bytes_sent, 4 * to_others);
    EXPECT_EQ(world.group().traffic().operations, 1);
    const auto planned = make_meta_group(rank, n, "world");
    planned->all_to_all_v({nullptr, DType::Float32, {sent}}, {nullptr, DType::Float32, {received}}, counts, *stream);
    EXPECT_EQ(planned->traffic().bytes_sent, 4 * to_others);
    EXPECT_EQ(planned->traffic().operations, 1);
    world.close();
  };
  for (Kind kind : {Kind::Threads, Kind::Sockets})
    for (int n : {1, 2, 5}) run_ranks(kind, n, body);
}

TEST(MetaGroup, MakesSubgroups) {
  const auto group = make_meta_group(5, 8, "world");
  EXPECT_EQ(group->subgroup({0, 2}, "other"), nullptr);
  const auto pair = group->subgroup({1, 5}, "pair");
  EXPECT_EQ(pair->rank(), 1);
  EXPECT_EQ(pair->size(), 2);
  EXPECT_EQ(pair->name(), "pair");
}

TEST(SingleGroup, CopiesAndCountsNoBytes) {
  const auto group = make_single_group("data");
  const auto stream = make_inline_stream();
  std::vector<float> from{1, 2, 3}, to(3);
  group->reduce_scatter(view(from), view(to), ReduceOp::Sum, *stream);
  EXPECT_EQ(to, from);
  from[1] = 5;
  group->all_gather(view(from), view(to), *stream);
  EXPECT_EQ(to, from);
  group->all_reduce(view(to), ReduceOp::Max, *stream);
  EXPECT_EQ(to, from);
  from[2] = 7;
  group->all_to_all_v(view(from), view(to), {{3}, {3}}, *stream);
  EXPECT_EQ(to, from);
  EXPECT_EQ(group->traffic().operations, 4);
  EXPECT_EQ(group->traffic().bytes_sent, 0);
}

TEST(Arguments, ThatAreWrongAreRefusedOnTheCallersThread) {
  const auto group = make_meta_group(1, 3, "data");
  const auto stream = make_inline_stream();
  std::vector<float> four(4), ten(10), twelve(12);
  std::vector<uint8_t> bytes(4);
  EXPECT_THROW(group->all_gather(view(four), view(ten), *stream), std::logic_error);
  EXPECT_THROW(group->reduce_scatter(view(ten), view(four), ReduceOp::Sum, *stream), std::logic_error);
  EXPECT_THROW(group->all_to_all(view(ten), view(ten), *stream), std::logic_error);
  EXPECT_THROW(group->all_reduce(view(bytes), ReduceOp::Sum, *stream), std::logic_error);
  EXPECT_THROW(group->broadcast(view(four), 3, *stream), std::logic_error);
  EXPECT_THROW(group->send(view(four), 1, *stream), std::logic_error);
  EXPECT_THROW(group->subgroup({2, 1}, "pair"), std::logic_error);
  EXPECT_THAT([&] { group->all_gather(view(four), view(ten), *stream); },
              testing::ThrowsMessage<std::logic_error>(
                  "comm: group \"data\" rank 1: all_gather: whole of 10 float32 is not 3 times shard of 4 float32"));
  EXPECT_EQ(group->traffic().operations, 0);  // none of them began
  EXPECT_NO_THROW(group->all_gather(view(four), view(twelve), *stream));
  EXPECT_EQ(group->traffic().operations, 1);
}

TEST(Arguments, OfAllToAllVMustFitTheTensors) {
  const auto group = make_meta_group(1, 3, "data");
  const auto stream = make_inline_stream();
  std::vector<float> four(4), five(5);
  std::vector<int32_t> integers(4);
  const auto expect_refused = [&](ConstTensorView in, TensorView out, const ExchangeCounts& counts, const std::string& why) {
    EXPECT_THAT([&] { group->all_to_all_v(in, out, counts, *stream); },
                testing::ThrowsMessage<std::logic_error>("comm: group \"data\" rank 1: all_to_all_v: " + why));
  };
  const std::string sent = "counts sent must be 3 numbers of at least 0 whose sum is 4, but they are ";
  expect_refused(view(four), view(five), {{1, 1, 1}, {1, 1, 3}}, sent + "1, 1, 1");
  expect_refused(view(four), view(five), {{1, 1, 2, 0}, {1, 1, 3}}, sent + "1, 1, 2, 0");
  expect_refused(view(four), view(five), {{-1, 1, 4}, {1, 1, 3}}, sent + "-1, 1, 4");
  expect_refused(view(four), view(five), {{1, 1, 2}, {1, 1, 2}},
                 "counts received must be 3 numbers of at least 0 whose sum is 5, but they are 1, 1, 2");
  expect_refused(view(four), view(five), {{1, 1, 2}, {1, 2, 2}}, "the rank sends itself 1 elements and receives 2 from itself");
  expect_refused(view(four), view(integers), {{1, 1, 2}, {2, 1, 1}}, "in of float32 and out of int32 differ");
  EXPECT_EQ(group->traffic().operations, 0);
  EXPECT_NO_THROW(group->all_to_all_v(view(four), view(five), {{1, 1, 2}, {2, 1, 2}}, *stream));
}

}  // namespace
}  // namespace trivet::comm
