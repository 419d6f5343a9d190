// Requests as bytes, and the table in which ranks match them.
#include <gmock/gmock.h>

#include <string>

#include "hvd/fusion.h"
#include "hvd/request_stream.h"
#include "hvd/request_table.h"
#include "hvd/stall_check.h"
#include "tests/hvd/hvd_ranks.h"

namespace trivet::hvd {
namespace {

using std::chrono::nanoseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Request allreduce_request(const std::string& name, const Shape& shape = {2, 3}) {
  return {.name = name, .collective = Collective::Allreduce, .dtype = DType::Float32, .shape = shape, .op = ReduceOp::Average};
}

Request unusual_request() {
  return {.name = "a \"quoted\" name",
          .collective = Collective::Alltoall,
          .dtype = DType::Float16,
          .shape = {5, 0, 7},
          .op = ReduceOp::Adasum,
          .compression = Compression::Bf16,
          .prescale_factor = 0.25,
          .postscale_factor = -3,
          .root = 4,
          .splits = {1, 0, 4}};
}

TEST(HvdRequest, EveryFieldComesBack) {
  EXPECT_EQ(decode(encode(unusual_request())), unusual_request());
  EXPECT_EQ(decode(encode(Request{.name = "s", .shape = Shape{}})), (Request{.name = "s", .shape = Shape{}}));
}

TEST(HvdRequest, BytesOfAnotherBuildAreRefused) {
  const std::string bytes = encode(unusual_request());
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THAT(error_of([&] { decode(bytes.substr(0, length)); }), HasSubstr("VersionSkew: hvd: a rank has sent")) << length;
  EXPECT_THAT(error_of([&] { decode(bytes + "x"); }), HasSubstr("VersionSkew"));
  for (size_t at : {4 + unusual_request().name.size(), 5 + unusual_request().name.size(), 6 + unusual_request().name.size()}) {
    std::string changed = bytes;
    changed[at] = 99;
    EXPECT_THAT(error_of([&] { decode(changed); }), HasSubstr("VersionSkew")) << at;
  }
  Request negative = unusual_request();
  negative.splits[0] = -1;
  EXPECT_THAT(error_of([&] { decode(encode(negative)); }), HasSubstr("VersionSkew"));
  Request long_name = unusual_request();
  long_name.name.assign(kMaxNameBytes + 1, 'n');
  EXPECT_THAT(error_of([&] { decode(encode(long_name)); }), HasSubstr("VersionSkew"));
}

TEST(HvdRequestStream, ARequestThatIsRememberedIsANumber) {
  RequestWriter writer(2);
  RequestReader reader(2);
  const auto send = [&](const Request& request) {
    std::string message;
    writer.write(request, message);
    const auto read = reader.read(message);
    EXPECT_EQ(read, std::vector<Request>{request});
    return message.size();
  };
  const size_t whole = send(allreduce_request("a"));
  EXPECT_GT(whole, 4u);
  EXPECT_EQ(send(allreduce_request("a")), 4u);
  EXPECT_EQ(send(allreduce_request("b")), whole);
  EXPECT_EQ(send(allreduce_request("a")), 4u);
  EXPECT_EQ(send(allreduce_request("c")), whole);  // takes the slot of "a", which was filled first
  EXPECT_EQ(send(allreduce_request("b")), 4u);
  EXPECT_EQ(send(allreduce_request("a")), whole);
  EXPECT_EQ(send(allreduce_request("b")), whole);
}

TEST(HvdRequestStream, WithoutCapacityNothingIsRemembered) {
  RequestWriter writer(0);
  RequestReader reader(0);
  std::string message;
  writer.write(allreduce_request("a"), message);
  writer.write(allreduce_request("a"), message);
  EXPECT_THAT(reader.read(message), ElementsAre(allreduce_request("a"), allreduce_request("a")));
}

TEST(HvdRequestStream, ANumberThatNothingHasIsRefused) {
  RequestReader reader(2);
  const uint32_t slot = 1, outside = 2;
  EXPECT_THAT(error_of([&] { reader.read({reinterpret_cast<const char*>(&slot), 4}); }), HasSubstr("VersionSkew"));
  EXPECT_THAT(error_of([&] { reader.read({reinterpret_cast<const char*>(&outside), 4}); }), HasSubstr("VersionSkew"));
}

std::vector<std::string> names(const std::vector<Agreed>& ready) {
  std::vector<std::string> list;
  for (const Agreed& agreed : ready) list.push_back(agreed.name);
  return list;
}

TEST(HvdRequestTable, WhatAllHaveSubmittedIsReadyInTheOrderOfFirstRequests) {
  RequestTable table({0, 1});
  EXPECT_TRUE(table.add(0, allreduce_request("z"), nanoseconds(1)));
  EXPECT_TRUE(table.add(0, allreduce_request("a"), nanoseconds(2)));
  EXPECT_TRUE(table.add(0, allreduce_request("m"), nanoseconds(3)));
  EXPECT_TRUE(table.take_ready().empty());
  EXPECT_FALSE(table.add(1, allreduce_request("a"), nanoseconds(4)));
  table.add(1, allreduce_request("z"), nanoseconds(5));
  const auto ready = table.take_ready();
  EXPECT_THAT(names(ready), ElementsAre("z", "a"));
  EXPECT_EQ(ready[0].problem, "");
  EXPECT_TRUE(table.take_ready().empty());
  ASSERT_EQ(table.waiting().size(), 1u);
  EXPECT_EQ(table.waiting()[0].name, "m");
  EXPECT_EQ(table.waiting()[0].since, nanoseconds(3));
  EXPECT_THAT(table.waiting()[0].missing, ElementsAre(1));
}

TEST(HvdRequestTable, RanksThatHaveJoinedOrLeftAreNotWaitedFor) {
  RequestTable table({3, 5, 8});
  table.add(0, allreduce_request("a"), nanoseconds(0));
  table.set_joined(1);
  EXPECT_TRUE(table.take_ready().empty());
  EXPECT_THAT(table.waiting()[0].missing, ElementsAre(8));
  table.set_left(2);
  const auto ready = table.take_ready();
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].problem, "hvd: \"a\": rank 8 called shutdown() without submitting it");
  EXPECT_FALSE(ready[0].by_rank[1].has_value());
  table.end_join();
  for (int rank : {0, 1, 2}) {
    table.add(rank, allreduce_request("after " + std::to_string(rank)), nanoseconds(0));
    EXPECT_TRUE(table.take_ready().empty()) << rank;
  }
  EXPECT_THAT(table.waiting()[0].missing, ElementsAre(5, 8));
  EXPECT_THAT(table.waiting()[1].missing, ElementsAre(3, 8));
}

TEST(HvdRequestTable, ARequestForAnotherNumberOfRanksIsRefused) {
  RequestTable table({0, 1});
  Request request = allreduce_request("x");
  request.root = 2;
  EXPECT_THAT(error_of([&] { table.add(0, request, nanoseconds(0)); }), HasSubstr("VersionSkew"));
  request.root = -1;
  EXPECT_THAT(error_of([&] { table.add(0, request, nanoseconds(0)); }), HasSubstr("VersionSkew"));
  request.root = 1;
  request.collective = Collective::Alltoall;
  request.splits = {1, 1, 1};
  EXPECT_THAT(error_of([&] { table.add(0, request, nanoseconds(0)); }), HasSubstr("VersionSkew"));
  request.splits = {1, 1};
  EXPECT_EQ(error_of([&] { table.add(0, request, nanoseconds(0)); }), "");
}

std::string disagreement(const std::function<void(Request&)>& change_rank_5, Request request = allreduce_request("w")) {
  RequestTable table({3, 5, 8});
  table.add(0, request, nanoseconds(0));
  table.add(2, request, nanoseconds(0));
  change_rank_5(request);
  table.add(1, request, nanoseconds(0));
  return table.take_ready().at(0).problem;
}

TEST(HvdRequestTable, ADisagreementSaysWhatDiffersAndWhere) {
  EXPECT_EQ(
      disagreement([](Request& r) {
        r.shape = {3, 2};
      }),
      "hvd: allreduce of \"w\": shape is [2, 3] on ranks 3, 8 and [3, 2] on rank 5; all ranks must submit the same under one "
      "name");
  EXPECT_THAT(disagreement([](Request& r) { r.dtype = DType::Float64; }),
              HasSubstr("dtype is float32 on ranks 3, 8 and float64 on rank 5"));
  EXPECT_THAT(disagreement([](Request& r) { r.collective = Collective::Broadcast; }),
              HasSubstr("the operation is allreduce on ranks 3, 8 and broadcast on rank 5"));
  EXPECT_THAT(disagreement([](Request& r) { r.op = ReduceOp::Sum; }),
              HasSubstr("op is average on ranks 3, 8 and sum on rank 5"));
  EXPECT_THAT(disagreement([](Request& r) { r.compression = Compression::Fp16; }),
              HasSubstr("compression is none on ranks 3, 8 and fp16 on rank 5"));
  EXPECT_THAT(disagreement([](Request& r) { r.prescale_factor = 2; }),
              HasSubstr("the scale is 1 before and 1 after on ranks 3, 8 and 2 before and 1 after on rank 5"));
  EXPECT_THAT(disagreement([](Request& r) { r.postscale_factor = 2; }), HasSubstr("1 before and 2 after on rank 5"));
  EXPECT_THAT(disagreement([](Request& r) { r.root = 2; }), HasSubstr("is 0 on ranks 3, 8 and 2 on rank 5"));
  EXPECT_EQ(disagreement([](Request&) {}), "");
}

TEST(HvdRequestTable, NumbersOfRowsMayDifferWhereRowsAreGathered) {
  for (Collective collective : {Collective::Allgather, Collective::Alltoall}) {
    Request request = allreduce_request("w");
    request.collective = collective;
    request.splits = {1, 1, 0};
    EXPECT_EQ(disagreement([](Request& r) { r.shape = {9, 3}; }, request), "");
    EXPECT_THAT(disagreement(
                    [](Request& r) {
                      r.shape = {2, 4};
                    },
                    request),
                HasSubstr("shape is [rows, 3] on ranks 3, 8 and [rows, 4] on rank 5"));
    EXPECT_THAT(disagreement([](Request& r) { r.shape = {2}; }, request), HasSubstr("and [rows] on rank 5"));
  }
}

std::string problem_with_rank_5_joined(Collective collective, int root) {
  RequestTable table({3, 5, 8});
  Request request = allreduce_request("w");
  request.collective = collective;
  request.root = root;
  request.splits = {1, 1, 0};
  table.add(0, request, nanoseconds(0));
  table.add(2, request, nanoseconds(0));
  table.set_joined(1);
  return table.take_ready().at(0).problem;
}

TEST(HvdRequestTable, AJoinedRankHasNoDataThatOthersNeed) {
  EXPECT_EQ(problem_with_rank_5_joined(Collective::Broadcast, 1),
            "hvd: broadcast of \"w\": its root, rank 5, has called join()");
  EXPECT_EQ(problem_with_rank_5_joined(Collective::Broadcast, 0), "");
  EXPECT_EQ(problem_with_rank_5_joined(Collective::Alltoall, 0),
            "hvd: alltoall of \"w\": rank 5 called join(), and alltoall needs rows from all ranks");
  EXPECT_EQ(problem_with_rank_5_joined(Collective::Reducescatter, 0), "");
}

Agreed agreed(const std::string& name, int64_t elements, ReduceOp op = ReduceOp::Sum,
              Collective collective = Collective::Allreduce) {
  Request request{.name = name, .collective = collective, .dtype = DType::Float32, .shape = {elements}, .op = op};
  return {.name = name, .by_rank = {request}};
}

TEST(HvdFusion, FillsBatchesUpToTheThreshold) {
  const std::vector<Agreed> ready{agreed("a", 2), agreed("b", 2), agreed("c", 1), agreed("d", 9), agreed("e", 1)};
  EXPECT_THAT(fuse(ready, 16), ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3), ElementsAre(4)));
  EXPECT_THAT(fuse(ready, 1 << 20), ElementsAre(ElementsAre(0, 1, 2, 3, 4)));
  EXPECT_THAT(fuse(ready, 0), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3), ElementsAre(4)));
}

TEST(HvdFusion, PutsOnlyLikeWithLike) {
  std::vector<Agreed> ready{agreed("a", 1),
                            agreed("b", 1, ReduceOp::Max),
                            agreed("c", 1, ReduceOp::Average),
                            agreed("d", 1),
                            agreed("e", 1, ReduceOp::Sum, Collective::Allgather),
                            agreed("f", 1, ReduceOp::Max),
                            agreed("g", 1)};
  ready[3].by_rank[0]->compression = Compression::Fp16;
  ready[6].problem = "ranks disagree";
  EXPECT_THAT(fuse(ready, 1 << 20),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 5), ElementsAre(3), ElementsAre(4), ElementsAre(6)));
}

TEST(HvdStallCheck, WarnsOnceOfWhatIsMissingTooLong) {
  StallCheck check(std::chrono::seconds(60), std::chrono::seconds(90));
  const std::vector<Waiting> waiting{{"old", Collective::Allreduce, {1, 3}, std::chrono::seconds(0)},
                                     {"new", Collective::Allgather, {2}, std::chrono::seconds(30)}};
  EXPECT_EQ(check.warning(waiting, std::chrono::seconds(59)), "");
  EXPECT_EQ(
      check.warning(waiting, std::chrono::seconds(60)),
      "hvd: some ranks have submitted tensors that others have not submitted for 60 s, and wait for them: allreduce of \"old\" "
      "(missing: ranks 1, 3); all ranks must run the same operations");
  EXPECT_EQ(check.warning(waiting, std::chrono::seconds(61)), "");
  EXPECT_THAT(check.warning(waiting, std::chrono::seconds(90)), HasSubstr("allgather of \"new\" (missing: rank 2)"));
  EXPECT_FALSE(check.failed(waiting, std::chrono::seconds(89)));
  EXPECT_TRUE(check.failed(waiting, std::chrono::seconds(90)));
  StallCheck never({}, {});
  EXPECT_EQ(never.warning(waiting, std::chrono::hours(1)), "");
  EXPECT_FALSE(never.failed(waiting, std::chrono::hours(1)));
}

TEST(HvdStallCheck, NamesTheFirstTensorsAndCountsTheRest) {
  StallCheck check(std::chrono::seconds(1), {});
  std::vector<Waiting> waiting;
  for (int i = 0; i < 13; ++i) waiting.push_back({"t" + std::to_string(i), Collective::Allreduce, {1}, {}});
  const std::string line = check.warning(waiting, std::chrono::seconds(2));
  EXPECT_THAT(line, HasSubstr("\"t9\" (missing: rank 1) and 3 more;"));
  EXPECT_THAT(line, ::testing::Not(HasSubstr("t10")));
}

}  // namespace
}  // namespace trivet::hvd
