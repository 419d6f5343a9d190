// An agent that is stopped can neither end its ranks nor see that its launcher is gone. Its guardian ends them, and if that is
// stopped, too, the ranks end themselves.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/launch/hosts/agent_channel.h"
#include "cli/launch/hosts/agent_messages.h"
#include "tests/launch/launched_job.h"

namespace trivet::test {
namespace {

using Kind = cli::AgentMessage::Kind;

cli::HostTask task_in(const std::string& folder, const std::vector<std::string>& program) {
  cli::HostTask task{.on = {.host = {"far", {0}}, .node_rank = 0, .nodes = 1, .first_rank = 0, .world_size = 1},
                     .directory = folder,
                     .environment = {},
                     .files = {},
                     .job_id = "ab",
                     .secret = std::string(32, 's'),
                     .request = {}};
  task.request.program = program;
  task.request.host_timeout_s = 3;
  return task;
}

// As a launcher does it. True once the rank runs.
bool start_rank(cli::AgentChannel& channel, const std::string& folder, const std::vector<std::string>& program) {
  bool has_task = false, runs = false;
  const auto tell = [&](const cli::Control& control) { channel.send({Kind::Control, cli::encode(control)}); };
  return becomes_true([&] {
    channel.step();
    if (channel.build() && !std::exchange(has_task, true)) tell({.task = task_in(folder, program)});
    while (const auto message = channel.next()) {
      runs = runs || message->kind == Kind::Output;
      if (message->kind != Kind::Control) continue;
      const cli::Control said = cli::decode_control(message->text);
      if (said.report) tell({.listen = cli::Address{"127.0.0.1", 0}});
      if (said.listening) tell({.start = cli::Address{"127.0.0.1", *said.listening}});
    }
    return runs;
  });
}

// With one rank, which runs.
class StartedAgent {
 public:
  explicit StartedAgent(const std::vector<std::string>& program) {
    const std::string input = folder_.at("input");
    EXPECT_EQ(::mkfifo(input.c_str(), 0600), 0);
    agent_.emplace(std::vector<std::string>{"/bin/sh", "-c", "exec " + kTrivet + " launch-agent < " + input},
                   LaunchedProcess::Variables{{kMark, folder_.path()}}, output_.writing.number());
    output_.writing.reset();
    to_agent_ = Descriptor(::open(input.c_str(), O_WRONLY | O_CLOEXEC));
    channel_.emplace(cli::AgentChannel::Side::Launcher, output_.reading.number(), to_agent_.number());
    EXPECT_TRUE(start_rank(*channel_, folder_.path(), program)) << agent_->output();
  }

  int pid() const { return agent_->pid(); }
  int guardian() const { return agent_->guardian(); }
  bool becomes_left(std::vector<int> pids) const {
    std::ranges::sort(pids);
    return becomes_true([&] {
      std::vector<int> left = processes_with(kMark, folder_.path());
      std::ranges::sort(left);
      return left == pids;
    });
  }
  // The launcher is gone, and the agent may see it.
  bool ends() {
    ::kill(pid(), SIGCONT);
    to_agent_.reset();
    return becomes_left({});
  }

 private:
  const TemporaryFolder folder_;
  Pipe output_;
  std::optional<LaunchedProcess> agent_;
  Descriptor to_agent_;
  std::optional<cli::AgentChannel> channel_;
};

TEST(StoppedAgent, ItsGuardianEndsTheRanks) {
  StartedAgent agent({"/bin/sh", "-c", "echo ready; exec sleep 600"});
  ::kill(agent.pid(), SIGSTOP);
  EXPECT_TRUE(agent.becomes_left({agent.pid()}));
  EXPECT_TRUE(agent.ends());
}

TEST(StoppedAgent, ItsRanksEndThemselvesIfTheGuardianIsStoppedToo) {
  const std::string rank = "'" + kRankProgram + "' --steps 1000000 --compute-ms 20";
  const std::vector<std::string> commands{"exec " + rank, rank + "; exit 0"};  // its parent is the guardian, or a shell
  // All are stopped at once, because an agent whose launcher says nothing ends its ranks.
  std::vector<std::unique_ptr<StartedAgent>> agents;
  std::vector<int> guardians;
  for (const std::string& command : commands) {
    agents.push_back(std::make_unique<StartedAgent>(std::vector<std::string>{"/bin/sh", "-c", command}));
    guardians.push_back(agents.back()->guardian());
    ASSERT_GT(guardians.back(), 0);
    for (const int pid : {guardians.back(), agents.back()->pid()}) ::kill(pid, SIGSTOP);
  }
  for (size_t i = 0; i < agents.size(); ++i) {
    EXPECT_TRUE(agents[i]->becomes_left({agents[i]->pid(), guardians[i]})) << commands[i];
    ::kill(guardians[i], SIGCONT);
    EXPECT_TRUE(agents[i]->ends()) << commands[i];
  }
}

// Somebody who stops a job on this host may let it go on as late as he likes, even in a rank of another job.
TEST(StoppedAgent, RanksOfALocalLauncherDoNotWatchTheirGuardian) {
  const LaunchedProcess job({kTrivet, "launch", "--num_gpus", "1", "/bin/sh", "-c", "echo pid=$TRIVET_GUARDIAN_PID."},
                            {{"TRIVET_GUARDIAN_PID", "1"}});
  EXPECT_TRUE(job.prints("pid=.", 1)) << job.output();
}

}  // namespace
}  // namespace trivet::test
