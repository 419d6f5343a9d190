// DistributedOptimizer, the callbacks and the timeline.
#include <gmock/gmock.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "hvd.h"
#include "tests/hvd/hvd_ranks.h"
#include "tests/support/temporary_folder.h"

namespace trivet::hvd {
namespace {

using ::testing::HasSubstr;

// Plain SGD on two parameters, whose gradients a test writes by hand.
struct Sgd {
  std::vector<float> weight[2]{{0, 0}, {0}}, gradient[2]{{0, 0}, {0}};
  int steps = 0;

  std::vector<NamedTensor> named() { return {{"a", view(gradient[0])}, {"b", view(gradient[1])}}; }
  void step() {
    ++steps;
    for (int p = 0; p < 2; ++p)
      for (size_t i = 0; i < weight[p].size(); ++i) weight[p][i] -= gradient[p][i];
  }
  // A backward pass adds this.
  void add(float value) {
    for (auto& gradients : gradient)
      for (float& g : gradients) g += value;
  }
  void zero() {
    for (auto& gradients : gradient) std::fill(gradients.begin(), gradients.end(), 0.f);
  }
};

TEST(HvdOptimizer, AveragesGradientsBeforeEachStep) {
  run_ranks(2, [](Communicator& hvd) {
    Sgd sgd;
    DistributedOptimizer optimizer(
        hvd, [&] { sgd.step(); }, sgd.named());
    for (int step = 1; step <= 3; ++step) {
      sgd.zero();
      sgd.add(float(hvd.rank() == 0 ? step : 3 * step));  // the average is 2 step
      if (hvd.rank() == 0) {
        optimizer.gradient_ready(1);
        optimizer.gradient_ready(0);
      } else {
        optimizer.gradient_ready(0);  // the other one is found at step()
      }
      optimizer.step();
    }
    EXPECT_EQ(sgd.weight[0], (std::vector<float>{-12, -12}));
    EXPECT_EQ(sgd.weight[1], (std::vector<float>{-12}));
    EXPECT_EQ(sgd.steps, 3);
  });
}

TEST(HvdOptimizer, CommunicatesAfterTheLastOfSeveralPasses) {
  for (const bool average : {false, true})
    run_ranks(2, [&](Communicator& hvd) {
      Sgd sgd;
      DistributedOptimizer optimizer(hvd, [&] { sgd.step(); }, sgd.named(),
                                     {.backward_passes_per_step = 3, .average_aggregated_gradients = average});
      for (int step = 0; step < 2; ++step) {
        sgd.zero();
        for (int pass = 0; pass < 3; ++pass) {
          sgd.add(float(hvd.rank() + 1 + pass));  // 6 on rank 0, 9 on rank 1
          for (size_t i : {1, 0}) optimizer.gradient_ready(i);
        }
        EXPECT_THAT(
            error_of([&] { optimizer.gradient_ready(0); }),
            HasSubstr("gradient \"a\" was ready 4 times before step(); call step() after 3 backward passes, or increase "
                      "backward_passes_per_step"));
        optimizer.step();
        EXPECT_EQ(sgd.gradient[0][1], average ? 2.5f : 7.5f);
      }
      EXPECT_EQ(sgd.weight[1][0], average ? -5.f : -15.f);
    });
}

TEST(HvdOptimizer, SynchronizeShowsTheAverageBeforeTheStep) {
  run_ranks(2, [](Communicator& hvd) {
    Sgd sgd;
    DistributedOptimizer optimizer(hvd, [&] { sgd.step(); }, sgd.named(), {.op = Sum, .compression = Compression::Fp16});
    sgd.add(float(hvd.rank() + 1));
    optimizer.synchronize();
    EXPECT_EQ(sgd.gradient[1][0], 3);
    for (auto& gradients : sgd.gradient)
      for (float& g : gradients) g = std::min(g, 2.f);  // clipping
    optimizer.step();
    EXPECT_EQ(sgd.weight[0], (std::vector<float>{-2, -2}));
  });
}

TEST(HvdOptimizer, APassBetweenSynchronizeAndStepIsRefused) {
  run_ranks(2, [](Communicator& hvd) {
    Sgd sgd;
    DistributedOptimizer optimizer(hvd, [&] { sgd.step(); }, sgd.named(), {.backward_passes_per_step = 2});
    optimizer.gradient_ready(0);
    optimizer.synchronize();
    EXPECT_THAT(error_of([&] { optimizer.gradient_ready(0); }),
                HasSubstr("gradient \"a\" was ready after synchronize() and before step(); call step() first"));
    EXPECT_THAT(error_of([&] { optimizer.gradient_ready(2); }), HasSubstr("gradient_ready(2): there are 2 gradients"));
    optimizer.step();
    optimizer.gradient_ready(0);
  });
}

// After an error there is no step with gradients that differ between ranks.
TEST(HvdOptimizer, GradientsThatWereNotAveragedAreNotUsed) {
  run_ranks(2, [](Communicator& hvd) {
    Sgd sgd;
    DistributedOptimizer optimizer(hvd, [&] { sgd.step(); }, sgd.named(), {.op = hvd.rank() == 0 ? Sum : Average});
    for (int attempt = 0; attempt < 2; ++attempt)
      EXPECT_THAT(error_of([&] { optimizer.step(); }), HasSubstr("op is sum on rank 0 and average on rank 1"));
    EXPECT_EQ(sgd.steps, 0);
  });
  run_ranks(2, [](Communicator& hvd) {
    Sgd sgd;
    std::vector<float> other{1};
    DistributedOptimizer optimizer(
        hvd, [&] { sgd.step(); }, sgd.named());
    if (hvd.rank() == 0) {
      Handle handle = hvd.allreduce_async_(view(other), {.name = "gradient.a"});
      EXPECT_THAT(error_of([&] { optimizer.gradient_ready(0); }), HasSubstr("in flight on this rank"));
      EXPECT_THAT(error_of([&] { optimizer.step(); }), HasSubstr("in flight on this rank"));
      hvd.barrier();
      hvd.synchronize(handle);
    } else {
      hvd.barrier();
      hvd.allreduce_(view(other), {.name = "gradient.a"});
    }
    EXPECT_EQ(sgd.steps, 0);
  });
}

TEST(HvdOptimizer, PredividesWithoutChangingTheAverage) {
  run_ranks(2, [](Communicator& hvd) {
    Sgd sgd;
    std::vector<float16> half{static_cast<float16>(60000.f)};  // the sum of two does not fit into float16
    DistributedOptimizer optimizer(hvd, [&] { sgd.step(); }, {{"h", view(half)}}, {.gradient_predivide_factor = 2});
    optimizer.step();
    EXPECT_EQ(float(half[0]), 60000.f);
  });
}

TEST(HvdOptimizer, OptionsThatDoNotFitAreRefused) {
  run_ranks(1, [](Communicator& hvd) {
    Sgd sgd;
    const auto error = [&](const DistributedOptimizerOptions& options) {
      return error_of([&] {
        DistributedOptimizer(
            hvd, [] {}, sgd.named(), options);
      });
    };
    EXPECT_THAT(error({.backward_passes_per_step = 0}),
                HasSubstr("backward_passes_per_step: 0 is not accepted; use at least 1"));
    EXPECT_THAT(error({.op = Max}), HasSubstr("op \"max\" is not accepted; use \"average\", \"sum\" or \"adasum\""));
    EXPECT_THAT(error({.compression = static_cast<Compression>(77)}),
                HasSubstr("DistributedOptimizer: compression 77 is not accepted; use \"none\", \"fp16\", \"bf16\""));
    EXPECT_THAT(error_of([&] { DistributedOptimizer(hvd, {}, sgd.named()); }),
                HasSubstr("Usage: hvd: DistributedOptimizer: optimizer_step is empty"));
    EXPECT_THAT(error({.gradient_predivide_factor = 0}), HasSubstr("gradient_predivide_factor: 0 is not accepted"));
    EXPECT_THAT(error({.op = Sum, .gradient_predivide_factor = 2}), HasSubstr("2 needs op \"average\""));
    EXPECT_THAT(error_of([&] {
                  DistributedOptimizer(hvd, [] {}, {{"a", view(sgd.gradient[0])}, {"a", view(sgd.gradient[1])}});
                }),
                HasSubstr("the name \"a\" occurs twice"));
  });
}

TEST(HvdCallbacks, WarmUpRisesFromTheRateOfOneRankToThatOfAll) {
  EXPECT_DOUBLE_EQ(warmup_learning_rate(0.008, 0, 3, 8), 0.001);
  EXPECT_DOUBLE_EQ(warmup_learning_rate(0.008, 1.5, 3, 8), 0.0045);
  EXPECT_DOUBLE_EQ(warmup_learning_rate(0.008, 3, 3, 8), 0.008);
  EXPECT_DOUBLE_EQ(warmup_learning_rate(0.008, 0, 0, 8), 0.008);
  run_ranks(2, [](Communicator& hvd) { EXPECT_EQ(metric_average(hvd, hvd.rank() + 1, "loss"), 1.5); });
}

nlohmann::json read_json(const std::string& path) { return nlohmann::json::parse(std::ifstream(path)); }

// The activities of a row, "(" before what begins, ")" for an end and "!" before marks.
std::string activities(const nlohmann::json& events, const std::string& tensor) {
  int row = -1;
  std::string text;
  for (const auto& event : events) {
    if (event["ph"] == "M" && event["args"]["name"] == tensor) row = event["pid"];
    if (event["pid"] != row || event["ph"] == "M") continue;
    const std::string name = event["name"];
    text += event["ph"] == "B"                     ? "(" + name + " "
            : event["ph"] == "E"                   ? ") "
            : name == "rank 0" || name == "rank 1" ? "! "
                                                   : "? ";
  }
  return text;
}

TEST(HvdTimeline, HasTheNegotiationAndTheStepsOfEachTensor) {
  const test::TemporaryFolder folder;
  const std::string path = folder.at("timeline.json"), later = folder.at("later.json");
  Options options;
  options.timeline = path;
  run_ranks(
      2,
      [&](Communicator& hvd) {
        std::vector<float> a(3), b(4), single(5);
        hvd.grouped_allreduce_({view(a), view(b)}, {.name = "g\"1"});
        hvd.allreduce_(view(single), {.name = "single", .op = Max});
        hvd.barrier();
        hvd.stop_timeline();
        hvd.barrier();
        hvd.start_timeline(later);
        hvd.broadcast_(view(single), 0, {.name = "single"});
      },
      options);
  const nlohmann::json events = read_json(path);
  const std::string fused =
      "(NEGOTIATE_ALLREDUCE ! ! ) (ALLREDUCE (MEMCPY_IN_FUSION_BUFFER ) (AVERAGE ) (MEMCPY_OUT_FUSION_BUFFER ) ) ";
  EXPECT_EQ(activities(events, "g\"1.1of2"), fused);
  EXPECT_EQ(activities(events, "g\"1.2of2"), fused);
  EXPECT_EQ(activities(events, "single"), "(NEGOTIATE_ALLREDUCE ! ! ) (ALLREDUCE (MAX ) ) ");
  EXPECT_EQ(activities(events, "barrier.noname.1"), "(NEGOTIATE_BARRIER ! ! ) (BARRIER ) ");
  double last = 0;
  for (const auto& event : events) {
    if (event["ph"] == "M") continue;
    EXPECT_GE(event["ts"].get<double>(), last);
    last = event["ts"];
  }
  EXPECT_EQ(activities(read_json(later), "single"), "(NEGOTIATE_BROADCAST ! ! ) (BROADCAST ) ");
}

TEST(HvdTimeline, EveryEventIsInTheFileOfARunThatIsKilled) {
  const test::TemporaryFolder folder;
  Options options;
  options.timeline = folder.at("timeline.json");
  run_ranks(
      2,
      [&](Communicator& hvd) {
        hvd.barrier();
        if (hvd.rank() != 0) return;
        std::ifstream file(options.timeline);
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        EXPECT_EQ(activities(nlohmann::json::parse(text + "]"), "barrier.noname.1"), "(NEGOTIATE_BARRIER ! ! ) (BARRIER ) ");
      },
      options);
}

TEST(HvdTimeline, AFullDiskIsSaid) {
  Options options;
  options.timeline = "/dev/full";
  testing::internal::CaptureStderr();
  run_ranks(
      1, [](Communicator& hvd) { hvd.barrier(); }, options);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("HOROVOD_TIMELINE: \"/dev/full\" is not complete: writing has failed"));
}

TEST(HvdTimeline, AFileThatCannotBeWrittenIsNamed) {
  run_ranks(1, [](Communicator& hvd) {
    EXPECT_EQ(error_of([&] { hvd.start_timeline("/proc/none/t.json"); }),
              "Usage: HOROVOD_TIMELINE: \"/proc/none/t.json\" cannot be written");
  });
}

}  // namespace
}  // namespace trivet::hvd
