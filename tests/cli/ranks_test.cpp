// `--ranks N` runs ranks as threads of one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>

#include "cli/run_job.h"
#include "comm/socket.h"
#include "tests/cli/program.h"

namespace trivet::test {
namespace {

using testing::HasSubstr;

class Ranks : public testing::Test {
 protected:
  Ranks() {
    folder.write("text.txt", std::string(400, 'a') + "b");
    folder.write("config.json", R"({
      "model": {"layers": 1, "hidden_size": 16, "heads": 2, "sequence_length": 16, "vocabulary": "characters"},
      "data": {"train": "text.txt"}, "training": {"steps": 1}, "train_batch_size": 4
    })");
  }
  Folder folder;
};

TEST(WorldOptions, AreThoseOfTheConfig) {
  CommunicationConfig config;
  const comm::WorldOptions defaults = cli::world_options(config);
  EXPECT_EQ(defaults.join_deadline, std::chrono::seconds(30));
  EXPECT_EQ(defaults.silence_deadline, std::chrono::milliseconds(4250));
  EXPECT_EQ(defaults.operation_deadline, std::chrono::minutes(10));
  config.transport = TransportChoice::Ucx;
  config.interface = "ib0";
  config.sums = SumsChoice::Exchange;
  config.join_seconds = 60.5;
  config.silence_seconds = 0.75;
  config.progress_seconds = 20;
  const comm::WorldOptions options = cli::world_options(config);
  EXPECT_EQ(options.transport, "ucx");
  EXPECT_EQ(options.network_interface, "ib0");
  EXPECT_EQ(options.sums, comm::HostSums::Exchange);
  EXPECT_EQ(options.join_deadline, std::chrono::milliseconds(60500));
  EXPECT_EQ(options.silence_deadline, std::chrono::milliseconds(750));
  EXPECT_EQ(options.operation_deadline, std::chrono::seconds(20));
}

TEST_F(Ranks, NameTheMissingOnesAfterJoinSeconds) {
  const std::string port = std::to_string(comm::port_of(comm::listen_on("127.0.0.1", 0)));  // free again after this line
  const Output output = folder.run_in("env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port,
                                      "train config.json --set communication.join_seconds=0.3");
  EXPECT_EQ(output.code, 13);
  EXPECT_THAT(output.errors, HasSubstr("1 of 2 ranks did not join in 0.3 s: 1"));
}

TEST_F(Ranks, TasksOfTensorFlowThatAreNoneEndAtOnce) {
  const auto as_task = [&](const std::string& type, const std::string& command) {
    return folder.run_in(
        R"(env 'TF_CONFIG={"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": ")" + type + R"("}}')", command);
  };
  for (const char* command : {"train config.json --ddp --metrics metrics.jsonl", "tune config.json"}) {
    const Output server = as_task("ps", command), evaluator = as_task("evaluator", command);
    EXPECT_EQ(server.code, 0) << server.errors;
    EXPECT_EQ(evaluator.code, 0) << evaluator.errors;
    EXPECT_THAT(server.text, HasSubstr("TF_CONFIG: this is parameter server 0 of 1; the ranks keep the states themselves"));
    EXPECT_THAT(evaluator.text, HasSubstr("TF_CONFIG: this is the evaluator; the ranks evaluate while they train"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/metrics.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/autotuning_results"));
}

TEST_F(Ranks, ShareTheCoresOfTheProcess) {
  cpu_set_t set;
  ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  const int cores = CPU_COUNT(&set);
  for (const int ranks : {1, 2, 4}) {
    const Output output = folder.run_in("env -u OMP_NUM_THREADS", "train config.json --ranks " + std::to_string(ranks));
    EXPECT_EQ(output.code, 0) << output.errors;
    EXPECT_THAT(output.text, HasSubstr("kernel threads per rank: " + std::to_string(std::max(cores / ranks, 1)) + "\n"));
  }
  EXPECT_THAT(folder.run_in("env OMP_NUM_THREADS=3", "train config.json --ranks 2").text,
              HasSubstr("kernel threads per rank: 3\n"));
  EXPECT_THAT(folder.run_in("env OMP_NUM_THREADS=2,1", "train config.json").text, HasSubstr("kernel threads per rank: 2\n"));
}

TEST_F(Ranks, RefuseThreadsThatAreNoNumber) {
  for (const char* threads : {"all", "0", "-1", "2x", "", "99999999999"}) {
    const Output output = folder.run_in(std::string("env OMP_NUM_THREADS=") + threads, "train config.json");
    EXPECT_EQ(output.code, 2) << threads;
    EXPECT_THAT(output.errors,
                HasSubstr(std::string("OMP_NUM_THREADS=") + threads + ": not accepted; use a number of threads"));
  }
}

TEST_F(Ranks, AreRefusedInAProcessThatIsARankAlready) {
  const Output output =
      folder.run_in("env RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1", "train config.json --ranks 4");
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(output.errors, HasSubstr("--ranks 4: this process is already rank 1 of 2"));
}

}  // namespace
}  // namespace trivet::test
