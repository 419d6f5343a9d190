// Ranks that are started without `trivet launch`, with only RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "comm/handshake.h"
#include "comm/socket.h"
#include "tests/launch/launched_job.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

using ::testing::HasSubstr;

using Variables = LaunchedProcess::Variables;

class Join : public ::testing::Test {
 protected:
  Join() {
    const Descriptor free = comm::listen_on("127.0.0.1", 0);
    port_ = std::to_string(comm::port_of(free));
    fs::create_directories(runtime_);
  }
  LaunchedProcess& start(int rank, int size, const Variables& further = {}, std::vector<std::string> arguments = {}) {
    Variables variables{{"RANK", std::to_string(rank)},
                        {"WORLD_SIZE", std::to_string(size)},
                        {"LOCAL_RANK", std::to_string(rank)},
                        {"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", port_},
                        {"XDG_RUNTIME_DIR", runtime_}};
    for (const auto& [name, value] : further) variables[name] = value;
    arguments.insert(arguments.begin(), kRankProgram);
    ranks_.push_back(std::make_unique<LaunchedProcess>(arguments, variables));
    return *ranks_.back();
  }
  void expect_end(LaunchedProcess& rank, int exit_code, const std::string& text) {
    EXPECT_EQ(rank.wait(), exit_code) << rank.output();
    EXPECT_THAT(rank.output(), HasSubstr(text));
  }
  std::string secret_file(const std::string& name, const std::string& text) {
    const std::string path = folder_.write(name, text);
    ::chmod(path.c_str(), 0600);
    return path;
  }

  std::string port_;
  const TemporaryFolder folder_;
  const fs::path runtime_ = folder_.at("runtime");  // XDG_RUNTIME_DIR of the ranks
  std::vector<std::unique_ptr<LaunchedProcess>> ranks_;
};

TEST_F(Join, WorksWithTheFiveVariablesInAnyOrderOfStart) {
  auto& two = start(2, 3);
  std::this_thread::sleep_for(milliseconds(100));
  auto& zero = start(0, 3);
  auto& one = start(1, 3);
  expect_end(zero, 0, "rank 0 of 3 is connected");
  expect_end(one, 0, "rank 1 of 3 is connected");
  expect_end(two, 0, "rank 2 of 3 is connected");
}

TEST_F(Join, WorksUnderOpenMpisVariables) {
  const auto variables = [&](int rank) {
    return Variables{{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                     {"OMPI_COMM_WORLD_SIZE", "2"},
                     {"MASTER_PORT", port_},
                     {"XDG_RUNTIME_DIR", runtime_}};
  };
  LaunchedProcess zero({kRankProgram}, variables(0)), one({kRankProgram}, variables(1));
  expect_end(zero, 0, "rank 0 of 2 is connected");
  expect_end(one, 0, "rank 1 of 2 is connected");
}

TEST_F(Join, WithoutAGivenSecretUsesTheUsersOwn) {
  auto& zero = start(0, 2);
  auto& one = start(1, 2);
  expect_end(zero, 0, "rank 0 of 2 is connected");
  expect_end(one, 0, "rank 1 of 2 is connected");
  EXPECT_EQ(fs::file_size(runtime_ / "trivet" / "secret"), 32u);
  EXPECT_EQ(fs::status(runtime_ / "trivet").permissions(), fs::perms::owner_all);
}

TEST_F(Join, WithoutASecretIsRefusedOnAnAddressOfANetwork) {
  auto& zero = start(0, 2, {{"MASTER_ADDR", "0.0.0.0"}});
  expect_end(zero, 2, "MASTER_ADDR: 0.0.0.0 is not this machine's loopback address, and there is no secret");
}

// Another program holds the port and speaks the protocol, without the secret.
TEST_F(Join, ASquatterOfThePortCannotEndRanksWithSuccess) {
  const Descriptor door = comm::listen_on("127.0.0.1", std::stoi(port_));
  auto& zero = start(0, 2);
  auto& one = start(1, 2);
  comm::wait_readable(door.number(), steady_clock::now() + milliseconds(20000));
  auto visitor = comm::accept_from(door);
  ASSERT_TRUE(visitor);
  comm::Doorkeeper keeper(steady_clock::now() + milliseconds(20000));
  while (keeper.step(*visitor, comm::Secret(), steady_clock::now()) == comm::Doorkeeper::State::Waiting)
    std::this_thread::sleep_for(milliseconds(1));
  comm::Connection connection(std::move(*visitor), keeper.keys(), {});
  connection.send({comm::FrameKind::Refuse, comm::PayloadWriter().number(-1).number(0).number(0).text("go home").take()});
  connection.flush();
  expect_end(one, 13, "failed the key proof: it does not know this job's secret, so it is not this job's rank 0");
  expect_end(zero, 13, "port " + port_ + " of 127.0.0.1 is held by pid " + std::to_string(::getpid()));
}

TEST_F(Join, IsNotEndedByAStoppedRankOfAnotherJob) {
  const Variables other{{"TRIVET_JOB_ID", "beef"}, {"MASTER_PORT", "1"}};
  auto& stopped = start(1, 2, other, {"--stop-before-join", "1"});
  int status = 0;
  ASSERT_EQ(::waitpid(stopped.pid(), &status, WUNTRACED), stopped.pid());
  ASSERT_TRUE(WIFSTOPPED(status));
  auto& zero = start(0, 2);
  std::this_thread::sleep_for(milliseconds(1500));  // twice as long as it takes to give up a rank of this job
  auto& one = start(1, 2);
  expect_end(zero, 0, "rank 0 of 2 is connected");
  expect_end(one, 0, "rank 1 of 2 is connected");
}

// The process has all the variables of this job; anybody can give them to a process.
TEST_F(Join, IsNotEndedByAStoppedProcessOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can start a process of another user";
  LaunchedProcess stranger(
      {"/usr/bin/setpriv", "--reuid", "65533", "--clear-groups", kRankProgram, "--stop-before-join", "1"},
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port_}});
  int status = 0;
  ASSERT_EQ(::waitpid(stranger.pid(), &status, WUNTRACED), stranger.pid());
  if (!WIFSTOPPED(status)) GTEST_SKIP() << "another user cannot start " << kRankProgram << ": " << stranger.output();
  auto& zero = start(0, 2);
  std::this_thread::sleep_for(milliseconds(1500));  // twice as long as it takes to give up a rank of this job
  auto& one = start(1, 2);
  expect_end(zero, 0, "rank 0 of 2 is connected");
  expect_end(one, 0, "rank 1 of 2 is connected");
}

// A program in between closed the launcher's socket and then opened one of its own, which got the same number.
TEST_F(Join, WritesNothingToASocketThatIsNotTheLaunchers) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Descriptor here(ends[0]), there(ends[1]);
  auto& zero = start(0, 2, {{"TRIVET_LAUNCHER_FD", std::to_string(there.number())}}, {"--steps", "1000000"});
  auto& one = start(1, 2, {}, {"--steps", "1000000"});
  ASSERT_TRUE(zero.prints("is connected", 1)) << zero.output();
  ::kill(one.pid(), SIGKILL);
  expect_end(zero, 10, "lost rank 1");
  char byte = 0;
  EXPECT_EQ(::recv(here.number(), &byte, 1, MSG_DONTWAIT), -1);
}

TEST_F(Join, ListsMissingRanks) {
  auto& zero = start(0, 4, {}, {"--join-ms", "500"});
  auto& two = start(2, 4, {}, {"--join-ms", "500"});
  expect_end(zero, 13, "2 of 4 ranks did not join in 0.5 s: 1,3");
  expect_end(two, 13, "2 of 4 ranks did not join in 0.5 s: 1,3");
}

TEST_F(Join, RefusesASecondClaimantWhileTheFirstTrains) {
  auto& zero = start(0, 2, {}, {"--steps", "100", "--compute-ms", "5"});
  auto& one = start(1, 2, {}, {"--steps", "100", "--compute-ms", "5"});
  ASSERT_TRUE(one.prints("is connected", 1));
  auto& twin = start(1, 2);
  expect_end(twin, 13, "rank 1 is already held by pid " + std::to_string(one.pid()));
  expect_end(zero, 0, "");
  expect_end(one, 0, "");
}

TEST_F(Join, RefusesAnotherSecret) {
  const std::string right = secret_file("right", "the secret of this job"),
                    wrong = secret_file("wrong", "the secret of another job");
  auto& zero = start(0, 2, {{"TRIVET_SECRET_FILE", right}});
  auto& stranger = start(1, 2, {{"TRIVET_SECRET_FILE", wrong}});
  expect_end(stranger, 13, "failed the key proof: it does not know this job's secret");
  auto& keyless = start(1, 2);
  expect_end(keyless, 13, "failed the key proof");
  auto& one = start(1, 2, {{"TRIVET_SECRET_FILE", right}});
  expect_end(one, 0, "rank 1 of 2 is connected");
  expect_end(zero, 0, "");
}

TEST_F(Join, RefusesAnOldEpochAndAnotherJob) {
  auto& zero = start(0, 2, {{"TRIVET_EPOCH", "4"}, {"TRIVET_JOB_ID", "abc"}});
  auto& stale = start(1, 2, {{"TRIVET_EPOCH", "3"}, {"TRIVET_JOB_ID", "abc"}});
  expect_end(stale, 13, "this rank belongs to start 3 of the job, rank 0 to start 4");
  auto& other = start(1, 2, {{"TRIVET_EPOCH", "4"}, {"TRIVET_JOB_ID", "def"}});
  expect_end(other, 13, "belongs to a different job");
  auto& one = start(1, 2, {{"TRIVET_EPOCH", "4"}, {"TRIVET_JOB_ID", "abc"}});
  expect_end(one, 0, "");
  expect_end(zero, 0, "");
}

TEST_F(Join, NamesWhoHoldsThePort) {
  const Descriptor holder = comm::listen_on("127.0.0.1", std::stoi(port_));
  auto& zero = start(0, 2);
  expect_end(zero, 13, "port " + port_ + " of 127.0.0.1 is held by pid " + std::to_string(::getpid()));
}

TEST_F(Join, IsNotDisturbedByGarbage) {
  auto& zero = start(0, 2, {}, {"--steps", "50", "--compute-ms", "5"});
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n and more than a proof may have";
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(comm::connect_to("127.0.0.1", std::stoi(port_), steady_clock::now() + milliseconds(5000)));
    if (i % 2 == 0) ::send(strangers.back().number(), request.data(), request.size(), MSG_NOSIGNAL);
  }
  auto& one = start(1, 2, {}, {"--steps", "50", "--compute-ms", "5"});
  expect_end(one, 0, "rank 1 of 2 is connected");
  expect_end(zero, 0, "(further refusals are not reported)");
}

}  // namespace
}  // namespace trivet::test
