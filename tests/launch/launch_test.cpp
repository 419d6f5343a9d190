// Tests the launcher's flags, messages, environment and exit codes through the program itself.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/socket.h"
#include "tests/launch/launched_job.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Result {
  int exit_code;
  std::string output;
};

Result run(std::vector<std::string> arguments, const LaunchedProcess::Variables& variables = {}) {
  arguments.insert(arguments.begin(), {kTrivet, "launch"});
  LaunchedProcess process(arguments, variables);
  const int code = process.wait();
  return {code, process.output()};
}

class HostFile : public ::testing::Test {
 protected:
  std::string with(const std::string& text) { return folder_.write("hostfile", text); }
  const TemporaryFolder folder_;
  const std::string path_ = folder_.at("hostfile");
};

TEST(Launch, DryRunPrintsRanksAndTheirEnvironmentAsJson) {
  const Result result = run({"--num_gpus", "2", "--master_port", "29511", "--dry-run", "--json", "/bin/true", "--json", "-x"});
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const json ranks = json::parse(result.output).at("ranks");
  ASSERT_EQ(ranks.size(), 2u);
  for (int rank = 0; rank < 2; ++rank) {
    const json& one = ranks.at(rank);
    EXPECT_EQ(one.at("rank"), rank);
    EXPECT_EQ(one.at("local_rank"), rank);
    EXPECT_EQ(one.at("node_rank"), 0);
    EXPECT_EQ(one.at("slot"), rank);
    EXPECT_EQ(one.at("host"), "localhost");
    const json& environment = one.at("environment");
    EXPECT_EQ(environment.at("RANK"), std::to_string(rank));
    EXPECT_EQ(environment.at("LOCAL_RANK"), std::to_string(rank));
    EXPECT_EQ(environment.at("WORLD_SIZE"), "2");
    EXPECT_EQ(environment.at("MASTER_ADDR"), "127.0.0.1");
    EXPECT_EQ(environment.at("MASTER_PORT"), "29511");
    EXPECT_EQ(environment.at("OMP_WAIT_POLICY"), "passive");
  }
}

TEST(Launch, LeavesTheUsersWaitPolicyAlone) {
  const Result result = run({"--num_gpus", "1", "--dry-run", "--json", "/bin/true"}, {{"OMP_WAIT_POLICY", "active"}});
  EXPECT_EQ(json::parse(result.output).at("ranks").at(0).at("environment").at("OMP_WAIT_POLICY"), "active");
}

TEST(Launch, LeavesTheUsersThreadCountAlone) {
  const Result result = run({"--num_gpus", "2", "--dry-run", "--json", "/bin/true"}, {{"OMP_NUM_THREADS", "7"}});
  EXPECT_FALSE(json::parse(result.output).at("ranks").at(0).at("environment").contains("OMP_NUM_THREADS"));
  EXPECT_THAT(run({"--num_gpus", "1", "/usr/bin/env"}, {{"OMP_NUM_THREADS", "7"}}).output, HasSubstr("OMP_NUM_THREADS=7\n"));
}

TEST(Launch, BindsRanksToCores) {
  const Result result = run({"--num_gpus", "1", "--bind_cores_to_rank", "--dry-run", "--json", "/bin/true"});
  const json rank = json::parse(result.output).at("ranks").at(0);
  ASSERT_FALSE(rank.at("cores").empty());
  EXPECT_EQ(rank.at("environment").at("OMP_NUM_THREADS"), std::to_string(rank.at("cores").size()));
  const std::string core = std::to_string(rank.at("cores").at(0).get<int>());
  const Result bound =
      run({"--num_gpus", "1", "--bind_core_list", core, "/bin/grep", "Cpus_allowed_list", "/proc/self/status"});
  EXPECT_EQ(bound.output, "Cpus_allowed_list:\t" + core + "\n");
  const Result crowded = run({"--num_gpus", "2", "--bind_core_list", core, "/bin/true"});
  EXPECT_EQ(crowded.exit_code, 2);
  EXPECT_THAT(crowded.output, HasSubstr(" has 2 ranks and 1 core for them; each needs one of its own"));
}

TEST(Launch, SaysWhichFlagsNeedOtherHosts) {
  EXPECT_THAT(run({"--num_gpus", "1", "--ssh_port", "4", "--host_timeout", "9", "/bin/true"}).output,
              HasSubstr("no effect, because all ranks are on this host: --ssh_port, --host-timeout\n"));
}

TEST(Launch, SaysThatAnEnvironmentFileIsNotRead) {
  const TemporaryFolder folder;
  std::ofstream(folder.at(".deepspeed_env")) << "A=1\n";
  const auto output_of = [&](const std::string& flags, const std::string& folder_of_job) {
    LaunchedProcess job(
        {"/bin/bash", "-c",
         "cd " + folder_of_job + " && HOME=" + folder.path() + " " + kTrivet + " launch --num_gpus 1 " + flags + " /bin/true"});
    EXPECT_EQ(job.wait(), 0) << flags;
    return job.output();
  };
  const std::string told = ".deepspeed_env: is not read because all ranks are on this host";
  EXPECT_THAT(output_of("", folder.path()), HasSubstr("./" + told));
  EXPECT_THAT(output_of("--no_ssh", folder.path()), HasSubstr("./.deepspeed_env: is not read with --no_ssh"));
  EXPECT_THAT(output_of("--quiet", folder.path()), Not(HasSubstr("is not read")));
  EXPECT_THAT(output_of("--force_multi", folder.path()), Not(HasSubstr("is not read")));
  EXPECT_THAT(output_of("", "/"), Not(HasSubstr("is not read")));  // in the home directory it is for other jobs
}

TEST(Launch, HandsArgumentsOverByteForByte) {
  const std::vector<std::string> hostile{"$(touch /tmp/trivet_shell)",
                                         "`id`",
                                         ";",
                                         "a b",
                                         "",
                                         "\"",
                                         "'",
                                         "\\",
                                         "*",
                                         "-n",
                                         "--",
                                         "--num_gpus",
                                         "\n",
                                         "\x01\xff",
                                         "$HOME",
                                         "a;b|c&d>e<f",
                                         "!",
                                         "%s%n",
                                         "~"};
  std::string expected;
  for (const std::string& text : hostile) expected += "<" + text + ">";
  for (const bool separated : {false, true}) {
    std::vector<std::string> arguments{"--num_gpus", "1", "/usr/bin/printf", "<%s>"};
    if (separated) arguments.insert(arguments.begin() + 2, "--");
    arguments.insert(arguments.end(), hostile.begin(), hostile.end());
    const Result result = run(arguments);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.output, expected);
  }
}

TEST(Launch, PrefixesWhatOtherRanksThanTheFirstPrint) {
  const Result result = run({"--num_gpus", "3", "/bin/sh", "-c", "echo out of $RANK; echo err of $RANK >&2; printf 'no end'"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("out of 0\n"));
  EXPECT_THAT(result.output, ::testing::Not(HasSubstr("[rank 0]")));
  for (const char* line : {"[rank 1] out of 1\n", "[rank 2] out of 2\n", "[rank 1] err of 1\n", "[rank 2] no end\n"}) {
    EXPECT_THAT(result.output, HasSubstr(line));
  }
}

TEST(Launch, WritesALogPerRank) {
  const TemporaryFolder folder;
  const Result result = run(
      {"--num_gpus", "2", "--enable_each_rank_log", folder.at("logs"), "/bin/sh", "-c", "echo out $RANK; echo err $RANK >&2"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(std::filesystem::status(folder.at("logs/rank_0.out")).permissions(), std::filesystem::perms(01600));
  std::ifstream out(folder.at("logs/rank_1.out")), err(folder.at("logs/rank_0.err"));
  std::string line;
  std::getline(out, line);
  EXPECT_EQ(line, "out 1");
  std::getline(err, line);
  EXPECT_EQ(line, "err 0");
}

TEST(Launch, ExitsWithTheCodeOfTheRankThatFailed) {
  const Result coded = run({"--num_gpus", "3", "/bin/sh", "-c", "test $RANK != 1 || exit 19"});
  EXPECT_EQ(coded.exit_code, 19);
  EXPECT_THAT(coded.output, HasSubstr("trivet: error: launch: rank 1 (pid "));
  EXPECT_THAT(coded.output, ::testing::EndsWith(") ended with exit code 19\n"));
  const Result killed = run({"--num_gpus", "2", "/bin/sh", "-c", "test $RANK != 0 || kill -11 $$"});
  EXPECT_EQ(killed.exit_code, 128 + SIGSEGV);
  EXPECT_THAT(killed.output, HasSubstr("was killed by signal 11 (SIGSEGV)"));
}

TEST(Launch, EndsRanksThatDoNotEndThemselves) {
  const auto start = steady_clock::now();
  const Result result = run({"--num_gpus", "3", "/bin/sh", "-c", "test $RANK = 2 && exit 3; sleep 100; exit 0"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_LT(ms_since(start), 60000) << "their sleep takes 100 s";
  EXPECT_THAT(result.output, HasSubstr("ending the ranks that still run (SIGTERM)"));
}

TEST(Launch, EndsWhatARankHasStarted) {
  LaunchedProcess process({kTrivet, "launch", "--num_gpus", "1", "/bin/sh", "-c", "sleep 1000 & echo child $!; exit 0"});
  EXPECT_EQ(process.wait(), 0);
  const std::string line = process.lines_with("child ").at(0);
  const int child = std::stoi(line.substr(6));
  EXPECT_TRUE(becomes_true([&] {
    std::ifstream status("/proc/" + std::to_string(child) + "/stat");
    std::string pid, name, state = "gone";
    status >> pid >> name >> state;
    return state == "gone" || state == "Z";
  }));
}

TEST(Launch, RemovesSharedMemoryThatAKilledRankLeftBehind) {
  const Result result = run(
      {"--num_gpus", "1", "/bin/sh", "-c", "echo x > /dev/shm/trivet-$TRIVET_JOB_ID-left; echo id $TRIVET_JOB_ID; kill -9 $$"});
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  const std::string id = result.output.substr(result.output.find("id ") + 3, 16);
  EXPECT_FALSE(fs::exists("/dev/shm/trivet-" + id + "-left")) << id;
}

TEST(Launch, ReportsALostRankByItsCauseNotByItsFollowers) {
  LaunchedJob job(4, {"--steps", "5", "--exit-rank", "2", "--exit-code", "16", "--abort", "loss is not finite"});
  EXPECT_EQ(job.wait(), 16);
  EXPECT_EQ(job.lines_with("lost rank 2 (host").size(), 3u) << job.output();
  EXPECT_EQ(job.lines_with("abort: loss is not finite").size(), 3u) << job.output();
  EXPECT_THAT(job.output(), HasSubstr("trivet: error: launch: rank 2 (pid "));
}

TEST(Launch, PortInUseIsNamedWithItsHolderBeforeAnyRankStarts) {
  const Descriptor holder = comm::listen_on("127.0.0.1", 0);
  const std::string port = std::to_string(comm::port_of(holder));
  const Result result = run({"--num_gpus", "2", "--master_port", port, kRankProgram});
  EXPECT_EQ(result.exit_code, 13);
  EXPECT_THAT(result.output, HasSubstr("port " + port + " of 127.0.0.1 is held by pid " + std::to_string(::getpid())));
}

struct Bad {
  const char* name;
  std::vector<std::string> arguments;
  const char* message;
};

class BadLaunch : public ::testing::TestWithParam<Bad> {};

TEST_P(BadLaunch, IsRefusedByName) {
  const Result result = run(GetParam().arguments);
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadLaunch,
    ::testing::Values(
        Bad{"NoProgram", {"--num_gpus", "2"}, "launch: no PROGRAM given"},
        Bad{"UnknownFlag", {"--num_gpu", "2", "/bin/true"}, "--num_gpu: unknown flag"},
        Bad{"UnknownFlagNearOneThatIsHidden",
            {"--world_inf", "x", "/bin/true"},
            "--world_inf: unknown flag; see trivet launch --help"},
        Bad{"NoRanks", {"--num_gpus", "0", "/bin/true"}, "--num_gpus 0: must be from 1 to 4096"},
        Bad{"NegativeRanks", {"--num_gpus=-3", "/bin/true"}, "--num_gpus -3: must be from 1 to 4096"},
        Bad{"RanksAreNoNumber", {"--num_gpus", "two", "/bin/true"}, "two"},
        Bad{"NoSuchProgram", {"--num_gpus", "1", "no_such_program_x"}, "no_such_program_x: no such program in PATH"},
        Bad{"OnlyASubcommand", {"--num_gpus", "1", "train", "a.json"}, "to train with this executable write trivet train"},
        Bad{"RanksUnderTorchrunsName", {"--nproc_per_node", "0", "/bin/true"}, "--num_gpus 0: must be from 1 to 4096"},
        Bad{"RanksInTorchrunsWords",
            {"--nproc_per_node=gpu", "/bin/true"},
            "\"gpu\" is not accepted; a whole number is expected; leave it out to start one rank per GPU"},
        Bad{"RanksUnderMpirunsName", {"-n", "0", "/bin/true"}, "--num_gpus 0: must be from 1 to 4096"},
        Bad{"DeepSpeedsFlagOfTheProgram",
            {"--num_gpus", "1", "--deepspeed_config", "a.json", "train.py"},
            "launch: --deepspeed_config belongs to the program; write, for example, trivet launch --num_gpus 2 trivet train "
            "--deepspeed_config ds_config.json"},
        Bad{"NoSuchFile", {"--num_gpus", "1", "./no_such_program_x"}, "./no_such_program_x: is not an executable file"},
        Bad{"ProgramIsAFolder", {"--num_gpus", "1", "/tmp"}, "/tmp: is not an executable file"},
        Bad{"MoreNodesThanHosts", {"--num_nodes", "2", "/bin/true"}, "--num_nodes 2: there is one host, \"localhost\""},
        Bad{"NoNodes", {"--num_nodes", "0", "/bin/true"}, "--num_nodes 0: must be at least 1"},
        Bad{"NodesAndInclude", {"--num_nodes", "1", "--include", "localhost", "/bin/true"}, "--num_nodes cannot be used with"},
        Bad{"NodeRank", {"--node_rank", "1", "/bin/true"}, "--node_rank 1: is only used with --no_ssh"},
        Bad{"NodeRankAfterTheLast",
            {"--no_ssh", "--num_nodes", "2", "--node_rank", "2", "/bin/true"},
            "--node_rank 2: must be from 0 to 1"},
        Bad{"NodeRankMissing", {"--no_ssh", "--num_nodes", "2", "/bin/true"}, "--no_ssh: give --node_rank, from 0 to 1"},
        Bad{"NoMeetingPlace",
            {"--no_ssh", "--num_nodes", "2", "--node_rank", "1", "/bin/true"},
            "--no_ssh: give --master_addr and --master_port"},
        Bad{"Launcher", {"--launcher", "rsh", "/bin/true"}, "--launcher: rsh not in {"},
        Bad{"LauncherWithoutSsh",
            {"--launcher", "pdsh", "--no_ssh", "/bin/true"},
            "--launcher pdsh and --no_ssh exclude each other"},
        Bad{"WrongWorld", {"--no_ssh", "--world_info", "a:0@b", "/bin/true"}, "--world_info: \"b\" is not accepted"},
        Bad{"TuningByAnotherLauncher",
            {"--launcher", "slurm", "--autotuning", "run", "trivet", "train",
             std::string(TRIVET_SOURCE_DIR) + "/configs/gpt_char.json"},
            "--autotuning run and --launcher slurm: tune first"},
        Bad{"Module", {"--module", "/bin/true"}, "--module: PROGRAM is an executable file, not a Python module"},
        Bad{"AutotuningOfAnotherProgram",
            {"--autotuning", "run", "/bin/true"},
            "--autotuning: \"/bin/true\" cannot be tuned; PROGRAM must be: trivet train CONFIG"},
        Bad{"AutotuningOfAnotherKind", {"--autotuning", "search", "/bin/true"}, "--autotuning: search not in {tune,run}"},
        Bad{"Elastic", {"--elastic_training", "/bin/true"}, "--elastic_training: give --max_restarts"},
        Bad{"AddressWithSpace",
            {"--dry-run", "--master_addr", "a b", "/bin/true"},
            "--master_addr \"a b\": is not the name or"},
        Bad{"AddressWithPort", {"--dry-run", "--master_addr", "host:99", "/bin/true"}, "its port with --master_port"},
        Bad{"AddressWithScheme", {"--dry-run", "--master_addr", "http://x", "/bin/true"}, "--master_addr \"http://x\": is not"},
        Bad{"AddressInBrackets", {"--master_addr", "[::1]", "/bin/true"}, "--master_addr \"[::1]\": is not the name"},
        Bad{"JsonWithoutDryRun", {"--json", "/bin/true"}, "--json: prints the result of --dry-run; give both"},
        Bad{"DryRunOfNoProgram", {"--num_gpus", "1", "--dry-run", "./nope"}, "./nope: is not an executable file"},
        Bad{"DryRunOfNoProgramInPath", {"--num_gpus", "1", "--dry-run", "no-pe"}, "no-pe: no such program in PATH"},
        Bad{"DryRunOfNoConfig", {"--num_gpus", "1", "--dry-run", "nope.json"}, "nope.json: cannot be read: No such file"},
        Bad{"DryRunOfTuningNoConfig", {"--num_gpus", "1", "--dry-run", "trivet", "tune", "nope.json"}, "nope.json: cannot be"},
        Bad{"NoSuchHostFile",
            {"--hostfile", "/nowhere/hosts", "/bin/true"},
            "--hostfile /nowhere/hosts: cannot be read: No such file or directory"},
        Bad{"CoreListIsNone", {"--bind_core_list", "0-", "/bin/true"}, "--bind_core_list 0-: \"0-\" is not accepted"},
        Bad{"CoreThatIsNotThere",
            {"--bind_core_list", "99999", "/bin/true"},
            "core 99999 is not one that this process may use"},
        Bad{"IncludeOfAnUnknownHost",
            {"--include", "far:0", "/bin/true"},
            "--include: host \"far\" is not in the hostfile, which names "},
        Bad{"IncludeWithoutSlots",
            {"--include", "localhost:", "--max_restarts", "1", "/bin/true"},
            "names no slot after the colon"},
        Bad{"SlotTwice", {"--include", "localhost:0,0", "/bin/true"}, "slot 0 of host \"localhost\" is named twice"},
        Bad{"NodeRankBelowNone", {"--no_ssh", "--node_rank", "-5", "/bin/true"}, "--node_rank -5: must be from 0"},
        Bad{"EmptyInclude", {"--include", "", "/bin/true"}, "--include: an empty value is not accepted"},
        Bad{"EmptyExclude", {"-e", "", "/bin/true"}, "-e: an empty value is not accepted"},
        Bad{"EmptyHostfile", {"--hostfile=", "/bin/true"}, "--hostfile: an empty value is not accepted"},
        Bad{"EmptyNumber", {"--num_gpus", "", "/bin/true"}, "--num_gpus: an empty value is not accepted"},
        Bad{"EmptyProgram", {"--num_gpus", "1", ""}, "\"\": an empty value is not accepted"},
        Bad{"IncludeAndExclude", {"--include", "localhost", "--exclude", "localhost", "/bin/true"}, "exclude each other"},
        Bad{"IncludeAndRanks", {"--include", "localhost", "--num_gpus", "1", "/bin/true"}, "cannot be used with --include"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(HostFile, OfThisHostGivesItsSlots) {
  const std::string path = with("# hosts\n\nlocalhost slots=3 # here\n");
  EXPECT_EQ(json::parse(run({"-H", path, "--dry-run", "--json", "/bin/true"}).output).at("ranks").size(), 3u);
  const json chosen =
      json::parse(run({"-H", path, "-i", "localhost:0,2", "--dry-run", "--json", "/bin/true"}).output).at("ranks");
  ASSERT_EQ(chosen.size(), 2u);
  EXPECT_EQ(chosen.at(1).at("slot"), 2);
  EXPECT_EQ(chosen.at(1).at("environment").at("CUDA_VISIBLE_DEVICES"), "0,2");
  EXPECT_EQ(json::parse(run({"-H", path, "-e", "localhost:1", "--dry-run", "--json", "/bin/true"}).output)
                .at("ranks")
                .at(1)
                .at("slot"),
            2);
}

// The launcher's own environment is a list of what it may use.
TEST_F(HostFile, SlotsOfThisHostCountTheGpusThatItsEnvironmentShows) {
  struct Shown {
    std::string visible, include;
    std::string expected;  // for the ranks; "-": stays as it is
  };
  const std::string path = with("localhost slots=8\n");
  for (const Shown& one : std::vector<Shown>{{"4,5,6,7", "localhost:2,3", "6,7"},
                                             {"4,5,6,7", "localhost:3,0", "4,7"},
                                             {"GPU-aaaa,GPU-bbbb", "localhost:1", "GPU-bbbb"},
                                             {"MIG-a,MIG-b,MIG-c", "localhost:2,1", "MIG-b,MIG-c"},
                                             {"4, 5", "localhost:1", "5"},
                                             {"4,5", "localhost:0,1", "-"},
                                             {"4,5,6,7", "localhost:0", "4"},
                                             {"4,5,6,7", "localhost:0,1", "4,5"},
                                             {"4,5,6,7", "localhost:0@localhost:1", "4,5"},
                                             {"04,5", "localhost:1", "5"},
                                             {"", "localhost:1", "-"},
                                             {"-1", "localhost:1", "-"}}) {
    const Result result =
        run({"-H", path, "-i", one.include, "--dry-run", "--json", "/bin/true"}, {{"CUDA_VISIBLE_DEVICES", one.visible}});
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const json environment = json::parse(result.output).at("ranks").at(0).at("environment");
    EXPECT_EQ(environment.value("CUDA_VISIBLE_DEVICES", "-"), one.expected) << one.visible << " " << one.include;
  }
  for (const char* include : {"localhost:2", "localhost:0,1,2", "localhost:1,7"}) {
    const Result result = run({"-H", path, "-i", include, "/bin/true"}, {{"CUDA_VISIBLE_DEVICES", "4,5"}});
    EXPECT_EQ(result.exit_code, 2) << include;
    EXPECT_THAT(result.output, HasSubstr("CUDA_VISIBLE_DEVICES=4,5 shows 2: slots count the GPUs that it names, from 0 to 1"));
  }
  const Result others = run({"-H", path, "-e", "localhost:2,3,4,5,6,7", "--dry-run", "--json", "/bin/true"},
                            {{"CUDA_VISIBLE_DEVICES", "4,5,6,7"}});
  EXPECT_EQ(json::parse(others.output).at("ranks").at(0).at("environment").at("CUDA_VISIBLE_DEVICES"), "4,5");
  // What other hosts show is not known here.
  const Result far =
      run({"-H", with("far slots=8\n"), "-i", "far:2", "--dry-run", "--json", "/bin/true"}, {{"CUDA_VISIBLE_DEVICES", "4"}});
  EXPECT_EQ(json::parse(far.output).at("ranks").at(0).at("environment").at("CUDA_VISIBLE_DEVICES"), "2");
}

// However the ranks were asked for.
TEST_F(HostFile, EachRankHasAGpuOfItsOwnAmongThoseThatAreShown) {
  const std::string four = with("localhost slots=4\n");
  const char* const none = "there is no GPU for slot";
  const char* const twice = "names GPU";
  const char* const no_gpu = "names no GPU, and CUDA shows";
  struct Asked {
    std::vector<std::string> flags;
    std::string visible;
    const char* refusal;  // null: the ranks start
  };
  for (const Asked& one : std::vector<Asked>{{{"-H", four}, "4,5", none},
                                             {{"-H", four, "--force_multi"}, "4,5", none},
                                             {{"-H", four, "--num_gpus", "3"}, "GPU-a,GPU-b", none},
                                             {{"-H", four, "-e", "localhost:0"}, "4,5", none},
                                             {{"--num_gpus", "2"}, "4", none},
                                             {{"--num_gpus", "4"}, "4,5,-1,6", none},
                                             {{"--num_gpus", "2"}, "0,0", twice},
                                             {{"--num_gpus", "1"}, "0,00", twice},
                                             {{"-H", four, "-i", "localhost:0,1"}, "GPU-a,GPU-a", twice},
                                             {{"-H", four, "-i", "localhost:3"}, "0,1,2,1", twice},
                                             {{"-H", four, "-i", "localhost:1"}, "a,b", no_gpu},
                                             {{"--num_gpus", "2"}, "4;5", no_gpu},
                                             {{"--num_gpus", "1"}, "all", no_gpu},
                                             {{}, "0,x", no_gpu},
                                             {{"--num_gpus", "2"}, "none", nullptr},
                                             {{"-H", four, "--num_gpus", "2"}, "4,5", nullptr},
                                             {{"--num_gpus", "1"}, "7", nullptr},
                                             {{"--num_gpus", "4"}, "", nullptr},
                                             {{"--num_gpus", "4"}, "-1", nullptr},
                                             {{}, "1,1", twice},
                                             {{}, "4,5", nullptr}}) {
    std::vector<std::string> words = one.flags;
    words.push_back("/bin/true");
    const Result result = run(words, {{"CUDA_VISIBLE_DEVICES", one.visible}});
    EXPECT_EQ(result.exit_code, one.refusal ? 2 : 0) << one.visible << " " << words[0] << result.output;
    if (!one.refusal) continue;
    EXPECT_THAT(result.output, HasSubstr(one.refusal)) << one.visible;
    EXPECT_THAT(result.output, HasSubstr("CUDA_VISIBLE_DEVICES=" + one.visible));
  }
  EXPECT_EQ(run({"--num_gpus", "3", "/bin/true"}, {{"CUDA_VISIBLE_DEVICES", "4"}, {"TRIVET_SHARE_GPU", "1"}}).exit_code, 0);
  EXPECT_EQ(
      run({"--num_gpus", "3", "--dry-run", "trivet", "train",
           folder_.write("cpu.json", R"({"model": {"layers": 1, "hidden_size": 32, "heads": 2}, "training": {"steps": 1}})")},
          {{"CUDA_VISIBLE_DEVICES", "4"}})
          .exit_code,
      0)
      << "ranks that train on the CPU";
}

TEST_F(HostFile, AFileThatIsNoProgramGetsTheCommandThatStartsIt) {
  const std::string script = folder_.write("train.py", "print(1)"), text = folder_.write("job", "#!/bin/sh\n");
  EXPECT_THAT(run({"--num_gpus", "1", script}).output, HasSubstr("; for a script of Python write: python3 " + script));
  EXPECT_THAT(run({"--num_gpus", "1", text}).output, HasSubstr("; if it is a program, make it executable: chmod +x " + text));
}

// Nothing is started on the host under another user than the one who asked for it.
TEST_F(HostFile, NamesNoOtherUserOfThisHost) {
  EXPECT_THAT(run({"-H", with("nobody-else@localhost slots=1\n"), "/bin/true"}).output,
              HasSubstr("\"nobody-else@localhost\": is this host, where the ranks run as the user who starts the job"));
  EXPECT_THAT(run({"-H", with("me@n1 slots=1\nfd00::1 slots=1\n"), "--dry-run", "/bin/true"}).output,
              AllOf(HasSubstr(" me@n1 'exec "), HasSubstr(" fd00::1 'exec ")));
}

// As the real start reads it.
TEST_F(HostFile, ADryRunReadsTheEnvironmentFile) {
  const std::string path = with("n1 slots=1\nn2 slots=1\n"), file = folder_.write("env", "TOKEN=secret\n");
  const Result good = run({"-H", path, "--dry-run", "/bin/true"}, {{"DS_ENV_FILE", file}});
  EXPECT_THAT(good.output,
              AllOf(HasSubstr("variables that ranks get from here: "), HasSubstr("TOKEN"), Not(HasSubstr("secret"))));
  folder_.write("env", "CUDA_VISIBLE_DEVICES=4,5\n");
  const Result shown = run({"-H", path, "-i", "n1:0@n2:0", "--dry-run", "--json", "/bin/true"}, {{"DS_ENV_FILE", file}});
  for (const json& rank : json::parse(shown.output).at("ranks"))
    EXPECT_EQ(rank.at("environment").at("CUDA_VISIBLE_DEVICES"), "4") << "slot 0 of the GPUs that the file shows";
  folder_.write("env", "RANK=9\n");
  for (const std::string how : {"--dry-run", "--json"}) {
    const Result bad = run({"-H", path, "--dry-run", how, "/bin/true"}, {{"DS_ENV_FILE", file}});
    EXPECT_EQ(bad.exit_code, 2) << how;
    EXPECT_THAT(bad.output, HasSubstr("RANK"));
  }
}

TEST_F(HostFile, OfSeveralHostsNumbersRanksFromHostToHost) {
  const std::string path = with("localhost slots=2\nnode17 slots=1\nnode18 slots=3\n");
  const json ranks = json::parse(run({"-H", path, "--dry-run", "--json", "/bin/true"}).output).at("ranks");
  ASSERT_EQ(ranks.size(), 6u);
  const std::vector<std::string> hosts{"localhost", "localhost", "node17", "node18", "node18", "node18"};
  const std::vector<int> local{0, 1, 0, 0, 1, 2}, nodes{0, 0, 1, 2, 2, 2}, sizes{2, 2, 1, 3, 3, 3};
  for (size_t rank = 0; rank < 6; ++rank) {
    const json& environment = ranks.at(rank).at("environment");
    EXPECT_EQ(ranks.at(rank).at("rank"), rank);
    EXPECT_EQ(ranks.at(rank).at("host"), hosts[rank]);
    EXPECT_EQ(ranks.at(rank).at("node_rank"), nodes[rank]);
    EXPECT_EQ(environment.at("RANK"), std::to_string(rank));
    EXPECT_EQ(environment.at("WORLD_SIZE"), "6");
    EXPECT_EQ(environment.at("LOCAL_RANK"), std::to_string(local[rank]));
    EXPECT_EQ(environment.at("LOCAL_SIZE"), std::to_string(sizes[rank]));
    EXPECT_EQ(environment.at("CROSS_RANK"), std::to_string(nodes[rank]));
    EXPECT_EQ(environment.at("CROSS_SIZE"), "3");
  }
  const json first =
      json::parse(run({"-H", path, "--num_nodes", "2", "--num_gpus", "1", "--dry-run", "--json", "/bin/true"}).output);
  EXPECT_EQ(first.at("ranks").size(), 2u);
  EXPECT_EQ(first.at("ranks").at(1).at("host"), "node17");
  EXPECT_THAT(run({"-H", path, "--num_gpus", "2", "/bin/true"}).output, HasSubstr("host \"node17\" has only 1 slots"));
  EXPECT_THAT(
      run({"-H", path, "--dry-run", "/bin/true"}).output,
      AllOf(testing::StartsWith("6 ranks of: /bin/true\nlocalhost: ranks 0-1 on slots 0-1 CROSS_RANK=0 LOCAL_SIZE=2 "),
            HasSubstr("\nnode17: rank 2 on slot 0 CROSS_RANK=1 LOCAL_RANK=0 "),
            HasSubstr("\nnode18: ranks 3-5 on slots 0-2 CROSS_RANK=2 LOCAL_SIZE=3 "), HasSubstr("\nall ranks: CROSS_SIZE=3 "),
            HasSubstr("--json shows all): CROSS_RANK=0 LOCAL_RANK=0 "),
            HasSubstr("\nagent on localhost: trivet launch-agent\nagent on node17 (and on 1 more host, with the name of "
                      "each): ssh ")));
}

TEST_F(HostFile, OfManyHostsADryRunPrintsOneRowEach) {
  constexpr int kHosts = 200;
  std::string hosts;
  for (int host = 0; host < kHosts; ++host) hosts += "node" + std::to_string(host) + " slots=8\n";
  const std::string output = run({"-H", with(hosts), "--dry-run", "/bin/true"}).output;
  EXPECT_THAT(output, HasSubstr("\nagent on node0 (and on 199 more hosts, with the name of each): ssh "));
  EXPECT_LT(std::ranges::count(output, '\n'), kHosts + 10);
}

TEST(Launch, ADryRunOnOneHostIsOneRow) {
  EXPECT_THAT(run({"--num_gpus", "4", "--dry-run", "/bin/true"}).output,
              AllOf(testing::StartsWith("4 ranks of: /bin/true\nlocalhost: ranks 0-3 on slots 0-3\nall ranks: CROSS_RANK=0 "),
                    HasSubstr("\ndifferent on each host or rank, here on rank 0 (--json shows all): LOCAL_RANK=0 RANK=0\n")));
  EXPECT_THAT(run({"--num_gpus", "1", "--bind_core_list", "0", "--dry-run", "/bin/true"}).output,
              HasSubstr("\nlocalhost: rank 0 on slot 0 cores 0\n"));
}

// The same command on every host, with another --node_rank.
TEST_F(HostFile, GivesEachHostItsRanksWithoutSsh) {
  const std::string path = with("node17 slots=1\nnode18 slots=2\n");
  const json ranks = json::parse(run({"-H", path, "--no_ssh", "--node_rank", "1", "--master_addr", "10.0.0.7", "--master_port",
                                      "29500", "--dry-run", "--json", "/bin/true"})
                                     .output)
                         .at("ranks");
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks.at(1).at("rank"), 2);
  EXPECT_EQ(ranks.at(1).at("environment").at("WORLD_SIZE"), "3");
  EXPECT_EQ(ranks.at(1).at("environment").at("MASTER_ADDR"), "10.0.0.7");
  const json equal = json::parse(run({"--num_nodes", "3", "--num_gpus", "2", "--no_ssh", "--node_rank", "2", "--master_addr",
                                      "a", "--master_port", "1", "--dry-run", "--json", "/bin/true"})
                                     .output)
                         .at("ranks");
  ASSERT_EQ(equal.size(), 2u);
  EXPECT_EQ(equal.at(0).at("rank"), 4);
}

TEST_F(HostFile, IsShownAsTheCommandOfAnotherLauncher) {
  const std::string path = with("node17 slots=2\nnode18 slots=2\n");
  EXPECT_THAT(run({"-H", path, "--launcher", "slurm", "--dry-run", "/bin/true", "x y"}).output,
              HasSubstr("srun --nodelist=node17,node18 --nodes=2 --ntasks-per-node=2"));
}

TEST_F(HostFile, ThatIsWrongIsRefusedWithItsLine) {
  const auto message = [&](const std::string& text) { return run({"-H", with(text), "/bin/true"}).output; };
  EXPECT_THAT(message("localhost slots=1\nlocalhost slots=1\n"), HasSubstr(path_ + ":2: host \"localhost\" is named twice"));
  EXPECT_THAT(message("10.0.0.1 slots=1\n::FFFF:10.0.0.1 slots=1\n"),
              HasSubstr(path_ + ":2: host \"::ffff:10.0.0.1\" is named twice"));
  EXPECT_THAT(message("localhost. slots=1\nlocalhost slots=1\n"), HasSubstr(path_ + ":2: host \"localhost\" is named twice"));
  EXPECT_THAT(message("localhost\n"),
              HasSubstr(path_ + ":1: \"localhost\" is not accepted: slots=N is missing; write \"host slots=N\""));
  EXPECT_THAT(message("localhost slots=0\n"), HasSubstr("\"0\" is not a number from 1 to 4096"));
  EXPECT_THAT(message("-oProxyCommand=x slots=1\n"), HasSubstr("is not accepted"));
  EXPECT_THAT(message("# nothing\n"), HasSubstr("names no host"));
  EXPECT_THAT(message("\x1b[2Jlocalhost slots=1\n"), HasSubstr(":1: \"\\x1b[2Jlocalhost\" is not accepted"));
  const std::string cut = message(std::string(100000, 'x') + "\n");
  EXPECT_THAT(cut, HasSubstr(":1: \"" + std::string(200, 'x') + "...\" is not accepted"));
  EXPECT_THAT(run({"-H", with("localhost slots=2\n"), "--num_gpus", "3", "/bin/true"}).output,
              HasSubstr("host \"localhost\" has only 2 slots; start at most 2 ranks"));
}

TEST_F(HostFile, ThatIsNoHostFileIsRefusedWithoutReadingAllOfIt) {
  EXPECT_THAT(run({"-H", "/dev/zero", "/bin/true"}).output, HasSubstr("--hostfile /dev/zero: is longer than 1048576 bytes"));
  EXPECT_THAT(run({"-H", "/tmp", "/bin/true"}).output, HasSubstr("--hostfile /tmp: is a folder; name a file"));
  const std::string path = with("");
  fs::resize_file(path, int64_t{1} << 40);
  EXPECT_THAT(run({"-H", path, "/bin/true"}).output,
              HasSubstr(path + ": has 1099511627776 bytes; a hostfile may have at most 1048576"));
  std::string hosts;
  for (int i = 0; i < 4097; ++i) hosts += "host" + std::to_string(i) + " slots=1\n";
  EXPECT_THAT(run({"-H", with(hosts), "/bin/true"}).output, HasSubstr(path + ":4097: names more than 4096 hosts"));
}

TEST_F(HostFile, MayComeFromAPipe) {
  LaunchedProcess job({"/bin/bash", "-c", kTrivet + " launch -H <(echo localhost slots=3) --dry-run --json /bin/true"});
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_EQ(json::parse(job.output()).at("ranks").size(), 3u);
}

TEST(Launch, WorksWithClosedStandardDescriptors) {
  for (const char* closed : {"<&-", ">&-", "2>&-", "<&- >&- 2>&-"}) {
    LaunchedProcess job({"/bin/sh", "-c", kTrivet + " launch --num_gpus 2 " + kRankProgram + " " + closed});
    EXPECT_EQ(job.wait(), 0) << closed << "\n" << job.output();
  }
}

TEST(Launch, WorksWhereTheEndOfChildrenIsIgnored) {
  LaunchedProcess job({"/usr/bin/env", "--ignore-signal=CHLD", kTrivet, "launch", "--num_gpus", "2", "/bin/sh", "-c",
                       "test $RANK = 0 || exit 19"});
  EXPECT_EQ(job.wait(), 19) << job.output();
}

TEST(Launch, SaysWhenNoFurtherProcessMayBeStarted) {
  // The limit counts all processes of a user, and does not bind root.
  std::string script = "ulimit -u 1; exec " + kTrivet + " launch --num_gpus 2 /bin/true";
  std::vector<std::string> arguments{"/bin/bash", "-c", script};
  if (::geteuid() == 0) arguments.insert(arguments.begin(), {"/usr/bin/setpriv", "--reuid", "65533", "--clear-groups"});
  LaunchedProcess job(arguments);
  const int code = job.wait();
  if (code == 126 || code == 127) GTEST_SKIP() << "another user cannot start " << kTrivet << ": " << job.output();
  EXPECT_EQ(code, 19) << job.output();
  EXPECT_THAT(job.output(),
              HasSubstr("Resource temporarily unavailable; start fewer ranks, or raise the limit of processes and "
                        "threads (ulimit -u, now 1; "));
}

}  // namespace
}  // namespace trivet::test
