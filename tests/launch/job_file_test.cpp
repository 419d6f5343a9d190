// trivet launch --emit: job files equal those in tests/golden/job_files, which check_job_files.py checks against the schemas of
// Kubernetes and Azure ML. scripts/many_hosts starts the others for real.
#include <gmock/gmock.h>

#include <regex>

#include "tests/launch/launched_job.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kConfig = R"({
  "model": {"type": "gpt", "layers": 1, "hidden_size": 8, "heads": 1, "sequence_length": 8, "vocabulary": "bytes"},
  "data": {"train": "text.txt"}, "training": {"steps": 1}, "train_batch_size": 16,
  "checkpoint": {"directory": "checkpoints", "stop_seconds": 50.5}})";

class JobFile : public ::testing::Test {
 protected:
  JobFile() { folder_.write("GPT (2).json", kConfig); }

  // Runs trivet launch in the folder of the config; what it prints, or its message.
  std::string emit(const std::string& flags, const std::string& program = "'GPT (2).json'") {
    LaunchedProcess process(
        {"/bin/sh", "-c", "cd \"$0\" && exec " + kTrivet + " launch --emit " + flags + " " + program, folder_.path()});
    exit_code_ = process.wait();
    return process.output();
  }
  // The secret of Kubernetes' file is a new one each time.
  static std::string without_secret(const std::string& text) {
    return std::regex_replace(text, std::regex("[0-9a-f]{64}"), std::string(64, '0'));
  }
  static std::string golden(const std::string& name) {
    std::ifstream file(std::string(TRIVET_SOURCE_DIR) + "/tests/golden/job_files/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const TemporaryFolder folder_;
  int exit_code_ = -1;
};

TEST_F(JobFile, EqualsTheGoldenFile) {
  const std::string two_hosts = " --num_nodes 2 --num_gpus 8 ";
  EXPECT_EQ(emit("slurm --time_limit 90" + two_hosts), golden("slurm.sh"));
  EXPECT_EQ(without_secret(emit("kubernetes --time_limit 90 --image registry/trivet:1 --volume work" + two_hosts)),
            golden("kubernetes.yaml"));
  EXPECT_EQ(emit("azureml --time_limit 90 --image registry/trivet:1 --compute cluster" + two_hosts), golden("azureml.yml"));
  EXPECT_EQ(emit("torchrun" + two_hosts), golden("torchrun.sh"));
  EXPECT_EQ(emit("mpi" + two_hosts), golden("mpi.sh"));
}

TEST_F(JobFile, OfOneHostNeedsNoPlaceToMeet) {
  EXPECT_EQ(emit("torchrun --num_gpus 2"),
            "#!/bin/bash\n# GPT (2).json: 1 host with 2 ranks each.\n# Start it on that host.\nexec torchrun --no-python "
            "--standalone --nproc-per-node=2 trivet train 'GPT (2).json' --resume\n");
  EXPECT_EQ(emit("mpi --num_gpus 2"),
            "#!/bin/bash\n# GPT (2).json: 1 host with 2 ranks each.\n# Start it on the first of the hosts.\nexec mpirun -n 2 "
            "--map-by ppr:2:node --bind-to none trivet train 'GPT (2).json' --resume\n");
}

TEST_F(JobFile, NamesTheHostsOfAHostfileAndTheFirstAsMeetingPlace) {
  folder_.write("hosts", "a slots=2\nb slots=2\nc slots=2\n");
  const std::string text = emit("mpi -H hosts --exclude b");
  EXPECT_THAT(text, HasSubstr("export MASTER_ADDR=${MASTER_ADDR:-a} "));
  EXPECT_THAT(text, HasSubstr("mpirun -n 4 --map-by ppr:2:node --bind-to none --host a:2,c:2 -x"));
}

TEST_F(JobFile, AsksForGpusIfTheConfigUsesThem) {
  const std::string gpus = "'GPT (2).json' --set device=cuda";
  EXPECT_THAT(emit("slurm --num_gpus 4", gpus), HasSubstr("#SBATCH --gpus-per-node=4\n"));
  EXPECT_THAT(emit("kubernetes --num_gpus 4 --image i --volume v", gpus),
              HasSubstr("resources: {limits: {nvidia.com/gpu: 4}}\n"));
}

TEST_F(JobFile, OfAzureMountsTheValidationDataAsWell) {
  const std::string azure = "azureml --num_gpus 2 --image i --compute c";
  EXPECT_THAT(emit(azure), Not(HasSubstr("validation")));
  EXPECT_THAT(emit(azure, "'GPT (2).json' --set data.validation=other.txt"),
              ::testing::AllOf(HasSubstr(" --set data.validation=${{inputs.validation}}"),
                               HasSubstr("  validation: {type: uri_file, path: \"other.txt\", mode: ro_mount}\n")));
}

TEST_F(JobFile, ResumesOnlyWhereCheckpointsAreSaved) {
  EXPECT_THAT(emit("slurm --num_gpus 4", "'GPT (2).json' --set checkpoint.directory="),
              ::testing::AllOf(Not(HasSubstr("--resume")), Not(HasSubstr("--signal"))));
  EXPECT_THAT(emit("slurm --num_gpus 4", "'GPT (2).json' --resume"), HasSubstr("'GPT (2).json' --resume\n"));
}

TEST_F(JobFile, IsRefusedWithTheReason) {
  const auto refused = [&](const std::string& flags, const std::string& message,
                           const std::string& program = "'GPT (2).json'") {
    EXPECT_THAT(emit(flags, program), HasSubstr(message));
    EXPECT_EQ(exit_code_, 2);
  };
  refused("pbs --num_gpus 2", "--emit: pbs not in {");
  refused("slurm", "--emit: give --num_gpus, the number of ranks on each host, or a hostfile");
  refused("slurm --num_gpus 2 --save_pid", "--save_pid: has no effect in a job file (--emit); leave it out");
  refused("slurm --num_gpus 2 --image x", "--image: is not used in a job file for slurm; leave it out");
  refused("kubernetes --num_gpus 2 --volume v", "--emit: give --image, the container image that has trivet");
  refused("kubernetes --num_gpus 2 --image i", "--emit: give --volume, the name of the persistent volume claim");
  refused("azureml --num_gpus 2 --image i", "--emit: give --compute, the name of the compute cluster");
  refused("slurm --num_gpus 2", "--emit: PROGRAM must be: trivet train CONFIG", "python3 train.py");
  refused("slurm --num_gpus 2", "no.json", "no.json");
  refused("slurm --num_gpus 2", "device: \"auto\": this host cannot tell", "'GPT (2).json' --set device=auto");
  refused("slurm --num_gpus 2", "--emit: --resume with a directory", "'GPT (2).json' --resume other");
  refused("slurm --num_gpus 2", "--emit: --resume with a directory", "'GPT (2).json' --resume=other");
  refused("slurm --num_gpus 2", "checkpoint.stop_seconds 0: --emit tells", "'GPT (2).json' --set checkpoint.stop_seconds=0");
  folder_.write("hosts", "a slots=2\nb slots=3\n");
  refused("slurm -H hosts", "--emit: host \"a\" has 2 slots and \"b\" has 3; a job file needs the same number");
  refused("mpi -H hosts --include b:1,2", "--emit: host \"b\": a job file cannot choose the slots 1,2; it only has a number");
}

TEST_F(JobFile, FlagsWithoutItAreRefused) {
  LaunchedProcess process({kTrivet, "launch", "--image", "i", "/bin/true"});
  EXPECT_EQ(process.wait(), 2);
  EXPECT_THAT(process.output(), HasSubstr("--image: is only used with --emit"));
}

TEST_F(JobFile, OfTheSameRunNeverHasTheSameSecret) {
  const std::string flags = "kubernetes --num_gpus 2 --image i --volume v";
  const std::string one = emit(flags), two = emit(flags);
  EXPECT_NE(one, two);
  EXPECT_EQ(without_secret(one), without_secret(two));
}

}  // namespace
}  // namespace trivet::test
