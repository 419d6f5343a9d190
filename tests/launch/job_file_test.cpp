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
  "data": {"train": "text.txt"}, "training": {"steps": 1}, "train_batch_size": 48,
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

TEST_F(JobFile, OfKubernetesTellsOfPathsThatItsPodsDoNotSee) {
  const std::string flags = "kubernetes --num_gpus 2 --image i --volume v", set = "'GPT (2).json' --set ";
  for (const char* seen : {"data.train=a/../b.txt", "checkpoint.directory=/work/c"})
    EXPECT_THAT(emit(flags, set + seen), Not(HasSubstr("is not in the claim"))) << seen;
  for (const char* unseen : {"data.train=/shared/a.tokens", "checkpoint.directory=../c", "checkpoint.directory=/workspace"})
    EXPECT_THAT(emit(flags, set + unseen), HasSubstr("is not in the claim of --volume, which pods see as /work")) << unseen;
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

// Kubernetes replaces $(NAME), and $$ by $.
TEST_F(JobFile, OfKubernetesGivesTheProgramItsDollars) {
  EXPECT_THAT(emit("kubernetes --num_gpus 2 --image i --volume v", "'GPT (2).json' --metrics 'a$$b$(C)$D'"),
              HasSubstr(R"("--metrics","a$$$$b$$(C)$$D")"));
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

TEST_F(JobFile, OfAzureStartsRanksAsTheDistributionSays) {
  const std::string azure = "azureml --image i --compute c --num_nodes 3 ";
  const std::string mpi = emit(azure + "--num_gpus 2 --distribution mpi");
  EXPECT_THAT(mpi, HasSubstr("distribution: {type: mpi, process_count_per_instance: 2}\nresources: {instance_count: 3}\n"));
  EXPECT_THAT(mpi, HasSubstr("TRIVET_SECRET_FILE=/tmp/trivet-secret-$OMPI_COMM_WORLD_RANK exec"));
  EXPECT_THAT(mpi, Not(HasSubstr("LOCAL_WORLD_SIZE")));
  const std::string tensorflow = emit(azure + "--num_gpus 1 --distribution tensorflow");
  EXPECT_THAT(tensorflow, HasSubstr("distribution: {type: tensorflow, worker_count: 3}\nresources: {instance_count: 3}\n"));
  EXPECT_THAT(tensorflow, HasSubstr("TRIVET_SECRET_FILE=/tmp/trivet-secret exec"));
  EXPECT_EQ(emit(azure + "--num_gpus 2 --distribution pytorch"), emit(azure + "--num_gpus 2"));
}

TEST_F(JobFile, TunesIfAskedTo) {
  const std::string text =
      emit("azureml --image i --compute c --num_gpus 2 --autotuning tune", "'GPT (2).json' --set training.seed=7");
  EXPECT_THAT(text, HasSubstr("exec trivet tune 'GPT (2).json' --set training.seed=7 --resume "
                              "--set data.train=${{inputs.data}} --set autotuning.results_dir=${{outputs.results}}\"\n"));
  EXPECT_THAT(text, HasSubstr("display_name: gpt-2-tuning\n"));
  EXPECT_THAT(text, HasSubstr("outputs:\n  results: {type: uri_folder, mode: rw_mount}\n"));
  EXPECT_THAT(text, Not(HasSubstr("checkpoint")));
  EXPECT_THAT(emit("torchrun --num_gpus 2 --autotuning tune"), HasSubstr("trivet tune 'GPT (2).json' --resume\n"));
  EXPECT_EQ(emit("torchrun --num_gpus 2 --autotuning tune", "'GPT (2).json' --resume"),
            emit("torchrun --num_gpus 2 --autotuning tune"));
}

TEST_F(JobFile, ThatTunesHasAShortName) {
  const std::string longest(60, 'a');
  folder_.write(longest + ".json", kConfig);
  EXPECT_THAT(emit("slurm --num_gpus 2 --autotuning tune", longest + ".json"),
              HasSubstr("#SBATCH --job-name=" + std::string(43, 'a') + "-tuning\n"));
}

TEST_F(JobFile, OfAzureTakesAFolderWhereImagesAreRead) {
  folder_.write("images.json", R"({"model": {"type": "sequential", "input": [1, 4, 4], "network": ["flatten", "dense 10"]},
    "data": {"train": "images"}, "training": {"steps": 1}, "train_batch_size": 16})");
  const std::string azure = "azureml --num_gpus 2 --image i --compute c";
  EXPECT_THAT(emit(azure, "images.json"), HasSubstr("  data: {type: uri_folder, path: \"images\", mode: ro_mount}\n"));
  folder_.write("images", "one file");
  EXPECT_THAT(emit(azure, "images.json"), HasSubstr("  data: {type: uri_file, path: \"images\", mode: ro_mount}\n"));
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
  refused("kubernetes --num_gpus 2", "--emit: give --image, the container image that has trivet; and --volume, the name of");
  refused("azureml --num_gpus 2 --image i", "--emit: give --compute, the name of the compute cluster");
  refused("azureml --num_gpus 2", "that has trivet; and --compute, the name of the compute cluster");
  refused("slurm --num_gpus 3 --num_nodes 3", "ranks, but the job has 9; start",
          "'GPT (2).json' --set parallel.tensor=2 --set model.heads=2");
  refused("slurm --num_gpus 4 --num_nodes 2", "train_batch_size 6", "'GPT (2).json' --set train_batch_size=6");
  refused("slurm --num_gpus 2 --distribution mpi", "--distribution: is not used in a job file for slurm; leave it out");
  refused("azureml --num_gpus 2 --image i --compute c --distribution tensorflow",
          "--distribution tensorflow: Azure ML starts one worker on each host, not 2; give --num_gpus 1");
  refused("slurm --num_gpus 2 --autotuning run", "--autotuning run: a job file tunes or trains; give --autotuning tune");
  refused("slurm --num_gpus 2 --autotuning tune",
          "--autotuning tune: \"--metrics\": the job only tunes, so this would have no effect",
          "'GPT (2).json' --metrics m.jsonl");
  refused("slurm --num_gpus 2", "--emit: PROGRAM must be: trivet train CONFIG", "python3 train.py");
  refused("slurm --num_gpus 2", "no.json", "no.json");
  refused("slurm --num_gpus 2", "device: \"auto\": this host cannot tell", "'GPT (2).json' --set device=auto");
  refused("slurm --num_gpus 2", "--emit: --resume with a directory", "'GPT (2).json' --resume other");
  refused("slurm --num_gpus 2", "--emit: --resume with a directory", "'GPT (2).json' --resume=other");
  refused("slurm --num_gpus 2", "checkpoint.stop_seconds 0: --emit tells", "'GPT (2).json' --set checkpoint.stop_seconds=0");
  refused("slurm --num_gpus 2 --time_limit 1", "--time_limit 1: Slurm would end the job 61 s before, to let it save");
  const std::string azure = "azureml --num_gpus 2 --image i --compute c";
  refused(azure, "data.train: \"a/*.txt\" is a pattern, but an input of Azure ML is one file or one folder",
          "'GPT (2).json' --set 'data.train=a/*.txt'");
  folder_.write("pair.bin", ""), folder_.write("pair.idx", "");
  for (const char* half : {"pair.bin", "pair.idx"})
    refused(azure, std::string("data.validation: \"") + half + "\" is half of a pair of files",
            std::string("'GPT (2).json' --set data.validation=") + half);
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

// The job files of examples/ are what --emit prints, made by the commands that their folders' README names.
struct ExampleJob {
  const char* folder;
  const char* file;
  const char* flags;  // with the config
};
constexpr ExampleJob kExampleJobs[] = {
    {"05_mnist", "azureml_horovod.yml", "--distribution mpi --num_nodes 2 --num_gpus 1 horovod.json"},
    {"05_mnist", "azureml_tensorflow.yml", "--distribution tensorflow --num_nodes 2 --num_gpus 1 tensorflow.json"},
    {"05_mnist", "azureml_vision_transformer.yml", "--num_nodes 2 --num_gpus 1 vision_transformer.json"},
    {"06_cifar10", "azureml_ddp.yml", "--num_nodes 2 --num_gpus 1 ddp.json"},
    {"06_cifar10", "azureml_deepspeed.yml", "--num_nodes 2 --num_gpus 8 --time_limit 15 deepspeed.json"},
    {"06_cifar10", "azureml_tuning.yml", "--num_nodes 2 --num_gpus 8 --time_limit 30 --autotuning tune deepspeed.json"},
    {"10_genomics", "azureml.yml", "--num_nodes 2 --num_gpus 8 genomics.json"},
    {"11_handwriting", "azureml.yml", "--num_nodes 2 --num_gpus 1 handwriting.json"},
    {"12_man_pages", "azureml.yml", "--num_nodes 2 --num_gpus 1 man_pages.json"},
};

TEST(JobFilesOfExamples, AreWhatEmitPrints) {
  const std::string examples = std::string(TRIVET_SOURCE_DIR) + "/examples/";
  for (const ExampleJob& job : kExampleJobs) {
    SCOPED_TRACE(std::string(job.folder) + "/" + job.file);
    LaunchedProcess process(
        {"/bin/sh", "-c",
         "cd \"$0\" && exec " + kTrivet + " launch --emit azureml --image registry/trivet:1 --compute cluster " + job.flags,
         examples + job.folder});
    EXPECT_EQ(process.wait(), 0);
    std::ifstream file(examples + job.folder + "/" + job.file);
    EXPECT_EQ(process.output(), (std::string{std::istreambuf_iterator<char>(file), {}}));
  }
}

}  // namespace
}  // namespace trivet::test
