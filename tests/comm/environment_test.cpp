#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <iterator>
#include <sstream>

#include "comm/world.h"
#include "core/error.h"

namespace trivet::comm {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

// "NAME=value NAME=value ..."; values have no spaces.
Environment variables(const std::string& text) {
  Environment all;
  for (const std::string& word : words_of(text)) all[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  return all;
}

Environment tf_config(const std::string& json) { return {{"TF_CONFIG", json}}; }

struct Row {
  const char* name;
  Environment environment;
  Place place;
};

Place place(const char* source, int rank, int world, int local, int local_size, const char* address, int port) {
  Place p;
  p.source = source;
  p.rank = rank, p.world_size = world, p.local_rank = local, p.local_size = local_size;
  p.master_address = address, p.master_port = port;
  return p;
}

const char* const kChiefAndWorkers =
    R"({"cluster": {"chief": ["a:2222"], "worker": ["a:2223", "b:2222"], "ps": []}, "task": {"type": "worker", "index": 0}})";
const char* const kWorkersOnly =
    R"({"cluster": {"worker": ["127.0.0.1:2222", "127.0.0.1:2223"]}, "task": {"type": "worker", "index": 1}, "environment": "cloud"})";

const std::vector<Row> kRows{
    {"Nothing", variables("HOME=/root"), place("none", 0, 1, 0, 1, "127.0.0.1", 0)},
    {"Torchrun", variables("RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=b MASTER_PORT=6105"),
     place("RANK", 3, 4, 1, 2, "b", 6105)},
    {"TorchrunThatListensOnThePortItself",
     variables("RANK=1 WORLD_SIZE=2 MASTER_ADDR=b MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True"),
     place("RANK", 1, 2, 1, 2, "b", 29501)},
    {"TorchrunThatListensOnTheLastPort",
     variables("RANK=1 WORLD_SIZE=2 MASTER_ADDR=b MASTER_PORT=65535 TORCHELASTIC_USE_AGENT_STORE=True"),
     place("RANK", 1, 2, 1, 2, "b", 65534)},
    {"TrivetLaunchUnderTorchrun",
     variables("RANK=1 WORLD_SIZE=2 MASTER_ADDR=b MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True TRIVET_LAUNCHER_FD=5"),
     place("RANK", 1, 2, 1, 2, "b", 29500)},
    {"TorchrunWithoutAStore",
     variables("RANK=1 WORLD_SIZE=2 MASTER_ADDR=b MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=False"),
     place("RANK", 1, 2, 1, 2, "b", 29500)},
    {"LocalRankMissingMeansOneHost", variables("RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500"),
     place("RANK", 1, 2, 1, 2, "localhost", 29500)},
    {"WorldOfOneNeedsNoAddress", variables("RANK=0 WORLD_SIZE=1"), place("RANK", 0, 1, 0, 1, "127.0.0.1", 0)},
    {"WorldSizeOfOneAlone", variables("WORLD_SIZE=1"), place("none", 0, 1, 0, 1, "127.0.0.1", 0)},
    {"RankComesBeforeOpenMpi", variables("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 OMPI_COMM_WORLD_RANK=5"),
     place("RANK", 0, 2, 0, 2, "a", 1)},
    {"TensorFlowWorkerAfterAChief", tf_config(kChiefAndWorkers), place("TF_CONFIG", 1, 3, 1, 2, "a", 2222)},
    {"TensorFlowWorkersOnly", tf_config(kWorkersOnly), place("TF_CONFIG", 1, 2, 1, 2, "127.0.0.1", 2222)},
    {"TensorFlowWorkerWithParameterServersAndAnEvaluator",
     tf_config(R"({"cluster": {"chief": ["a:1"], "worker": ["b:1"], "ps": ["a:2", "c:1"], "evaluator": ["d:1"]},
                   "task": {"type": "worker", "index": 0}})"),
     place("TF_CONFIG", 1, 2, 0, 1, "a", 1)},
    {"TensorFlowWithoutCluster", tf_config("{}"), place("TF_CONFIG", 0, 1, 0, 1, "127.0.0.1", 0)},
    {"OpenMpiOnOneHost",
     variables("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=4"),
     place("OMPI_COMM_WORLD_RANK", 2, 4, 2, 4, "127.0.0.1", 29500)},
    {"OpenMpiInAzureOnTwoHosts",
     variables("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
               "AZUREML_EXPERIMENT_ID=x AZ_BATCH_MASTER_NODE=10.0.0.4:6000"),
     place("OMPI_COMM_WORLD_RANK", 2, 4, 0, 2, "10.0.0.4", 6105)},
    {"OpenMpiWithAWorldSizeThatAgrees",
     variables("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 WORLD_SIZE=2 MASTER_PORT=7000"),
     place("OMPI_COMM_WORLD_RANK", 0, 2, 0, 2, "127.0.0.1", 7000)},
    {"Mpich", variables("PMI_RANK=1 PMI_SIZE=3 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=3"),
     place("PMI_RANK", 1, 3, 1, 3, "127.0.0.1", 29500)},
    {"MpichOnTwoHosts", variables("PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 MASTER_ADDR=n1"),
     place("PMI_RANK", 3, 4, 1, 2, "n1", 29500)},
    {"SlurmOnOneNode", variables("SLURM_PROCID=1 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_LOCALID=1"),
     place("SLURM_PROCID", 1, 2, 1, 2, "127.0.0.1", 29500)},
    {"SlurmTasksPerNodeWithoutTheNumberOfNodes",
     variables("SLURM_PROCID=5 SLURM_STEP_ID=0 SLURM_NTASKS=8 SLURM_NNODES=2 SLURM_TASKS_PER_NODE=4 MASTER_ADDR=n1"),
     place("SLURM_PROCID", 5, 8, 1, 4, "n1", 29500)},
    {"SlurmStepOnTwoNodes",  // SLURM_LAUNCH_NODE_IPADDR is where srun runs, which may be a login node
     variables("SLURM_PROCID=5 SLURM_STEP_ID=3 SLURM_NTASKS=16 SLURM_STEP_NUM_TASKS=8 SLURM_STEP_NUM_NODES=2 "
               "SLURM_STEP_TASKS_PER_NODE=4(x2) SLURM_LOCALID=1 SLURM_JOB_NODELIST=n[1-4] SLURM_STEP_NODELIST=n[3-4] "
               "SLURM_LAUNCH_NODE_IPADDR=10.0.0.9"),
     place("SLURM_PROCID", 5, 8, 1, 4, "n3", 29500)},
    {"SlurmNodesOfDifferentSizes",
     variables("SLURM_PROCID=5 SLURM_STEP_ID=0 SLURM_NTASKS=8 SLURM_NNODES=3 SLURM_NODEID=2 SLURM_LOCALID=1 "
               "SLURM_TASKS_PER_NODE=1,3,4 SLURM_JOB_NODELIST=c[007-009]-x[1,3],d5"),
     place("SLURM_PROCID", 5, 8, 1, 4, "c007-x1", 29500)},
    {"SlurmTasksDealtInTurn",  // srun -m cyclic: ranks 0, 2, 3 are on the first node
     variables("SLURM_PROCID=3 SLURM_STEP_ID=0 SLURM_NTASKS=4 SLURM_NNODES=2 SLURM_NODEID=0 SLURM_LOCALID=2 "
               "SLURM_GTIDS=0,2,3 SLURM_TASKS_PER_NODE=3,1 SLURM_STEP_NODELIST=login,n1"),
     place("SLURM_PROCID", 3, 4, 2, 3, "login", 29500)},
    {"SlurmBatchScriptWithoutSrun", variables("SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_NNODES=2"), Place{.source = "none"}},
};

class PlaceFromEnvironment : public ::testing::TestWithParam<size_t> {};

TEST_P(PlaceFromEnvironment, IsFound) {
  const Row& row = kRows[GetParam()];
  const Place found = place_from_environment(row.environment);
  EXPECT_EQ(found.source, row.place.source);
  EXPECT_EQ(found.rank, row.place.rank);
  EXPECT_EQ(found.world_size, row.place.world_size);
  EXPECT_EQ(found.local_rank, row.place.local_rank);
  EXPECT_EQ(found.local_size, row.place.local_size);
  EXPECT_EQ(found.master_address, row.place.master_address);
  EXPECT_EQ(found.master_port, row.place.master_port);
}

INSTANTIATE_TEST_SUITE_P(All, PlaceFromEnvironment, ::testing::Range(size_t{0}, kRows.size()),
                         [](const auto& test) { return std::string(kRows[test.param].name); });

struct BadRow {
  const char* name;
  Environment environment;
  const char* message;
};

Environment changed(const std::string& text, const Environment& changes) {
  Environment all = variables(text);
  for (const auto& [name, value] : changes) all[name] = value;
  return all;
}

Environment rank_variables(const Environment& changes) {
  return changed("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500", changes);
}

Environment slurm(const Environment& changes) {
  return changed(
      "SLURM_PROCID=5 SLURM_STEP_ID=0 SLURM_NTASKS=8 SLURM_NNODES=2 SLURM_TASKS_PER_NODE=4(x2) SLURM_LOCALID=1 MASTER_ADDR=n1 "
      "MASTER_PORT=7000",
      changes);
}

const std::vector<BadRow>& bad_rows() {
  static const std::vector<BadRow> table{
      {"RankIsNoNumber", rank_variables({{"RANK", "one"}}), "RANK=one: must be a whole number from 0 to 1"},
      {"RankAfterTheLast", rank_variables({{"RANK", "2"}}), "RANK=2: must be a whole number from 0 to 1"},
      {"RankNegative", rank_variables({{"RANK", "-1"}}), "RANK=-1: must be a whole number from 0 to 1"},
      {"RankHuge", rank_variables({{"RANK", "99999999999999999999"}}),
       "RANK=99999999999999999999: must be a whole number from 0 to 1"},
      {"RankWithTail", rank_variables({{"RANK", "1x"}}), "RANK=1x: must be"},
      {"WorldSizeZero", rank_variables({{"WORLD_SIZE", "0"}}), "WORLD_SIZE=0: must be a whole number from 1 to 1048576"},
      {"WorldSizeFraction", rank_variables({{"WORLD_SIZE", "2.0"}}), "WORLD_SIZE=2.0: must be a whole number"},
      {"WorldSizeMissing", rank_variables({{"WORLD_SIZE", ""}}), "WORLD_SIZE: is not set"},
      {"LocalRankAfterTheLast", rank_variables({{"LOCAL_RANK", "2"}}), "LOCAL_RANK=2: must be a whole number from 0 to 1"},
      {"LocalSizeTooLarge", rank_variables({{"LOCAL_SIZE", "3"}}), "LOCAL_SIZE=3: must be a whole number from 1 to 2"},
      {"AddressMissing", rank_variables({{"MASTER_ADDR", ""}}), "MASTER_ADDR: is not set"},
      {"PortMissing", rank_variables({{"MASTER_PORT", ""}}), "MASTER_PORT: is not set"},
      {"PortTooLarge", rank_variables({{"MASTER_PORT", "65536"}}), "MASTER_PORT=65536: must be a whole number from 0 to 65535"},
      {"PortZeroWithoutLauncher", rank_variables({{"MASTER_PORT", "0"}}),
       "MASTER_PORT=0: only `trivet launch` can find a free port"},
      {"RankMissing", {{"WORLD_SIZE", "4"}}, "WORLD_SIZE=4: RANK is not set"},
      {"WorldSizeContradictsOpenMpi",
       {{"WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
       "WORLD_SIZE=4: contradicts the world size 2 that comes with OMPI_COMM_WORLD_RANK"},
      {"OpenMpiSizeMissing", {{"OMPI_COMM_WORLD_RANK", "0"}}, "OMPI_COMM_WORLD_SIZE: is not set"},
      {"MpichAddressMissing", {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}}, "MASTER_ADDR: is not set"},
      {"SlurmUnevenNodesWithoutTheNumberOfThisOne", slurm({{"SLURM_TASKS_PER_NODE", "3,5"}}), "SLURM_NODEID: is not set"},
      {"SlurmTasksThatDoNotAddUp", slurm({{"SLURM_NTASKS", "7"}}),
       "SLURM_TASKS_PER_NODE=4(x2): says 8 tasks on 2 nodes; Slurm has started 7 tasks on 2 nodes"},
      {"SlurmNodesThatDoNotAddUp", slurm({{"SLURM_TASKS_PER_NODE", "2(x4)"}}),
       "SLURM_TASKS_PER_NODE=2(x4): says 8 tasks on 4 nodes; Slurm has started 8 tasks on 2 nodes"},
      {"SlurmTasksPerNodeIsNoList", slurm({{"SLURM_TASKS_PER_NODE", "4(x2"}}), "SLURM_TASKS_PER_NODE=4(x2: is not accepted"},
      {"SlurmTasksPerNodeEndsEarly", slurm({{"SLURM_TASKS_PER_NODE", "4,"}}), "SLURM_TASKS_PER_NODE=4,: is not accepted"},
      {"SlurmStepVariableIsNamed", slurm({{"SLURM_STEP_TASKS_PER_NODE", "0"}}), "SLURM_STEP_TASKS_PER_NODE=0: is not accepted"},
      {"SlurmNodeListIsCutShort", slurm({{"MASTER_ADDR", ""}, {"SLURM_STEP_NODELIST", "n[1-2"}}),
       "SLURM_STEP_NODELIST=n[1-2: is not a list of nodes"},
      {"SlurmNodeListMissing", slurm({{"MASTER_ADDR", ""}}), "MASTER_ADDR: is not set"},
      {"SlurmTasksPerNodeMissing", slurm({{"SLURM_TASKS_PER_NODE", ""}}), "SLURM_TASKS_PER_NODE: is not set"},
      {"TensorFlowNoJson", tf_config("{"), "TF_CONFIG: is not a JSON object"},
      {"TensorFlowParameterServer",
       tf_config(R"({"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}})"),
       "TF_CONFIG: task.type: \"ps\" is not a rank of the training"},
      {"TensorFlowParameterServerAfterTheLast",
       tf_config(R"({"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 1}})"),
       "TF_CONFIG: task.index: 1 is not accepted; cluster.ps has 1 entries"},
      {"TensorFlowAddressOfAParameterServer",
       tf_config(R"({"cluster": {"worker": ["a:1"], "ps": ["b"]}, "task": {"type": "worker", "index": 0}})"),
       "TF_CONFIG: \"b\" must be \"host:port\""},
      {"TensorFlowParameterServersAlone", tf_config(R"({"cluster": {"ps": ["b:1"]}, "task": {"type": "ps", "index": 0}})"),
       "TF_CONFIG: cluster has neither a chief nor a worker"},
      {"TensorFlowTwoEvaluators",
       tf_config(R"({"cluster": {"worker": ["a:1"], "evaluator": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 0}})"),
       "TF_CONFIG: cluster.evaluator has 2 entries; at most one is accepted"},
      {"TensorFlowSecondEvaluator", tf_config(R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 1}})"),
       "TF_CONFIG: task.index: 1 is not accepted; cluster.evaluator has 1 entries"},
      {"TensorFlowUnknownTask", tf_config(R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "master", "index": 0}})"),
       "TF_CONFIG: task.type: \"master\" is not accepted; use \"chief\", \"worker\", \"ps\" or \"evaluator\""},
      {"TensorFlowTwoChiefs", tf_config(R"({"cluster": {"chief": ["a:1", "b:1"]}, "task": {"type": "chief", "index": 0}})"),
       "TF_CONFIG: cluster.chief has 2 entries; at most one is accepted"},
      {"TensorFlowEvaluator", tf_config(R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 0}})"),
       "TF_CONFIG: task.type: \"evaluator\" is not a rank of the training"},
      {"TensorFlowIndex", tf_config(R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}})"),
       "TF_CONFIG: task.index: 1 is not accepted; cluster.worker has 1 entries"},
      {"TensorFlowPort", tf_config(R"({"cluster": {"worker": ["a:http"]}, "task": {"type": "worker", "index": 0}})"),
       "TF_CONFIG: \"a:http\" must be \"host:port\""},
      {"TensorFlowPortOfAnotherRank",
       tf_config(R"({"cluster": {"worker": ["a:1", "b:0"]}, "task": {"type": "worker", "index": 0}})"),
       "TF_CONFIG: \"b:0\" must be \"host:port\""},
      {"TensorFlowDeepList", tf_config("[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]"), "TF_CONFIG: is nested deeper than 16 levels"},
      {"TensorFlowListOfNumbers", tf_config(R"({"cluster": {"worker": [1]}, "task": {"type": "worker", "index": 0}})"),
       "TF_CONFIG: cluster.worker must be a list of \"host:port\""},
      {"JobIdThatIsNone", rank_variables({{"TRIVET_JOB_ID", "../x"}}), "TRIVET_JOB_ID=../x: must be at most 64 characters"},
      {"SecretDescriptorIsStdin", rank_variables({{"TRIVET_SECRET_FD", "0"}}),
       "TRIVET_SECRET_FD=0: must be a whole number from 3"},
      {"ControlCharactersAreEscaped", rank_variables({{"RANK", "1\x1b[2J"}}), "RANK=1\\x1b[2J: must be"},
  };
  return table;
}

class BadEnvironment : public ::testing::TestWithParam<size_t> {};

TEST_P(BadEnvironment, IsRefusedByName) {
  const BadRow& row = bad_rows()[GetParam()];
  EXPECT_THAT([&] { place_from_environment(row.environment); }, ThrowsMessage<ConfigError>(HasSubstr(row.message)));
}

INSTANTIATE_TEST_SUITE_P(All, BadEnvironment, ::testing::Range(size_t{0}, bad_rows().size()),
                         [](const auto& test) { return std::string(bad_rows()[test.param].name); });

// Each numeric variable of each launcher is tried with values that are not numbers or are out of range. A number in range may
// be accepted, or refused because it contradicts another variable; nothing else may happen.
struct Family {
  const char* name;
  Environment variables;
  const char* numbers;
};

std::vector<Family> families() {
  return {{"torchrun", variables("RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1"),
           "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE LOCAL_SIZE MASTER_PORT"},
          {"Open MPI",
           variables("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=4"),
           "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE MASTER_PORT "
           "WORLD_SIZE"},
          {"PMI", variables("PMI_RANK=1 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=4"),
           "PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS MASTER_PORT WORLD_SIZE"},
          {"Slurm", slurm({}),
           "SLURM_PROCID SLURM_NTASKS SLURM_STEP_NUM_TASKS SLURM_NNODES SLURM_STEP_NUM_NODES SLURM_LOCALID "
           "SLURM_TASKS_PER_NODE SLURM_STEP_TASKS_PER_NODE MASTER_PORT WORLD_SIZE"},
          {"Trivet", variables("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1"),
           "TRIVET_LISTEN_FD TRIVET_SECRET_FD TRIVET_LAUNCHER_FD TRIVET_EPOCH"}};
}

TEST(Listener, ThatIsNoListeningSocketIsRefusedByNameAndLeftOpen) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Place place;
  place.world_size = 2;
  for (const int descriptor : {ends[0], 1 << 19}) {
    place.listen_descriptor = descriptor;
    EXPECT_THAT([&] { connect(place, {}); },
                ThrowsMessage<ConfigError>(
                    HasSubstr("TRIVET_LISTEN_FD=" + std::to_string(descriptor) + ": is not a listening socket")));
  }
  EXPECT_EQ(::write(ends[0], "x", 1), 1);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(EveryNumber, OfEveryLauncherIsReadExactly) {
  std::vector<std::string> bad = words_of(
      "-1 -0x1 99999999999999 99999999999999999999999 1x 0x1 1e0 1.0 +1 nan 4(x 4(x2 4(x2)x (x2) 4(x0) 4(x99999999999999) "
      "99999999999999(x2) 0(x2) -4(x2) 4(x2),4 \x1b[2J -- ,");
  bad.insert(bad.end(), {" 1", "1 "});
  for (const Family& family : families()) {
    EXPECT_NO_THROW(place_from_environment(family.variables)) << family.name;
    for (const std::string& name : words_of(family.numbers)) {
      for (const std::string& value : bad) {
        if (name == "TRIVET_EPOCH" && value == "99999999999999") continue;  // is in range
        Environment variables = family.variables;
        variables[name] = value;
        const std::string shown = value[0] == '\x1b' ? "\\x1b[2J" : value;
        EXPECT_THAT([&] { place_from_environment(variables); },
                    ThrowsMessage<ConfigError>(StartsWith(name + "=" + shown + ": ")))
            << family.name;
      }
      for (const char* value : {"0", "1", "2", "3", "1048576", "1048577"}) {
        Environment variables = family.variables;
        variables[name] = value;
        try {
          const Place found = place_from_environment(variables);
          EXPECT_GE(found.rank, 0);
          EXPECT_LT(found.rank, found.world_size);
          EXPECT_GE(found.local_rank, 0);
          EXPECT_LT(found.local_rank, found.local_size);
          EXPECT_LE(found.local_size, found.world_size);
          EXPECT_GE(found.master_port, 0);
          EXPECT_LE(found.master_port, 65535);
        } catch (const ConfigError&) {
        }
      }
    }
  }
}

TEST(TfConfig, OfAnyShapeIsReadOrRefusedByName) {
  const auto expect_refused = [](const std::string& text) {
    EXPECT_THAT([&] { place_from_environment(tf_config(text)); }, ThrowsMessage<ConfigError>(StartsWith("TF_CONFIG: ")))
        << text;
  };
  EXPECT_EQ(place_from_environment({{"TF_CONFIG", ""}}).source, "none") << "an empty variable counts as not set";
  for (const char* text : {" ", "{", "[]", "null", "1", "\"x\"", R"({"cluster": 1})", R"({"cluster": []})",
                           R"({"cluster": {"chief": {"0": "a:1"}}, "task": {"type": "chief"}})"})
    expect_refused(text);
  for (const char* workers : {R"("a:1")", "[null]", "[]", R"([""])", R"(["a:1"])"})
    expect_refused(fmt::format(R"({{"cluster": {{"worker": {}}}}})", workers));
  for (const char* address : {"a:0", "a:65536", "a:-1", "a:99999999999999", ":1"})
    expect_refused(fmt::format(R"({{"cluster": {{"worker": ["{}"]}}, "task": {{"type": "worker", "index": 0}}}})", address));
  for (const char* task : {"1", R"({"type": 1})"})
    expect_refused(fmt::format(R"({{"cluster": {{"worker": ["a:1"]}}, "task": {}}})", task));
  for (const char* index : {"-1", "99999999999999999999999", "18446744073709551615", "0.5", R"("0")"})
    expect_refused(fmt::format(R"({{"cluster": {{"worker": ["a:1"]}}, "task": {{"type": "worker", "index": {}}}}})", index));
  std::string deep = R"({"cluster": )";
  for (int i = 0; i < 50000; ++i) deep += "[";
  EXPECT_THROW(place_from_environment({{"TF_CONFIG", deep}}), ConfigError);
}

TEST(IdleTask, IsAParameterServerOrTheEvaluatorOfTensorFlow) {
  const auto task = [](const std::string& type) {
    return idle_task(
        {{"TF_CONFIG", R"({"cluster": {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1", "d:1"]}, "task": {"type": ")" + type +
                           R"(", "index": 0}})"}});
  };
  EXPECT_EQ(task("chief"), std::nullopt);
  EXPECT_EQ(task("worker"), std::nullopt);
  EXPECT_THAT(task("ps").value_or(""), HasSubstr("this is parameter server 0 of 2; the ranks keep the states"));
  EXPECT_THAT(task("evaluator").value_or(""), HasSubstr("this is the evaluator; the ranks evaluate while they train"));
  EXPECT_EQ(idle_task({}), std::nullopt);
  EXPECT_EQ(idle_task({{"TF_CONFIG", "{}"}}), std::nullopt);
  EXPECT_THROW(idle_task({{"TF_CONFIG", "{"}}), ConfigError);
}

TEST(IdleTask, IsARankIfRankSaysSo) {
  const char* server = R"({"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}})";
  EXPECT_EQ(idle_task(rank_variables({{"TF_CONFIG", server}})), std::nullopt);
}

TEST(CurrentEnvironment, HasWhatIsSet) {
  ::setenv("TRIVET_TEST_VARIABLE", "a=b", 1);
  EXPECT_EQ(current_environment().at("TRIVET_TEST_VARIABLE"), "a=b");
}

}  // namespace
}  // namespace trivet::comm
