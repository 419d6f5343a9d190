// The parts of a launch on several hosts, without a process.
#include <gmock/gmock.h>
#include <unistd.h>

#include "cli/launch/hosts/agent_channel.h"
#include "cli/launch/hosts/agent_messages.h"
#include "cli/launch/hosts/exported_environment.h"
#include "cli/launch/hosts/other_launchers.h"
#include "cli/launch/hosts/preflight.h"
#include "cli/launch/hosts/remote_command.h"
#include "cli/launch/rank_variables.h"
#include "comm/member.h"
#include "core/error.h"
#include "core/shell_words.h"
#include "tests/launch/launched_job.h"

namespace trivet::cli {
namespace {

using test::Pipe;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using KindOfMessage = AgentMessage::Kind;

std::string written_by(AgentChannel& channel, const Pipe& pipe) {
  channel.step();
  std::string bytes(1 << 16, '\0');
  const ssize_t got = ::read(pipe.reading.number(), bytes.data(), bytes.size());
  return bytes.substr(0, got > 0 ? static_cast<size_t>(got) : 0);
}

TEST(AgentChannel, CarriesMessagesByteForByteHoweverTheyAreCut) {
  Pipe nothing, to_launcher;
  AgentChannel agent(AgentChannel::Side::Agent, nothing.reading.number(), to_launcher.writing.number());
  const std::string binary("\0\n\xff\ntrivet agent 1\n", 19);
  agent.send({KindOfMessage::Control, "{}"});
  agent.send({KindOfMessage::Output, binary});
  agent.send({KindOfMessage::Error, ""});
  const std::string bytes = "Welcome!\ntrivet agen" + written_by(agent, to_launcher);
  for (const size_t cut : {size_t{1}, size_t{7}, bytes.size()}) {
    Pipe arriving;
    AgentChannel launcher(AgentChannel::Side::Launcher, arriving.reading.number(), nothing.writing.number());
    std::vector<std::string> texts;
    std::vector<KindOfMessage> kinds;
    for (size_t at = 0; at < bytes.size(); at += cut) {
      const std::string part = bytes.substr(at, cut);
      ASSERT_EQ(::write(arriving.writing.number(), part.data(), part.size()), static_cast<ssize_t>(part.size()));
      launcher.step();
      while (const auto message = launcher.next()) {
        texts.push_back(message->text);
        kinds.push_back(message->kind);
      }
    }
    EXPECT_THAT(texts, ElementsAre("{}", binary, ""));
    EXPECT_THAT(kinds, ElementsAre(KindOfMessage::Control, KindOfMessage::Output, KindOfMessage::Error));
    EXPECT_EQ(launcher.preamble(), "Welcome!\ntrivet agen");
    EXPECT_EQ(launcher.build(), comm::build_digest());
    EXPECT_FALSE(launcher.has_ended());
    arriving.writing.reset();
    launcher.step();
    EXPECT_TRUE(launcher.has_ended());
  }
}

TEST(AgentChannel, RefusesWhatIsNoMessage) {
  for (const std::string& bytes :
       {std::string("\0\0\0\0\0", 5), std::string("\0\0\0\0\5", 5), std::string("\xff\xff\xff\xff\1", 5)}) {
    Pipe arriving, nothing;
    AgentChannel launcher(AgentChannel::Side::Launcher, arriving.reading.number(), nothing.writing.number());
    const std::string all = std::string(kGreeting) + "1-ab\n" + bytes;
    ASSERT_EQ(::write(arriving.writing.number(), all.data(), all.size()), static_cast<ssize_t>(all.size()));
    launcher.step();
    EXPECT_THROW(launcher.next(), CommError);
  }
}

TEST(AgentMessages, ArriveAsTheyWereSent) {
  HostTask task{.on = {{"b", {1, 3}}, 1, 2, 4, 6},
                .directory = "/a\xff dir",
                .environment = {{"NAME", "va\nlue"}},
                .files = {"config.json"},
                .one_output = true,
                .job_id = "12ab",
                .secret = std::string("\0\1secret", 8),
                .request = {}};
  task.request.program = {"trivet", "", "--set", "x='y'"};
  task.request.bind_cores = true;
  task.on.host.slots_are_chosen = true;
  task.request.core_list = "0-3";
  task.request.log_folder = "logs";
  task.request.save_pid = true;
  task.request.shutdown_timeout_s = 7;
  task.request.host_timeout_s = 9;
  task.request.launch_id = "34cd";
  task.request.quiet = true;
  const auto arrived = decode_control(encode({.task = task})).task;
  ASSERT_TRUE(arrived);
  EXPECT_EQ(arrived->on.host.name, "b");
  EXPECT_THAT(arrived->on.host.slots, ElementsAre(1, 3));
  EXPECT_TRUE(arrived->on.host.slots_are_chosen);
  EXPECT_EQ(arrived->on.node_rank, 1);
  EXPECT_EQ(arrived->on.nodes, 2);
  EXPECT_EQ(arrived->on.first_rank, 4);
  EXPECT_EQ(arrived->on.world_size, 6);
  EXPECT_EQ(arrived->directory, task.directory);
  EXPECT_EQ(arrived->environment, task.environment);
  EXPECT_EQ(arrived->files, task.files);
  EXPECT_TRUE(arrived->one_output);
  EXPECT_EQ(arrived->job_id, task.job_id);
  EXPECT_EQ(arrived->secret, task.secret);
  EXPECT_EQ(arrived->request.program, task.request.program);
  EXPECT_TRUE(arrived->request.bind_cores);
  EXPECT_EQ(arrived->request.core_list, "0-3");
  EXPECT_EQ(arrived->request.log_folder, "logs");
  EXPECT_TRUE(arrived->request.save_pid);
  EXPECT_EQ(arrived->request.shutdown_timeout_s, 7);
  EXPECT_EQ(arrived->request.host_timeout_s, 9);
  EXPECT_EQ(arrived->request.launch_id, "34cd");
  EXPECT_TRUE(arrived->request.quiet);

  const HostReport report{"b\xff", "boot", {"a", "b"}, "10.0.0.2", "10.0.0.1", 8, int64_t{1} << 40, 7, 1.5};
  const auto told = decode_control(encode({.report = report})).report;
  ASSERT_TRUE(told);
  EXPECT_EQ(told->host_name, "b\xff");
  EXPECT_EQ(told->boot_id, "boot");
  EXPECT_THAT(told->problems, ElementsAre("a", "b"));
  EXPECT_EQ(told->address, "10.0.0.2");
  EXPECT_EQ(told->address_of_launcher, "10.0.0.1");
  EXPECT_EQ(told->cores, 8);
  EXPECT_EQ(told->memory_bytes, int64_t{1} << 40);
  EXPECT_EQ(told->disk_bytes, 7);
  EXPECT_EQ(told->time, 1.5);

  for (const char* open : {"[", "{\"a\":", "[[],"})
    for (const char* key : {"", "{\"order\":", "{\"task\":"}) {
      std::string deep = key;
      for (int i = 0; i < 500'000; ++i) deep += open;
      EXPECT_THROW(decode_control(deep), CommError) << key << open;
    }

  EXPECT_EQ(decode_control(encode({.listen = Address{"fd00::1", 1}})).listen->host, "fd00::1");
  EXPECT_EQ(decode_control(encode({.reach = Address{"x", 2}})).reach->port, 2);
  EXPECT_EQ(decode_control(encode({.start = Address{"x", 3}})).start->port, 3);
  EXPECT_EQ(decode_control(encode({.order = 0})).order, 0);
  EXPECT_THAT(*decode_control(encode({.printed = std::array<int64_t, 2>{1 << 20, 2}})).printed, ElementsAre(1 << 20, 2));
  EXPECT_TRUE(decode_control(encode({.alive = true})).alive);
  EXPECT_EQ(decode_control(encode({.listening = 29500})).listening, 29500);
  EXPECT_EQ(decode_control(encode({.reached = "no"})).reached, "no");
  EXPECT_EQ(decode_control(encode({.failed = "why"})).failed, "why");
  EXPECT_EQ(decode_control(encode({.ended = JobOutcome{9, "text"}})).ended->exit_code, 9);
  EXPECT_EQ(decode_control(encode({.ended = JobOutcome{9, "text"}})).ended->text, "text");
}

TEST(AgentMessages, RefuseWhatCannotBeRead) {
  for (const char* text : {"", "{", "{\"task\":{}}", "{\"order\":\"x\"}", "{\"failed\":\"zz\"}", "{\"order\":9.5}",
                           "{\"listening\":8589934593}", "{\"printed\":[18446744073709551615,0]}", "{\"printed\":[1e300,0]}"})
    EXPECT_THROW(decode_control(text), CommError) << text;
}

TEST(RemoteCommand, QuotesEveryCharacterOfAShell) {
  const std::string nasty = "a 'b' \"c\" $HOME `x` \\ \n *";
  const std::string command = "printf %s " + quoted(nasty);
  FILE* shell = ::popen(command.c_str(), "r");
  std::string printed(100, '\0');
  printed.resize(std::fread(printed.data(), 1, printed.size(), shell));
  ::pclose(shell);
  EXPECT_EQ(printed, nasty);
}

TEST(RemoteCommand, SplitsArgumentsAtUnquotedSpaces) {
  EXPECT_THAT(words_of("  -o 'Proxy Command' a\"b c\"d '' \t-x"), ElementsAre("-o", "Proxy Command", "ab cd", "", "-x"));
  EXPECT_THROW(words_of("-o 'x"), ConfigError);
}

TEST(RemoteCommand, PassesPortAndArgumentsToSsh) {
  LaunchRequest request;
  request.ssh_port = 2222;
  request.launcher_arguments = "-F 'my config'";
  const auto words = ssh_command(request, "b", "exec x");
  EXPECT_EQ(words[0], "ssh");
  EXPECT_THAT(words, testing::IsSupersetOf({"-p", "2222", "-F", "my config", "BatchMode=yes"}));
  EXPECT_EQ(words[words.size() - 2], "b");
  EXPECT_EQ(words.back(), "exec x");
}

TEST(ExportedEnvironment, HasNoVariableOfOneProcess) {
  const comm::Environment all{{"NCCL_X", "1"},
                              {"UCX_TLS", "2"},
                              {"OMP_NUM_THREADS", "3"},
                              {"TRIVET_CUBLAS_TUNE", "4"},
                              {"TRIVET_SECRET_FD", "5"},
                              {"TRIVET_SECRET_FILE", "5"},
                              {"TRIVET_LISTEN_FD", "5"},
                              {"TRIVET_LAUNCHER_FD", "5"},
                              {"TRIVET_JOB_ID", "5"},
                              {"TRIVET_EPOCH", "5"},
                              {"PATH", "6"},
                              {"HOME", "/no/such/folder"}};
  EXPECT_EQ(exported_environment(all),
            (comm::Environment{{"NCCL_X", "1"}, {"UCX_TLS", "2"}, {"OMP_NUM_THREADS", "3"}, {"TRIVET_CUBLAS_TUNE", "4"}}));
}

TEST(ExportedEnvironment, NamesAFileThatIsNotThere) {
  EXPECT_THAT(
      [] {
        exported_environment({{"HOME", "/no/such/folder"}, {"DS_ENV_FILE", "no-such-file"}});
      },
      testing::ThrowsMessage<ConfigError>(HasSubstr("DS_ENV_FILE=no-such-file: there is no such file")));
}

TEST(ExportedEnvironment, NamesTheLineThatIsWrong) {
  for (const char* wrong :
       {"A\n",      "=1\n",    "2A=1\n",   "A B=1\n",       "export A\n", "export\n",         "A+=1\n",
        "A='x\n",   "A=\"x\n", "A='x'y\n", "A=$HOME/x\n",   "A=x:${B}\n", "A=\"$B\"\n",       "A=$(id)\n",
        "A=`id`\n", "A=1$2\n", "OK=2\n",   "export OK=1\n", "RANK=5\n",   "WORLD_SIZE = 9\n", "export MASTER_PORT=1\n"}) {
    try {
      parse_environment_file(std::string("OK=1\n") + wrong, "f");
      ADD_FAILURE() << wrong;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("f:2: "));
    }
  }
}

TEST(ExportedEnvironment, RefusesSeveralVariablesInOneLine) {
  for (const std::string line : {"export A=1 B=2", "export A = 1\tB", "export A=1 B # both"})
    EXPECT_THAT([&] { parse_environment_file("OK=1\n" + line, "f"); },
                testing::ThrowsMessage<ConfigError>(
                    AllOf(HasSubstr("f:2: "), HasSubstr("is not accepted: its value has a blank, at which a shell "
                                                        "would end it; give each variable a line of its own"))))
        << line;
  EXPECT_THAT([] { parse_environment_file("export A='1' B=2", "f"); },
              testing::ThrowsMessage<ConfigError>(HasSubstr("and each variable in a line of its own")));
}

TEST(ExportedEnvironment, RefusesWhatTheLauncherGivesToRanks) {
  for (const std::string_view name : kRankVariables)
    EXPECT_THAT([&] { parse_environment_file(std::string(name) + "=1", "f"); },
                testing::ThrowsMessage<ConfigError>(
                    HasSubstr("f:1: \"" + std::string(name) + "=1\" is not accepted: the launcher gives this variable")));
  EXPECT_NO_THROW(parse_environment_file("OMP_NUM_THREADS=2\nTRIVET_SHARE_GPU=1\n", "f"));
}

TEST(ExportedEnvironment, ReadsLinesAsPeopleWriteThem) {
  const std::vector<std::pair<std::string, std::string>> values{{"A=1", "1"},
                                                                {"A = 1", "1"},
                                                                {"  A=1 \t", "1"},
                                                                {"A=1\r", "1"},
                                                                {"export A=1", "1"},
                                                                {"export\tA = 1", "1"},
                                                                {"A=", ""},
                                                                {"A= # none", ""},
                                                                {"A=#1", "#1"},
                                                                {"A=1 # one", "1"},
                                                                {"A=a#b", "a#b"},
                                                                {"A=a b", "a b"},
                                                                {"A=1 B=2", "1 B=2"},
                                                                {"export A='1 B=2'", "1 B=2"},
                                                                {"export A=1 # B=2", "1"},
                                                                {"A='a b '", "a b "},
                                                                {"A=\"a b\"", "a b"},
                                                                {"A='$B `c`'", "$B `c`"},
                                                                {"A=\"it's\"", "it's"},
                                                                {"A='x' # one", "x"},
                                                                {"A=''", ""},
                                                                {"A=a=b", "a=b"},
                                                                {"A=x$", "x$"},
                                                                {"A={\"x\":1}", "{\"x\":1}"}};
  for (const auto& [line, value] : values)
    for (const char* end : {"", "\n", "\r\n", "\r"})
      EXPECT_EQ(parse_environment_file(line + end, "f"), (comm::Environment{{"A", value}})) << line;
  EXPECT_EQ(parse_environment_file("\xEF\xBB\xBF"
                                   "A=1\r\n\r\n # c\nB_2=2\nC=3",
                                   "f"),
            (comm::Environment{{"A", "1"}, {"B_2", "2"}, {"C", "3"}}));
  EXPECT_THROW(parse_environment_file(std::string("A=1\0B=2", 7), "f"), ConfigError);
  EXPECT_THROW(parse_environment_file("\xFF\xFE"
                                      "A",
                                      "f"),
               ConfigError);
}

HostState host(const std::string& name, int first, int slots, const HostReport& report) {
  return {.on = {{name, std::vector<int>(static_cast<size_t>(slots))}, 0, 1, first, 4}, .report = report};
}

TEST(Preflight, ComparesHostsAndClocks) {
  const HostReport good{.host_name = "a", .boot_id = "x"};
  HostReport other = good;
  other.host_name = "b";
  std::vector<HostState> hosts{host("a", 0, 2, good), host("b", 2, 2, other)};
  compare_reports(hosts);
  EXPECT_FALSE(error_of(hosts));

  hosts = {host("a", 0, 2, good), host("c", 2, 2, good)};
  compare_reports(hosts);
  ASSERT_TRUE(error_of(hosts));
  EXPECT_EQ(error_of(hosts)->exit_code(), ExitCode::Usage);
  EXPECT_THAT(error_of(hosts)->what(), HasSubstr("1 of 2 hosts cannot run their ranks; the first is c: is the same host as a"));

  HostReport twin = good;  // another host of the same name
  twin.boot_id = "y";
  hosts = {host("a", 0, 2, good), host("c", 2, 2, twin)};
  hosts[1].clock_ahead_s = -61;
  compare_reports(hosts);
  ASSERT_TRUE(error_of(hosts));
  EXPECT_THAT(error_of(hosts)->what(), HasSubstr("its clock is 61 s behind the launcher's"));
}

TEST(Preflight, ShowsEveryHostAndEveryProblemInTheTable) {
  HostReport report{.cores = 8, .memory_bytes = int64_t{3} << 30, .disk_bytes = int64_t{5} << 30};
  std::vector<HostState> hosts{host("a", 0, 2, report), host("a-long-name", 2, 1, report)};
  hosts[1].report.reset();
  hosts[1].problems = {"first", "second"};
  EXPECT_EQ(table_of(hosts),
            "host             ranks  cores  memory free    disk free      clock  problem\n"
            "a                  0-1      8      3.0 GiB      5.0 GiB     +0.0 s  \n"
            "a-long-name          2      -            -            -          -  first\n"
            "                                                                    second\n");
}

std::vector<HostRanks> two_hosts(std::vector<int> second = {0, 1}) {
  const int size = 2 + static_cast<int>(second.size());
  return {{{"a", {0, 1}}, 0, 2, 0, size}, {{"b", std::move(second)}, 1, 2, 2, size}};
}

LaunchRequest request_of(const std::vector<std::string>& program) {
  LaunchRequest request;
  request.hostfile = "h";
  request.program = program;
  return request;
}

TEST(OtherLaunchers, GetHostsVariablesAndProgram) {
  const comm::Environment inherited{{"PATH", "/no/such/folder"}, {"NCCL_DEBUG", "x"}, {"TRIVET_SECRET_FILE", "/s"}};
  const auto slurm = other_command(OtherLauncher::Slurm, request_of({"./p", "x y"}), two_hosts(), inherited);
  EXPECT_THAT(slurm.words, ElementsAre("srun", "--nodelist=a,b", "--nodes=2", "--ntasks-per-node=2", "--export=ALL",
                                       "--kill-on-bad-exit=1", "./p", "x y"));
  EXPECT_EQ(slurm.environment, (comm::Environment{{"NCCL_DEBUG", "x"}}));

  LaunchRequest request = request_of({"./p", "100%", "it's"});
  request.master_port = 4711;
  request.launcher_arguments = "-u 5";
  const auto pdsh = other_command(OtherLauncher::Pdsh, request, two_hosts({1, 3}), inherited);
  EXPECT_THAT(pdsh.words, testing::IsSupersetOf({"pdsh", "-S", "-w", "a,b", "-u", "5"}));
  EXPECT_THAT(pdsh.words.back(), HasSubstr("--world_info a:0,1@b:1,3"));
  EXPECT_THAT(pdsh.words.back(), HasSubstr("--master_addr a --master_port 4711"));
  EXPECT_THAT(pdsh.words.back(), HasSubstr("--node_rank %n ./p 100%% 'it'\\''s'"));
  EXPECT_THAT(pdsh.words.back(), HasSubstr(" TRIVET_SECRET_FILE=/s "));
}

TEST(OtherLaunchers, RefuseWhatTheyCannotDo) {
  const comm::Environment inherited{{"PATH", "/no/such/folder"}};
  const auto refuses = [&](OtherLauncher launcher, const std::vector<HostRanks>& hosts, const char* text) {
    try {
      other_command(launcher, request_of({"p"}), hosts, inherited);
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  refuses(OtherLauncher::Slurm, two_hosts({0}), "host \"a\" has 2 slots and \"b\" has 1");
  refuses(OtherLauncher::OpenMpi, two_hosts({1, 2}), "cannot choose slot 1 of host \"b\"");
  auto users = two_hosts(), addresses = two_hosts();
  users[1].host.user = "me";
  addresses[1].host.name = "fd00::1";
  refuses(OtherLauncher::OpenMpi, users, "--launcher openmpi: cannot reach host \"me@b\" as another user");
  refuses(OtherLauncher::Pdsh, addresses, "--launcher pdsh: cannot reach host \"fd00::1\" by an address of IP version 6");
  EXPECT_THAT(other_command(OtherLauncher::Pdsh, request_of({"p"}), users, inherited).words, testing::Contains("a,me@b"));
  refuses(OtherLauncher::Mpich, two_hosts({0, 2}), "cannot choose slot 2 of host \"b\"");
  LaunchRequest logs = request_of({"p"});
  logs.log_folder = "logs";
  EXPECT_THROW(other_command(OtherLauncher::Mpich, logs, two_hosts(), inherited), ConfigError);
  EXPECT_NO_THROW(other_command(OtherLauncher::Pdsh, logs, two_hosts(), inherited));
  LaunchRequest copied = request_of({"p"});
  copied.copy_program = true;
  EXPECT_THROW(other_command(OtherLauncher::Pdsh, copied, two_hosts(), inherited), ConfigError);
  refuses(OtherLauncher::OpenMpi, two_hosts(), "none of these programs is in PATH: mpirun.openmpi, mpirun");
}

}  // namespace
}  // namespace trivet::cli
