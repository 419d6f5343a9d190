// An agent that is stopped can neither end its ranks nor see that its launcher is gone. Its guardian ends them.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <utility>

#include "cli/launch/hosts/agent_channel.h"
#include "cli/launch/hosts/agent_messages.h"
#include "tests/launch/launched_job.h"

namespace trivet::test {
namespace {

using Kind = cli::AgentMessage::Kind;

cli::HostTask task_in(const std::string& folder) {
  cli::HostTask task{.on = {.host = {"far", {0}}, .node_rank = 0, .nodes = 1, .first_rank = 0, .world_size = 1},
                     .directory = folder,
                     .environment = {},
                     .files = {},
                     .job_id = "ab",
                     .secret = std::string(32, 's'),
                     .request = {}};
  task.request.program = {"/bin/sh", "-c", "echo ready; exec sleep 600"};
  task.request.host_timeout_s = 3;
  return task;
}

// As a launcher does it. True once the rank runs.
bool start_rank(cli::AgentChannel& channel, const std::string& folder) {
  bool has_task = false, runs = false;
  const auto tell = [&](const cli::Control& control) { channel.send({Kind::Control, cli::encode(control)}); };
  return becomes_true([&] {
    channel.step();
    if (channel.build() && !std::exchange(has_task, true)) tell({.task = task_in(folder)});
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

TEST(StoppedAgent, ItsGuardianEndsTheRanks) {
  const TemporaryFolder folder;
  const std::string input = folder.at("input");
  ASSERT_EQ(::mkfifo(input.c_str(), 0600), 0);
  Pipe output;
  LaunchedProcess agent({"/bin/sh", "-c", "exec " + kTrivet + " launch-agent < " + input}, {{kMark, folder.path()}},
                        output.writing.number());
  output.writing.reset();
  Descriptor to_agent(::open(input.c_str(), O_WRONLY | O_CLOEXEC));
  cli::AgentChannel channel(cli::AgentChannel::Side::Launcher, output.reading.number(), to_agent.number());
  ASSERT_TRUE(start_rank(channel, folder.path())) << agent.output();
  ::kill(agent.pid(), SIGSTOP);
  const auto left = [&] { return processes_with(kMark, folder.path()); };
  EXPECT_TRUE(becomes_true([&] { return left() == std::vector{agent.pid()}; }));
  ::kill(agent.pid(), SIGCONT);
  to_agent.reset();
  EXPECT_TRUE(becomes_true([&] { return left().empty(); }));
}

}  // namespace
}  // namespace trivet::test
