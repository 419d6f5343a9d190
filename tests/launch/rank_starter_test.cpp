// A job whose ranks are not started as processes of this host is watched like any other.
#include "cli/launch/rank_starter.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/launch/job.h"
#include "cli/launch/program.h"

namespace trivet::cli {
namespace {

// Stands for a program that runs a rank on another host: prints where, and ends with the rank's exit code.
class ElsewhereStarter final : public RankStarter {
 public:
  pid_t start(const RankLayout& rank, const Relay::Streams& streams) override {
    const std::string script = "echo rank $0 runs on $1 >&2; test $0 = 1 && exit 7; sleep 60";
    return cli::start({.file = "/bin/sh",
                       .arguments = {"sh", "-c", script, std::to_string(rank.rank), rank.host},
                       .environment = {{"PATH", "/usr/bin:/bin"}},
                       .output = streams.output.number(),
                       .error = streams.error.number()});
  }
};

[[noreturn]] void run_elsewhere() {
  LaunchRequest request;
  request.quiet = true;
  request.shutdown_timeout_s = 1;
  request.program = {"no-such-program"};
  const std::vector<RankLayout> ranks{{.rank = 0, .host = "a"}, {.rank = 1, .host = "b"}};
  const JobOutcome outcome = run_ranks(request, ranks, {}, [](const StartedJob& job) -> std::unique_ptr<RankStarter> {
    if (job.job_id.empty() || job.link < 0) ::_exit(100);
    return std::make_unique<ElsewhereStarter>();
  });
  std::fprintf(stderr, "%s\n", outcome.text.c_str());
  ::_exit(outcome.exit_code);
}

TEST(RankStarter, MayStartRanksInAnyWay) {
  EXPECT_EXIT(run_elsewhere(), testing::ExitedWithCode(7),
              "(.|\n)*rank 1 runs on b(.|\n)*rank 1 \\(pid [0-9]+\\) ended with exit code 7");
}

}  // namespace
}  // namespace trivet::cli
