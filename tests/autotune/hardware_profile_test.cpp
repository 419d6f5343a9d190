// Hardware profiles: their files, and the times of operations that are predicted from them.
#include "autotune/hardware_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "tests/support/temporary_folder.h"

namespace trivet::autotune {
namespace {

using comm::Operation;
using comm::ReduceOp;
using testing::ThrowsMessage;

MeasuredSetup two_ranks() {
  return {.machine = "a machine",
          .ranks = 2,
          .threads = 3,
          .kernels = {{"matmul", "nt", DType::BFloat16, kernels::Bound::Products, {4, 5, 6}, 240, 148, 1.25e-6}},
          .call_seconds = 2e-7,
          .operations = {{Operation::AllReduce, ReduceOp::Sum, DType::Float32, 1000, 2, 1e-5},
                         {Operation::AllReduce, ReduceOp::Sum, DType::Float32, 100000, 2, 1e-4},
                         {Operation::AllGather, ReduceOp::Sum, DType::Float32, 1000, 2, 7e-6}},
          .handover_seconds = 2e-5};
}

class Profiles : public testing::Test {
 protected:
  std::string refusal(const std::string& text) {
    std::ofstream(path_) << text;
    try {
      read_profile(path_);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }
  const test::TemporaryFolder folder_;
  const std::string path_ = folder_.at("profile.json");
};

TEST_F(Profiles, AreReadAsTheyWereWritten) {
  HardwareProfile profile{.version = "1.2", .date = "2026-01-02", .setups = {}};
  profile.merge(two_ranks());
  MeasuredSetup one{.machine = "a machine", .ranks = 1, .threads = 6, .kernels = {}, .operations = {}};
  profile.merge(one);
  write_profile(profile, path_);
  const HardwareProfile read = read_profile(path_);
  EXPECT_EQ(read.version, "1.2");
  EXPECT_EQ(read.date, "2026-01-02");
  ASSERT_EQ(read.setups.size(), 2);
  EXPECT_EQ(read.find(3), nullptr);
  EXPECT_EQ(read.find(1)->threads, 6);
  const MeasuredSetup &setup = *read.find(2), written = two_ranks();
  EXPECT_EQ(setup.machine, written.machine);
  EXPECT_EQ(setup.threads, written.threads);
  EXPECT_EQ(setup.kernels, written.kernels);
  EXPECT_EQ(setup.operations, written.operations);
  EXPECT_EQ(setup.call_seconds, written.call_seconds);
  EXPECT_EQ(setup.handover_seconds, written.handover_seconds);
}

TEST_F(Profiles, KeepWhatANewMeasurementDoesNotHave) {
  HardwareProfile profile;
  profile.merge(two_ranks());
  MeasuredSetup kernels = two_ranks();
  kernels.operations.clear();
  kernels.kernels.front().seconds = 9;
  kernels.handover_seconds = 0;
  profile.merge(kernels);
  ASSERT_EQ(profile.setups.size(), 1);
  EXPECT_EQ(profile.find(2)->kernels.front().seconds, 9);
  EXPECT_EQ(profile.find(2)->operations, two_ranks().operations);
  EXPECT_EQ(profile.find(2)->handover_seconds, two_ranks().handover_seconds);
  kernels.machine = "another";
  EXPECT_THROW(profile.merge(kernels), ConfigError);
}

TEST_F(Profiles, RefuseFilesThatAreNotProfiles) {
  EXPECT_EQ(refusal("{}"), path_ + ": is not a \"trivet hardware profile 2\"; `trivet bench` writes such a file");
  EXPECT_NE(refusal("{").find("is not a valid profile"), std::string::npos);
  const std::string head = R"({"format": "trivet hardware profile 2", "version": "1", "date": "", "setups": [)";
  const std::string setup =
      R"({"machine": "m", "device": "cpu", "ranks": 1, "threads": 1, "call_seconds": 0, "handover_seconds": 0,)";
  const auto refusal_of_product = [&](const std::string& type_sizes_and_figures) {
    return refusal(head + setup + R"("kernels": [["matmul", "nt", )" + type_sizes_and_figures + R"(]], "operations": []}]})");
  };
  const std::string advice = "; `trivet bench` writes such a file";
  EXPECT_EQ(refusal_of_product(R"("float31", "products", [1,1,1,0,0], 1, 1, 1)"),
            path_ + ": \"float31\" is not known" + advice);
  EXPECT_EQ(refusal_of_product(R"("float32", "products", [1,1,1,0,0], 1, 1, -2)"), path_ + ": -2 is not a valid time" + advice);
  EXPECT_EQ(refusal_of_product(R"("float32", "products", [1,1,-1,0,0], 1, 1, 1)"), path_ + ": -1 is not a valid size" + advice);
  EXPECT_EQ(refusal_of_product(R"("float32", "products", [1,1], 1, 1, 1)"),
            path_ + ": [1,1] are not the 5 sizes of a kernel" + advice);
  EXPECT_EQ(refusal_of_product(R"("float32", "products", [1,1,1,0,0], -1, 1, 1)"),
            path_ + ": -1 is not a valid amount of work" + advice);
  EXPECT_EQ(refusal(head + setup + R"("kernels": [], "operations": [["barrier", "sum", "float32", 1, 1e300, 1]]}]})"),
            path_ + ": 1e+300 is not a valid number of ranks or threads" + advice);
  EXPECT_EQ(refusal(std::string(100'000, '[')), path_ + ": is nested deeper than 16 levels; `trivet bench` writes such a file");
  std::filesystem::resize_file(path_, (16 << 20) + 1);
  EXPECT_THAT([&] { read_profile(path_); },
              ThrowsMessage<ConfigError>(path_ + ": has 16777217 bytes; a hardware profile may have at most 16777216; `trivet "
                                                 "bench` writes such a file"));
  std::filesystem::remove(path_);
  EXPECT_THROW(read_profile(path_), ConfigError);
}

TEST_F(Profiles, SayWhatToMeasure) {
  MeasuredSetup setup = two_ranks();
  setup.operations.clear();
  EXPECT_THAT(
      [&] { MeasuredCostModel(setup, "a b.json"); },
      ThrowsMessage<ConfigError>("a b.json: has no comm measured with 2 ranks on this host; run `trivet bench comm --ranks "
                                 "2 --profile 'a b.json'`"));
}

// Times lie on straight lines between logarithms: 1e-5 s at 1e3 bytes and 1e-4 s at 1e5 bytes give 10^-4.5 s at 1e4 bytes.
TEST_F(Profiles, GiveOperationsTimesBetweenThoseMeasured) {
  const MeasuredCostModel costs(two_ranks(), "p.json");
  const auto seconds = [&](Operation operation, int64_t bytes, ReduceOp reduce = ReduceOp::Sum, DType dtype = DType::Float32) {
    return costs.operation_seconds({operation, reduce, dtype, bytes, 2});
  };
  EXPECT_NEAR(seconds(Operation::AllReduce, 1000), 1e-5, 1e-12);
  EXPECT_NEAR(seconds(Operation::AllReduce, 10000), std::pow(10, -4.5), 1e-11);
  EXPECT_NEAR(seconds(Operation::AllReduce, 1), 1e-5, 1e-12);
  EXPECT_NEAR(seconds(Operation::AllReduce, 1000000), 1e-3, 1e-10);
  // An operation that only moves bytes takes as long for every type. A sum that was not measured takes the time of one that
  // was.
  EXPECT_NEAR(seconds(Operation::AllGather, 1000, ReduceOp::Sum, DType::BFloat16), 7e-6, 1e-12);
  EXPECT_NEAR(seconds(Operation::AllReduce, 1000, ReduceOp::TreeSum), 1e-5, 1e-12);
  EXPECT_EQ(seconds(Operation::Receive, 1000), 0);
  EXPECT_EQ(costs.operation_seconds({Operation::AllReduce, ReduceOp::Sum, DType::Float32, 1000, 1}), 0);
}

TEST_F(Profiles, CountWhatWasNotMeasured) {
  const MeasuredCostModel costs(two_ranks(), "p.json");
  const kernels::KernelCall known{.kernel = "matmul",
                                  .variant = "nt",
                                  .dtype = DType::BFloat16,
                                  .sizes = {4, 5, 6},
                                  .bound = kernels::Bound::Products,
                                  .flops = 240,
                                  .bytes = 148};
  EXPECT_NEAR(costs.kernel_seconds(known), 1.25e-6 + 2e-7, 1e-15);
  EXPECT_EQ(costs.unmeasured_share(), 0);
  kernels::KernelCall other = known;
  other.variant = "nn";
  costs.kernel_seconds(other);
  EXPECT_NEAR(costs.unmeasured_share(), 0.5, 1e-12);
}

// Profiles of versions without context ranks lack it. An all-reduce of as many bytes would be a wrong guess.
TEST(MeasuredCosts, DoNotGuessTheExchangeOfContextRanks) {
  MeasuredSetup setup = two_ranks();
  const OperationCall exchange{Operation::AllToAll, ReduceOp::Sum, DType::BFloat16, 1000, 2};
  EXPECT_THAT([&] { MeasuredCostModel(setup, "p.json").operation_seconds(exchange); },
              ThrowsMessage<ConfigError>("p.json: has no all_to_all among 2 ranks; run `trivet bench comm --ranks 2 --profile "
                                         "p.json` again"));
  setup.operations.push_back({Operation::AllToAll, ReduceOp::Sum, DType::Float32, 1000, 2, 3e-6});
  EXPECT_NEAR(MeasuredCostModel(setup, "p.json").operation_seconds(exchange), 3e-6, 1e-15);
}

}  // namespace
}  // namespace trivet::autotune
