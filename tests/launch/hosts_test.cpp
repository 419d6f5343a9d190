// Jobs on other hosts. A script stands for ssh: it runs the command that it is given on this host.
#include <gmock/gmock.h>

#include "cli/launch/rank_variables.h"
#include "tests/launch/launched_job.h"

namespace trivet::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// `body` runs in place of "exec sh -c COMMAND"; it finds the host in $1 and the command in $2.
class Elsewhere {
 public:
  explicit Elsewhere(const std::string& body = "exec sh -c \"$2\"", const std::string& hosts = "far slots=2\n") {
    fs::create_directories(folder_ / "bin");
    write("hosts", hosts);
    write("bin/ssh",
          "#!/bin/sh\nwhile test $# -gt 2; do shift; done\nexport SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22'\n" + body + "\n");
    fs::permissions(folder_ / "bin/ssh", fs::perms::owner_all);
  }
  LaunchedProcess::Variables variables() const {
    return {{"PATH", (folder_ / "bin").string() + ":/usr/bin:/bin"}, {kMark, folder_.string()}};
  }
  std::vector<std::string> command(const std::vector<std::string>& flags, const std::vector<std::string>& program) const {
    std::vector<std::string> words{kTrivet, "launch", "--hostfile", (folder_ / "hosts").string()};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), program.begin(), program.end());
    return words;
  }
  std::vector<std::string> shell(const std::string& script, const std::vector<std::string>& flags = {}) const {
    return command(flags, {"/bin/sh", "-c", script});
  }
  // Everything that the job started, on any host.
  std::vector<int> processes() const { return processes_with(kMark, folder_.string()); }
  bool is_all_gone() const {
    return becomes_true([&] { return processes().empty(); }, milliseconds(5000));
  }
  fs::path folder() const { return folder_; }

 private:
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST(OtherHosts, RanksFindTheirPlacesAndPrintUnderTheirNames) {
  const Elsewhere far;
  LaunchedProcess job(far.shell("echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_SIZE on host $NODE_RANK of $CROSS_SIZE"),
                      far.variables());
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_THAT(job.output(), HasSubstr("0 of 2, 0 of 2 on host 0 of 1\n"));
  EXPECT_THAT(job.output(), HasSubstr("[rank 1] 1 of 2, 1 of 2 on host 0 of 1\n"));
  EXPECT_TRUE(far.is_all_gone());
}

TEST(OtherHosts, RanksFormOneJob) {
  const Elsewhere far;
  LaunchedProcess job(far.command({}, {kRankProgram, "--steps", "100000000"}), far.variables());
  EXPECT_TRUE(job.prints("is connected", 2)) << job.output();
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.output();
  EXPECT_TRUE(far.is_all_gone());
}

// What a login shell prints is neither taken for a message nor passed on as the job's output.
TEST(OtherHosts, AGreetingIsNotPartOfTheOutput) {
  const Elsewhere far("echo Welcome to $1; echo the disk is full; exec sh -c \"$2\"");
  LaunchedProcess job(far.shell("test $RANK = 1 || echo done"), far.variables());
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.output(), "done\n");
}

TEST(OtherHosts, StandardOutputAndErrorStayApart) {
  const Elsewhere far;
  Pipe out;
  LaunchedProcess job(far.shell("echo result; echo complaint >&2", {"--num_gpus", "1"}), far.variables(), out.writing.number());
  out.writing.reset();
  EXPECT_EQ(out.read_all(), "result\n");
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.output(), "complaint\n");
}

TEST(OtherHosts, EveryByteThatRanksPrintArrives) {
  const Elsewhere far;
  Pipe out;
  LaunchedProcess job(far.shell("yes 0123456789abcde | head -c 8000000", {"--num_gpus", "1"}), far.variables(),
                      out.writing.number());
  out.writing.reset();
  std::string expected;
  while (expected.size() < 8000000) expected += "0123456789abcde\n";
  EXPECT_EQ(out.read_all(), expected);
  EXPECT_EQ(job.wait(), 0) << job.output();
}

// While nobody reads, ranks wait, as on this host; an end of a rank is noticed all the same.
TEST(OtherHosts, UnreadOutputHidesNoDeath) {
  const Elsewhere far;
  Pipe out;
  LaunchedProcess job(far.shell("if test $RANK = 1; then until test -e $TMPDIR/full; do sleep 0.02; done; exit 7; fi; "
                                "(sleep 1; touch $TMPDIR/full) & yes"),
                      far.variables(), out.writing.number());
  EXPECT_TRUE(job.prints("rank 1 (pid ", 1)) << job.output();
  EXPECT_EQ(job.wait(), 7) << job.output();
  EXPECT_TRUE(far.is_all_gone());
}

TEST(OtherHosts, TheExitCodeIsThatOfTheRankThatFailed) {
  const Elsewhere far;
  LaunchedProcess job(far.shell("test $RANK = 0 || exit 16; sleep 60"), far.variables());
  EXPECT_EQ(job.wait(), 16);
  EXPECT_THAT(job.output(), HasSubstr("trivet launch: far: rank 1 (pid "));
  EXPECT_THAT(job.last_line(),
              testing::MatchesRegex("trivet: error: launch: rank 1 \\(host far, pid [0-9]+\\) ended with exit code 16"));
  EXPECT_TRUE(far.is_all_gone());
}

TEST(OtherHosts, AKilledRankIsNamed) {
  const Elsewhere far;
  LaunchedProcess job(far.shell("test $RANK = 0 || kill -9 $$; sleep 60"), far.variables());
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_THAT(job.last_line(), HasSubstr("rank 1 (host far, pid "));
  EXPECT_THAT(job.last_line(), HasSubstr("was killed by signal 9 (SIGKILL)"));
}

TEST(OtherHosts, ASignalReachesTheRanks) {
  const Elsewhere far;
  LaunchedProcess job(far.shell("trap 'echo saved $RANK; exit 143' TERM; echo ready; while :; do sleep 0.02; done"),
                      far.variables());
  EXPECT_TRUE(job.prints("ready", 2)) << job.output();
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.output();
  EXPECT_THAT(job.output(), HasSubstr("saved 0\n"));
  EXPECT_THAT(job.output(), HasSubstr("[rank 1] saved 1\n"));
  EXPECT_THAT(job.last_line(), HasSubstr("ended by signal 15 (SIGTERM): all 2 ranks ended in time"));
}

TEST(OtherHosts, ASecondSignalKills) {
  const Elsewhere far;
  LaunchedProcess job(far.shell("trap '' TERM; echo ready; while :; do sleep 0.02; done"), far.variables());
  EXPECT_TRUE(job.prints("ready", 2)) << job.output();
  ::kill(job.pid(), SIGTERM);
  std::this_thread::sleep_for(milliseconds(400));
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.output();
  EXPECT_THAT(job.last_line(), HasSubstr("a second signal killed ranks 0,1"));
  EXPECT_TRUE(far.is_all_gone());
}

// Neither the launcher's death nor that of what connects it to the host leaves anything running there.
class Killed : public testing::TestWithParam<const char*> {};

TEST_P(Killed, LeavesNothing) {
  const Elsewhere far("echo $$ > $(dirname $0)/../connection; trap '' TERM; sh -c \"$2\"; exit $?");
  LaunchedProcess job(far.shell("setsid sleep 600 & echo ready; sleep 600"), far.variables());
  EXPECT_TRUE(job.prints("ready", 2)) << job.output();
  const std::string victim = GetParam();
  if (victim == "launcher") ::kill(job.pid(), SIGKILL);
  if (victim == "guardian") ::kill(job.guardian(), SIGKILL);
  if (victim == "agent") {
    for (const int process : far.processes()) {  // the agent, and not the shell that runs it
      std::ifstream line("/proc/" + std::to_string(process) + "/cmdline");
      std::string program, subcommand;
      std::getline(line, program, '\0');
      std::getline(line, subcommand, '\0');
      if (subcommand == "launch-agent") ::kill(process, SIGKILL);
    }
  }
  EXPECT_NE(job.wait(), 0);
  EXPECT_TRUE(far.is_all_gone()) << victim;
  if (victim == "agent") {
    EXPECT_THAT(job.last_line(), HasSubstr("launch: host far (ranks 0 to 1) was lost: "));
  }
}

INSTANTIATE_TEST_SUITE_P(OtherHosts, Killed, testing::Values("launcher", "guardian", "agent"));

// The launcher and its guardian do not hold the time in which they were stopped against the agent, nor does the agent. Whoever
// goes on first finds nothing that the others have said.
class SuspendedJob : public testing::TestWithParam<bool> {};

TEST_P(SuspendedJob, GoesOn) {
  const Elsewhere far;
  LaunchedProcess job(far.shell("echo ready; until test -e $TMPDIR/go; do sleep 0.02; done; echo done $TRIVET_EPOCH.",
                                {"--num_gpus", "1", "--host_timeout", "4", "--max_restarts", "1"}),
                      far.variables());
  EXPECT_TRUE(job.prints("ready", 1)) << job.output();
  std::vector<int> first{job.pid(), job.guardian()}, second;
  for (const int process : far.processes())
    if (std::ranges::find(first, process) == first.end()) second.push_back(process);
  if (GetParam()) std::swap(first, second);
  for (const int process : first) ::kill(process, SIGSTOP);
  for (const int process : second) ::kill(process, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(4500));
  for (const int process : first) ::kill(process, SIGCONT);
  std::this_thread::sleep_for(milliseconds(500));
  for (const int process : second) ::kill(process, SIGCONT);
  std::this_thread::sleep_for(milliseconds(500));
  std::ofstream(job.folder() / "tmp/go");
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_EQ(job.output(), "ready\ndone 0.\n");
}

INSTANTIATE_TEST_SUITE_P(OtherHosts, SuspendedJob, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "AgentFirst" : "LauncherFirst"; });

// The agents end their ranks when nothing is heard from the launcher, but their hosts are not lost.
TEST(OtherHosts, AJobStartsAgainOnTheSameHostsAfterItsLauncherWasStopped) {
  const Elsewhere far;
  LaunchedProcess job(far.shell("echo ready $TRIVET_EPOCH; test $TRIVET_EPOCH = 1 || sleep 600",
                                {"--num_gpus", "1", "--host_timeout", "3", "--max_restarts", "1"}),
                      far.variables());
  EXPECT_TRUE(job.prints("ready 0", 1)) << job.output();
  const std::vector<int> launcher{job.pid(), job.guardian()};
  for (const int process : launcher) ::kill(process, SIGSTOP);
  EXPECT_TRUE(becomes_true([&] { return far.processes().size() == launcher.size(); })) << job.output();
  for (const int process : launcher) ::kill(process, SIGCONT);
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_THAT(job.output(),
              HasSubstr("launch: host far: nothing was heard from the launcher for 3 s, as if it were stopped; all ranks there "
                        "were killed; restart 1 of 1, on 1 host with 1 rank\n"));
  EXPECT_THAT(job.output(), HasSubstr("ready 1\n"));
}

TEST(OtherHosts, AHostThatCannotBeReachedIsNamedWithTheReason) {
  const Elsewhere far("echo 'ssh: connect to host far port 22: No route to host' >&2; exit 255");
  LaunchedProcess job(far.shell("echo started"), far.variables());
  EXPECT_EQ(job.wait(), 13);
  EXPECT_THAT(job.last_line(),
              HasSubstr("launch: 1 of 1 hosts cannot run their ranks; the first is far: ssh: connect to host far "
                        "port 22: No route to host (exit code 255)"));
  EXPECT_THAT(job.output(), HasSubstr("memory free"));
  EXPECT_THAT(job.output(), Not(HasSubstr("started")));
}

TEST(OtherHosts, AHostWithoutTheProgramIsNamed) {
  const Elsewhere far("exec sh -c 'exec /no/such/trivet launch-agent'");
  LaunchedProcess job(far.shell("echo started"), far.variables());
  EXPECT_EQ(job.wait(), 13);
  EXPECT_THAT(job.last_line(), HasSubstr("--copy_program"));
}

TEST(OtherHosts, TheProgramIsCopiedWhereItIsMissing) {
  // The other host has another home, in which nothing is installed.
  const Elsewhere far("export HOME=$(dirname $0)/../home; mkdir -p $HOME; exec sh -c \"$2\"");
  LaunchedProcess job(far.command({"--copy_program"}, {"trivet", "--version"}), far.variables());
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_THAT(job.output(), HasSubstr("[rank 1] trivet "));
  size_t programs = 0;
  for (const auto& entry : fs::recursive_directory_iterator(far.folder() / "home/.cache/trivet"))
    programs += entry.path().filename() == "trivet" ? 1 : 0;
  EXPECT_EQ(programs, 1u);
}

TEST(OtherHosts, AFileThatIsMissingThereIsNamedBeforeAnythingStarts) {
  // The connection takes its time, and then the file is gone: as it would be on another host.
  const Elsewhere far("sleep 0.5; rm -f $(dirname $0)/../config.json; exec sh -c \"$2\"");
  const std::string file = far.folder() / "config.json";
  std::ofstream(file) << "{}";
  LaunchedProcess job(far.command({}, {"/bin/cat", file}), far.variables());
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.last_line(), HasSubstr("config.json: No such file or directory"));
}

TEST(OtherHosts, ARefusalOfTheAgentKeepsItsExitCode) {
  const Elsewhere far;
  LaunchedProcess job(far.command({"--enable_each_rank_log", "/proc/no/such"}, {"/bin/true"}), far.variables());
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.last_line(), HasSubstr("launch: host far: --enable_each_rank_log /proc/no/such: "));
}

TEST(OtherHosts, AnotherBuildIsRefusedBeforeItHearsAnything) {
  const Elsewhere far("printf '\\ntrivet agent 1-abc\\n'; cat > $(dirname $0)/../heard");
  LaunchedProcess job(far.shell("echo started"), far.variables());
  EXPECT_EQ(job.wait(), 20);
  EXPECT_THAT(job.last_line(), HasSubstr("far: runs build 1-abc, and the launcher build "));
  std::ostringstream heard;
  heard << std::ifstream(far.folder() / "heard").rdbuf();
  EXPECT_EQ(heard.str(), "");
}

TEST(OtherHosts, OneHostUnderTwoNamesIsRefused) {
  const Elsewhere far("exec sh -c \"$2\"", "far slots=1\nfurther slots=1\n");
  LaunchedProcess job(far.shell("echo started"), far.variables());
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.last_line(), HasSubstr("further: is the same host as far; name it once"));
}

// The other host's processes and command lines may be seen by its other users.
TEST(OtherHosts, NoSecretIsOnACommandLineOrInAnEnvironment) {
  const Elsewhere far("for word; do echo \"word: $word\"; done >> $(dirname $0)/../words; exec sh -c \"$2\"");
  LaunchedProcess job(far.shell("env | grep TRIVET_SECRET; cat /proc/self/fd/$TRIVET_SECRET_FD | wc -c", {"--num_gpus", "1"}),
                      far.variables());
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_THAT(job.output(), testing::MatchesRegex("TRIVET_SECRET_FD=[0-9]+\n32\n"));
  std::ifstream file(far.folder() / "words");
  std::vector<std::string> words;
  for (std::string line; std::getline(file, line);) words.push_back(line);
  EXPECT_THAT(words, ElementsAre("word: far", "word: exec " + fs::canonical(kTrivet).string() + " launch-agent"));
}

// The agent finds nothing in its environment, so everything comes from the launcher. A variable that is missing in the list
// could be set by .deepspeed_env.
TEST(OtherHosts, TheVariablesThatRanksGetAreThoseOfTheList) {
  const Elsewhere far("exec env -i PATH=/usr/bin:/bin sh -c \"$2\"");
  const fs::path logs = far.folder() / "logs";
  LaunchedProcess job(far.command({"--num_gpus", "1", "--enable_each_rank_log", logs.string()}, {"/usr/bin/env", "-0"}),
                      far.variables());
  EXPECT_EQ(job.wait(), 0) << job.output();
  std::vector<std::string> defaults{"PATH", "PWD", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", kMark};
  for (const auto& [name, value] : environment_of(::getpid())) defaults.push_back(name);  // may be exported
  std::ifstream file(logs / "rank_0.out");
  std::vector<std::string> given;
  for (std::string variable; std::getline(file, variable, '\0');) {
    const std::string name = variable.substr(0, variable.find('='));
    if (std::ranges::find(defaults, name) == defaults.end()) given.push_back(name);
  }
  EXPECT_THAT(given, testing::UnorderedElementsAreArray(cli::kRankVariables));
}

TEST(OtherHosts, ChosenVariablesAreExported) {
  const Elsewhere far("exec env -i PATH=/usr/bin:/bin sh -c \"$2\"");
  auto variables = far.variables();
  variables["NCCL_DEBUG"] = "a 'quoted' value\nin two lines";
  variables["PYTHONPATH"] = "/p";
  variables["OTHER"] = "stays here";
  variables["HOME"] = far.folder();
  std::ofstream(far.folder() / ".deepspeed_env") << "# comment\nFROM_FILE=x=1\n";
  LaunchedProcess job(far.shell("echo \"$NCCL_DEBUG|$PYTHONPATH|$OTHER|$FROM_FILE\"", {"--num_gpus", "1"}), variables);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.output(), "a 'quoted' value\nin two lines|/p||x=1\n");
}

}  // namespace
}  // namespace trivet::test
