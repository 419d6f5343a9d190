// trivet launch --max_restarts: which failures lead to another start, on which hosts, with how many ranks; and a job whose rank
// is killed ends with the bits of an undisturbed one.
#include "cli/launch/restarts.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include "cli/launch/guardian.h"
#include "cli/launch/train_command.h"
#include "core/error.h"
#include "tests/launch/launched_job.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TrainCommand, HasItsFlagsAnywhere) {
  using Words = std::vector<std::string>;
  const auto read = [](Words words) {
    words.insert(words.begin(), {"/bin/trivet", "train"});
    return cli::train_command(words);
  };
  for (const Words& words : {Words{"c.json", "--ddp", "--metrics", "m", "--set", "a=1", "--resume"},
                             {"--ddp", "--metrics", "m", "--set", "a=1", "c.json", "--resume"},
                             {"--set=a=1", "--ddp", "--config", "c.json", "--metrics", "m", "--resume"},
                             {"--ddp", "--metrics", "m", "--deepspeed_config=c.json", "--set=a=1", "--resume"}}) {
    const auto command = read(words);
    ASSERT_TRUE(command) << words[0];
    EXPECT_EQ(command->config, "c.json");
    EXPECT_THAT(command->overrides, ElementsAre("a=1"));
    EXPECT_THAT(command->others, ElementsAre("--ddp", "--metrics", "m", "--resume"));
  }
  EXPECT_THAT(read({"--resume", "d", "--serve", "--ranks", "2", "c.json"})->others,
              ElementsAre("--resume", "d", "--serve", "--ranks", "2"));
  for (const Words& words : {Words{"--ddp"}, {"--metrics", "m"}, {"--unknown", "c.json"}})
    EXPECT_FALSE(read(words)) << words[0];
}

class StartAgain : public ::testing::Test {
 protected:
  // A job on the hosts of a hostfile, of which `nodes` are used.
  cli::JobStart job(const std::string& hostfile, int nodes, int min_nodes) {
    cli::JobStart start;
    start.request.hostfile = folder_.write("hosts", hostfile);
    start.request.nodes = nodes;
    start.request.min_nodes = min_nodes;
    start.request.max_restarts = 2;
    start.request.program = {"python3", "train.py"};
    return cli::first_start(start.request, cli::candidate_hosts(start.request));
  }
  static cli::JobOutcome lost(std::vector<std::string> hosts) {
    return {.exit_code = static_cast<int>(ExitCode::PeerLost), .text = "lost", .lost_hosts = std::move(hosts)};
  }
  static std::optional<cli::JobStart> next_start(const cli::JobStart& before, const cli::JobOutcome& outcome) {
    return cli::start_again(before, outcome).start;
  }
  static std::vector<std::string> names(const cli::JobStart& start) {
    std::vector<std::string> names;
    for (const cli::HostRanks& on : start.hosts) names.push_back(on.host.name + ":" + std::to_string(on.host.slots.size()));
    return names;
  }
  std::string config(const std::string& batch) {
    return folder_.write(
        "config.json",
        R"({"model": {"type": "gpt", "layers": 1, "hidden_size": 8, "heads": 1, "sequence_length": 8, "vocabulary": "bytes"},
            "data": {"train": "text.txt"}, "training": {"steps": 1}, "checkpoint": {"directory": ")" +
            folder_.at("saved") + "\"}, " + batch + "}");
  }

  const TemporaryFolder folder_;
};

TEST_F(StartAgain, ASpareTakesThePlaceOfALostHost) {
  const auto next = next_start(job("a slots=2\nb slots=2\nc slots=2\n", 2, -1), lost({"b"}));
  ASSERT_TRUE(next);
  EXPECT_THAT(names(*next), ElementsAre("a:2", "c:2"));
  EXPECT_EQ(next->hosts[1].first_rank, 2);
  EXPECT_EQ(next->hosts[1].world_size, 4);
  EXPECT_EQ(next->request.restart, 1);
  EXPECT_EQ(cli::describe(*next, lost({"b"})), "restart 1 of 2, on 2 hosts with 4 ranks");
}

TEST_F(StartAgain, WithoutASpareItNeedsMinNodes) {
  EXPECT_FALSE(next_start(job("a slots=2\nb slots=2\n", -1, -1), lost({"b"})));
  EXPECT_FALSE(next_start(job("a slots=2\nb slots=2\nc slots=2\n", -1, 2), lost({"b", "c"})));
  const auto next = next_start(job("a slots=2\nb slots=2\nc slots=2\n", -1, 2), lost({"a"}));
  ASSERT_TRUE(next);
  EXPECT_THAT(names(*next), ElementsAre("b:2", "c:2"));
}

// A host with a full disk, which only its own ranks write to.
TEST_F(StartAgain, AHostThatCannotWriteItsCheckpointIsReplaced) {
  const int not_written = static_cast<int>(ExitCode::CheckpointNotWritten);
  const cli::JobStart start = job("a slots=2\nb slots=2\nc slots=2\n", 2, -1);
  const auto next = next_start(start, {.exit_code = not_written, .text = "", .lost_hosts = {"b"}});
  ASSERT_TRUE(next);
  EXPECT_THAT(names(*next), ElementsAre("a:2", "c:2"));
  EXPECT_FALSE(next_start(start, {.exit_code = not_written, .text = ""})) << "a directory that all hosts share";
}

TEST_F(StartAgain, LostHostsStayOut) {
  const auto second = next_start(job("a slots=1\nb slots=1\nc slots=1\n", -1, 1), lost({"b"}));
  ASSERT_TRUE(second);
  const auto third = next_start(*second, lost({"c"}));
  ASSERT_TRUE(third);
  EXPECT_THAT(names(*third), ElementsAre("a:1"));
  EXPECT_EQ(cli::describe(*third, lost({"c"})), "restart 2 of 2, on 1 host with 1 rank");
  EXPECT_FALSE(next_start(*third, lost({}))) << "all restarts are used up";
}

TEST_F(StartAgain, AHostThatAnswersAgainIsTakenIn) {
  cli::JobStart start = job("a slots=2\nb slots=2\nc slots=2\n", -1, 1);
  start.request.program = {"trivet", "train", config(R"("train_batch_size": 12, "train_micro_batch_size_per_gpu": 1)")};
  const auto without = next_start(start, lost({"b"}));
  ASSERT_TRUE(without);
  ASSERT_EQ(without->request.awaited_hosts.size(), 1u);
  EXPECT_EQ(without->request.awaited_hosts[0].name, "b");
  EXPECT_THAT(without->request.awaited_hosts[0].slots, ElementsAre(0, 1));
  const cli::JobOutcome returned{.exit_code = 143, .text = "", .returned_hosts = {"b"}};
  const auto whole = next_start(*without, returned);
  ASSERT_TRUE(whole);
  EXPECT_THAT(names(*whole), ElementsAre("a:2", "b:2", "c:2"));
  EXPECT_TRUE(whole->request.awaited_hosts.empty());
  EXPECT_EQ(whole->failures, 1);
  EXPECT_EQ(whole->request.restart, 2) << "the number of the start";
  EXPECT_EQ(cli::describe(*whole, returned), "it starts again on 3 hosts with 6 ranks");
  // A host that is lost in the same moment counts.
  const auto other = next_start(*without, {.exit_code = 10, .text = "", .lost_hosts = {"c"}, .returned_hosts = {"b"}});
  ASSERT_TRUE(other);
  EXPECT_THAT(names(*other), ElementsAre("a:2", "b:2"));
  EXPECT_EQ(other->failures, 2);
}

TEST_F(StartAgain, WithoutAHostThatCameBackAndCannotTrain) {
  cli::JobStart start = job("a slots=2\nb slots=2\n", -1, 1);
  start.request.program = {"trivet", "train", config(R"("train_batch_size": 8)")};
  start.request.max_restarts = 9;
  const auto without = next_start(start, lost({"b"}));
  for (const int code : {2, 13}) {  // it has another clock; it cannot reach rank 0
    const auto whole = next_start(*without, {.exit_code = 143, .text = "", .returned_hosts = {"b"}});
    ASSERT_EQ(whole->hosts.size(), 2u);
    const auto again = next_start(*whole, {.exit_code = code, .text = ""});
    ASSERT_TRUE(again) << code;
    EXPECT_THAT(names(*again), ElementsAre("a:2"));
    EXPECT_TRUE(again->request.awaited_hosts.empty()) << "it is not taken in once more";
    EXPECT_FALSE(next_start(*again, {.exit_code = 2, .text = ""})) << "this is not because of that host";
  }
}

TEST_F(StartAgain, HostsThatWereReplacedAreTriedBeforeThereIsNoRestart) {
  const auto with_spare = next_start(job("a slots=2\nb slots=2\nc slots=2\n", 2, -1), lost({"b"}));
  const auto next = next_start(*with_spare, lost({"c"}));
  ASSERT_TRUE(next);
  EXPECT_THAT(names(*next), ElementsAre("a:2", "b:2"));
}

TEST_F(StartAgain, AwaitsNoHostThatWouldNotHelp) {
  const auto awaited = [&](const std::string& hostfile, int nodes, std::vector<std::string> gone) {
    cli::JobStart start = job(hostfile, nodes, 1);
    start.request.program = {"trivet", "train", config(R"("train_batch_size": 8)")};
    const auto next = next_start(start, lost(std::move(gone)));
    return next ? next->request.awaited_hosts.size() : 9;
  };
  EXPECT_EQ(awaited("a slots=2\nb slots=2\n", -1, {"b"}), 1u);
  EXPECT_EQ(awaited("a slots=2\nb slots=2\nc slots=2\n", 2, {"b"}), 0u) << "a spare has its place";
  EXPECT_EQ(awaited("a slots=2\nb slots=2\nc slots=4\n", 2, {"a", "b"}), 0u) << "c has as many slots as both";
  cli::JobStart other = job("a slots=2\nb slots=2\n", -1, 1);
  EXPECT_TRUE(next_start(other, lost({"b"}))->request.awaited_hosts.empty()) << "another program may not save";
}

TEST_F(StartAgain, SaysWhyThereIsNone) {
  const auto why_not = [](const cli::JobStart& before, const cli::JobOutcome& outcome) {
    const cli::NextStart next = cli::start_again(before, outcome);
    EXPECT_FALSE(next.start);
    return next.why_not;
  };
  const cli::JobStart two = job("a slots=2\nb slots=2\n", -1, -1);
  EXPECT_EQ(why_not(two, lost({"b"})), "1 of 2 hosts are left, and the job needs 2 (--min_nodes)");
  EXPECT_EQ(why_not(job("a slots=2\nb slots=2\nc slots=2\n", -1, 2), lost({"b", "c"})),
            "1 of 3 hosts are left, and --min_nodes is 2");
  EXPECT_EQ(why_not(two, {.exit_code = 16, .text = ""}), "what ends with exit code 16 would only happen again");
  cli::JobStart used_up = two;
  used_up.failures = 2;
  EXPECT_EQ(why_not(used_up, lost({})), "it has started again 2 times (--max_restarts)");
  cli::JobStart train = job("a slots=2\nb slots=2\n", -1, 1);
  train.request.program = {"trivet", "train", config(R"("train_micro_batch_size_per_gpu": 1)")};
  EXPECT_EQ(why_not(train, lost({"b"})),
            "no number of ranks up to 2 can train with the batch of 4 ranks; give train_batch_size, and not "
            "gradient_accumulation_steps");
}

TEST_F(StartAgain, AnAddressOfALostHostIsForgotten) {
  cli::JobStart start = job("a slots=1\nb slots=1\n", -1, 1);
  start.request.master_address = start.address_of_first = "10.0.0.1";
  EXPECT_EQ(next_start(start, lost({"b"}))->request.master_address, "10.0.0.1");
  const auto without = next_start(start, lost({"a"}));
  EXPECT_EQ(without->request.master_address, "");
  EXPECT_EQ(next_start(*without, {.exit_code = 143, .text = "", .returned_hosts = {"a"}})->request.master_address, "10.0.0.1");
}

TEST_F(StartAgain, OnlyAfterFailuresThatMayNotHappenAgain) {
  const cli::JobStart start = job("a slots=2\n", -1, -1);
  const auto again = [&](cli::JobOutcome outcome) { return next_start(start, outcome).has_value(); };
  for (const int code : {1, 10, 11, 13, 19, 21, 22, 70, 137, 139}) EXPECT_TRUE(again({.exit_code = code, .text = ""})) << code;
  for (const int code : {2, 12, 14, 15, 16, 18, 20}) EXPECT_FALSE(again({.exit_code = code, .text = ""})) << code;
  EXPECT_FALSE(again({.exit_code = 143, .text = "", .ended_by_signal = true}));
}

TEST_F(StartAgain, AsManyRanksAsCanTrainTheSameBatch) {
  cli::JobStart start = job("a slots=3\nb slots=3\nc slots=2\n", -1, 1);
  start.request.program = {"trivet", "train", config(R"("train_batch_size": 8, "train_micro_batch_size_per_gpu": 1)")};
  auto next = next_start(start, lost({"c"}));
  ASSERT_TRUE(next);
  EXPECT_THAT(names(*next), ElementsAre("a:3", "b:1")) << "8 samples go on 4 ranks, not on 5 or 6";
  EXPECT_EQ(next->hosts[0].world_size, 4);
  // A pipeline needs two ranks for each copy of the model.
  start = job("a slots=3\nb slots=3\n", -1, 1);
  const std::string pipeline = R"("train_batch_size": 12, "train_micro_batch_size_per_gpu": 1, "parallel": {"pipeline": 2})";
  start.request.program = {"trivet", "train", config(pipeline)};
  next = next_start(start, lost({"b"}));
  ASSERT_TRUE(next);
  EXPECT_THAT(names(*next), ElementsAre("a:2"));
  // Shards are on runs of two ranks.
  start = job("a slots=3\nb slots=1\n", -1, 1);
  start.request.program = {"trivet", "train", config(R"("train_batch_size": 12, "train_micro_batch_size_per_gpu": 1,
                                                        "zero_optimization": {"stage": 3, "mics_shard_size": 2})")};
  next = next_start(start, lost({"b"}));
  ASSERT_TRUE(next);
  EXPECT_THAT(names(*next), ElementsAre("a:2"));
}

TEST_F(StartAgain, AsManyRanksAsElasticityAccepts) {
  cli::JobStart start = job("a slots=5\nb slots=3\n", -1, 1);
  // 48 samples: 1, 2, 3, 4, 6, 8, 12 ... ranks.
  const std::string file =
      config(R"("elasticity": {"enabled": true, "max_train_batch_size": 50, "micro_batch_sizes": [2, 3, 4]})");
  start.request.program = {"trivet", "train", file};
  const auto next = next_start(start, lost({"b"}));
  ASSERT_TRUE(next);
  EXPECT_THAT(names(*next), ElementsAre("a:4"));
}

TEST_F(StartAgain, NoneIfTheBatchWouldChange) {
  cli::JobStart start = job("a slots=2\nb slots=2\n", -1, 1);
  for (const char* batch :
       {R"("train_micro_batch_size_per_gpu": 1)",
        R"("train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2)"}) {
    start.request.program = {"trivet", "train", config(batch)};
    EXPECT_TRUE(next_start(start, lost({}))) << batch;
    EXPECT_FALSE(next_start(start, lost({"b"}))) << batch;
  }
}

TEST_F(StartAgain, ResumesFromItsOwnCheckpointsOnceItHasSome) {
  cli::JobStart start = job("a slots=2\n", -1, -1);
  const std::string file = config(R"("train_batch_size": 8)");
  start.request.program = {"trivet", "train", file, "--resume", "other", "--set", "training.seed=3", "--metrics", "m.jsonl"};
  EXPECT_THAT(next_start(start, lost({}))->request.program,
              ElementsAre("trivet", "train", file, "--set", "training.seed=3", "--resume", "other", "--metrics", "m.jsonl"));
  std::filesystem::create_directories(folder_.at("saved/step-00000010"));
  EXPECT_THAT(next_start(start, lost({}))->request.program,
              ElementsAre("trivet", "train", file, "--set", "training.seed=3", "--metrics", "m.jsonl", "--resume"));
  start.request.program = {"python3", "train.py"};
  EXPECT_THAT(next_start(start, lost({}))->request.program, ElementsAre("python3", "train.py"));
}

// The host of the launcher may have lost its directory, or may not be one of the job's hosts.
TEST_F(StartAgain, ResumesFromStepsThatOnlyOtherHostsHave) {
  cli::JobStart start = job("a slots=2\nb slots=2\n", -1, 1);
  const std::string file = config(R"("train_batch_size": 8)");
  start.request.program = {"trivet", "train", file, "--set", "checkpoint.replicas=1"};
  EXPECT_THAT(next_start(start, lost({"b"}))->request.program,
              ElementsAre("trivet", "train", file, "--set", "checkpoint.replicas=1", "--resume"));
  start.request.program.insert(start.request.program.end(), {"--resume", "other"});
  EXPECT_THAT(next_start(start, lost({"b"}))->request.program,
              ElementsAre("trivet", "train", file, "--set", "checkpoint.replicas=1", "--resume", "other"));
}

TEST_F(StartAgain, ResumesFromStepsInMemory) {
  cli::JobStart start = job("a slots=2\nb slots=2\n", -1, 1);
  const std::vector<std::string> program{"trivet",
                                         "train",
                                         config(R"("train_batch_size": 8)"),
                                         "--set",
                                         "checkpoint.memory.every_steps=1",
                                         "--set",
                                         "checkpoint.memory.directory=" + folder_.at("memory")};
  start.request.program = program;
  EXPECT_EQ(next_start(start, lost({"b"}))->request.program.back(), "--resume");
  start.request.program.insert(start.request.program.end(), {"--resume", "other"});
  EXPECT_EQ(next_start(start, lost({"b"}))->request.program.back(), "other");
  std::filesystem::create_directories(folder_.at("memory/step-00000010"));
  EXPECT_EQ(next_start(start, lost({"b"}))->request.program.back(), "--resume");
}

TEST_F(StartAgain, DoesNotContinueAnotherRun) {
  cli::JobStart start = job("a slots=2\n", -1, -1);
  const std::string file = config(R"("train_batch_size": 8)");
  std::filesystem::create_directories(folder_.at("saved/step-00000010"));  // of another run: nobody asked to resume from it
  start.request.program = {"trivet", "train", file};
  start = cli::first_start(start.request, start.candidates);
  EXPECT_THAT(next_start(start, lost({}))->request.program, ElementsAre("trivet", "train", file));
  start.request.program.emplace_back("--resume");
  start = cli::first_start(start.request, start.candidates);
  EXPECT_THAT(next_start(start, lost({}))->request.program, ElementsAre("trivet", "train", file, "--resume"));
}

TEST_F(StartAgain, DoesNotContinueAnotherRunFromMemory) {
  cli::JobStart start = job("a slots=2\n", -1, -1);
  std::filesystem::create_directories(folder_.at("memory/step-00000010"));
  start.request.program = {"trivet",
                           "train",
                           config(R"("train_batch_size": 8)"),
                           "--set",
                           "checkpoint.memory.every_steps=1",
                           "--set",
                           "checkpoint.memory.directory=" + folder_.at("memory")};
  start = cli::first_start(start.request, start.candidates);
  EXPECT_NE(next_start(start, lost({}))->request.program.back(), "--resume");
}

TEST_F(StartAgain, NotOfAConfigThatHasBecomeWrong) {
  cli::JobStart start = job("a slots=2\n", -1, -1);
  start.request.program = {"trivet", "train", folder_.write("config.json", "{\"model\":")};
  EXPECT_FALSE(next_start(start, lost({})));
}

std::vector<std::string> launch(const std::string& flags, const std::string& script) {
  std::vector<std::string> command{kTrivet, "launch", "--num_gpus", "2"};
  std::istringstream words(flags);
  for (std::string word; words >> word;) command.push_back(word);
  command.insert(command.end(), {"/bin/sh", "-c", script});
  return command;
}

TEST(Restart, EveryStartHasItsNumberAndAddsToTheLogs) {
  const TemporaryFolder folder;
  LaunchedProcess process(launch("--max_restarts 2 --enable_each_rank_log " + folder.path(),
                                 "echo start $TRIVET_EPOCH of rank $RANK; [ $TRIVET_EPOCH = 2 ] || [ $RANK = 0 ] || exit 3"));
  EXPECT_EQ(process.wait(), 0) << process.output();
  EXPECT_EQ(folder.read("rank_1.out"), "start 0 of rank 1\nstart 1 of rank 1\nstart 2 of rank 1\n");
  EXPECT_THAT(process.output(), HasSubstr("ended with exit code 3; restart 2 of 2, on 1 host with 2 ranks\n"));
}

TEST(Restart, IsNotTriedWhenTheyAreUsedUp) {
  LaunchedProcess process(launch("--max_restarts 1", "exit 3"));
  EXPECT_EQ(process.wait(), 3);
  EXPECT_THAT(process.output(), HasSubstr("restart 1 of 1"));
  EXPECT_THAT(process.output(), HasSubstr("; no restart: it has started again 1 time (--max_restarts)"));
}

TEST_F(StartAgain, ComesAfterAPauseIfAJobFailsSoonAfterEachStart) {
  using std::chrono::seconds;
  const cli::JobOutcome failed{.exit_code = 1, .text = "failed"};
  std::vector<int64_t> pauses;
  for (int failures = 0, i = 0; i < 9; ++i) {
    failures = cli::quick_failures_after(failures, failed, seconds(59));
    pauses.push_back(cli::pause_before_start(failures).count());
  }
  EXPECT_THAT(pauses, ElementsAre(0, 1, 2, 4, 8, 16, 30, 30, 30));
  EXPECT_EQ(cli::quick_failures_after(5, failed, seconds(60)), 0) << "it had run";
  EXPECT_EQ(cli::quick_failures_after(5, lost({"b"}), seconds(1)), 5) << "not the job's fault";
  EXPECT_EQ(cli::quick_failures_after(5, {.exit_code = 143, .text = "", .returned_hosts = {"b"}}, seconds(1)), 5);
}

TEST(Restart, IsNotTriedAfterASignalToTheLauncher) {
  LaunchedProcess process(launch("--max_restarts 5", "echo ready; sleep 20"));
  ASSERT_TRUE(process.prints("ready", 2)) << process.output();
  ::kill(process.pid(), SIGTERM);
  EXPECT_EQ(process.wait(), 128 + SIGTERM);
  EXPECT_THAT(process.output(), ::testing::Not(HasSubstr("restart")));
}

// Two quick failures, then a pause of a second, in which there is no rank for SIGUSR1.
TEST(Restart, SignalsInThePauseBeforeAStart) {
  const std::string command = "echo start $TRIVET_EPOCH; [ $TRIVET_EPOCH != 3 ] || { echo ready; sleep 20; }; exit 3";
  LaunchedProcess process(launch("--max_restarts 5", command));
  ASSERT_TRUE(process.prints("restart 2 of 5", 1)) << process.output();
  ::kill(process.pid(), SIGUSR1);
  ASSERT_TRUE(process.prints("signal 10 (SIGUSR1) came between two starts, when there was no rank to pass it on to", 1))
      << process.output();
  ASSERT_TRUE(process.prints("start 2", 2)) << process.output();
  ASSERT_TRUE(process.prints("restart 3 of 5", 1)) << process.output();  // now a pause of two seconds
  ::kill(process.pid(), SIGTERM);
  EXPECT_EQ(process.wait(), 128 + SIGTERM);
  EXPECT_THAT(process.output(), HasSubstr("launch: ended by signal 15 (SIGTERM) before the job started again"));
  EXPECT_THAT(process.output(), ::testing::Not(HasSubstr("ready")));
}

TEST(GuardedOutcome, SaysThatASignalToTheLauncherEndedIt) {
  // As before the ranks have started: the job itself ends with an error that does not say so.
  cli::LauncherSide side;
  const cli::JobOutcome got = cli::run_guarded(
      [&](const cli::GuardianEnds& ends) -> cli::JobOutcome {
        ::kill(::getppid(), SIGTERM);
        int signal = 0;
        if (::recv(ends.orders, &signal, sizeof signal, 0) != sizeof signal || signal != SIGTERM) return {};
        throw Error(ExitCode::Rendezvous, "ended before the ranks started");
      },
      side);
  EXPECT_EQ(got.exit_code, 13);
  EXPECT_TRUE(got.ended_by_signal);
}

TEST(Restart, FlagsThatDoNotGoTogetherAreRefused) {
  LaunchedProcess other(launch("--max_restarts 1 --launcher slurm", "exit 3"));
  EXPECT_EQ(other.wait(), 2);
  EXPECT_THAT(other.output(), HasSubstr("--max_restarts: only works where this launcher starts all ranks"));
  LaunchedProcess alone(launch("--min_nodes 1", "exit 3"));
  EXPECT_EQ(alone.wait(), 2);
  EXPECT_THAT(alone.output(), HasSubstr("--min_nodes: is only used with --max_restarts"));
  LaunchedProcess too_many(launch("--max_restarts 1 --min_nodes 2", "exit 3"));
  EXPECT_EQ(too_many.wait(), 2);
  EXPECT_THAT(too_many.output(), HasSubstr("--min_nodes 2: the job has only 1 host"));
  LaunchedProcess only_printed(launch("--max_restarts 1 --min_nodes 2 --dry-run", "exit 3"));
  EXPECT_EQ(only_printed.wait(), 2);
}

// The losses of all steps of a metrics file.
std::map<std::string, std::string> losses(const std::string& metrics) {
  std::map<std::string, std::string> found;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    const auto value = [&](const std::string& key) {
      const size_t at = line.find("\"" + key + "\":");
      return at == std::string::npos ? "" : line.substr(at, line.find_first_of(",}", at) - at);
    };
    found[value("step")] = value("loss_bits");
  }
  return found;
}

TEST(Restart, OfATrainingRunEndsWithTheBitsOfAnUndisturbedOne) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "a line to learn, number " + std::to_string(i % 37) + "\n";
  folder.write("text.txt", text);
  const std::string config = folder.write(
      "config.json",
      R"({"model": {"type": "gpt", "layers": 1, "hidden_size": 16, "heads": 2, "sequence_length": 16, "vocabulary": "bytes"},
          "data": {"train": ")" +
          folder.at("text.txt") + R"("}, "training": {"steps": 40}, "reproducible": "layout",
          "train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2},
          "checkpoint": {"directory": ")" +
          folder.at("saved") + R"(", "every_steps": 5}})");
  const auto train = [&](const std::string& metrics) {
    return kTrivet + " train " + config + " --metrics " + folder.at(metrics);
  };
  LaunchedProcess undisturbed(launch("", train("whole.jsonl") + " --set checkpoint.directory=" + folder.at("other")));
  ASSERT_EQ(undisturbed.wait(), 0) << undisturbed.output();
  // The first start ends when some steps are saved: rank 1 kills itself as soon as step 10 is there.
  LaunchedProcess disturbed({kTrivet, "launch", "--num_gpus", "2", "--max_restarts", "1", "/bin/sh", "-c",
                             "if [ $TRIVET_EPOCH = 0 ]; then " + train("disturbed.jsonl") +
                                 " & child=$!; "
                                 "while [ $RANK = 1 ] && [ ! -e " +
                                 folder.at("saved/step-00000010") +
                                 " ]; do sleep 0.01; done; "
                                 "[ $RANK = 0 ] || kill -9 $child; wait $child; else exec " +
                                 train("disturbed.jsonl") + " --resume; fi"});
  ASSERT_EQ(disturbed.wait(), 0) << disturbed.output();
  EXPECT_THAT(disturbed.output(), HasSubstr("restart 1 of 1"));
  const auto whole = losses(folder.read("whole.jsonl"));
  ASSERT_EQ(whole.size(), 40u);
  EXPECT_EQ(losses(folder.read("disturbed.jsonl")), whole);
}

}  // namespace
}  // namespace trivet::test
