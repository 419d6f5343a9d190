// Runs `trivet train`, `plan`, `generate` and `launch` as a user does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/cli/program.h"

namespace trivet::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class Train : public testing::Test {
 protected:
  Train() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * i % 97) + " of a text\n";
    folder.write("text.txt", text);
    folder.write("config.json", R"({
      "model": {"type": "gpt", "layers": 1, "hidden_size": 32, "heads": 2, "sequence_length": 16, "vocabulary": "characters", "dropout": 0.1},
      "data": {"train": "text.txt", "validation_fraction": 0.1},
      "training": {"steps": 8, "seed": 3, "evaluate_every": 4},
      "train_batch_size": 12, "train_micro_batch_size_per_gpu": 1, "reproducible": "layout",
      "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
      "zero_optimization": {"stage": 2},
      "checkpoint": {"directory": "checkpoints", "every_steps": 4}
    })");
  }

  // "loss_bits" of every line, in order.
  std::string losses(const std::string& metrics) const {
    std::string bits;
    const std::string text = folder.read(metrics), key = "\"loss_bits\": \"";
    for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1))
      bits += text.substr(at + key.size(), 8) + " ";
    return bits;
  }

  Folder folder;
};

// The names are the same, but each rank starts in its own folder.
TEST_F(Train, RanksThatReadDifferentFilesOfTheSameNameEndBeforeTheFirstStep) {
  const std::string text = folder.read("text.txt");
  std::string other = text;
  std::swap(other[100], other[101]);  // as long, and with the same characters
  for (const std::string rank : {"0", "1"}) {
    std::filesystem::create_directory(folder.at(rank));
    folder.write(rank + "/config.json", folder.read("config.json"));
    folder.write(rank + "/text.txt", rank == "0" ? text : other);
  }
  const std::string command = "launch --num_gpus 2 sh -c 'cd $RANK && exec " TRIVET_BINARY_DIR
                              "/trivet train config.json --set checkpoint.directory=../c'";
  const Output refused = folder.run(command);
  EXPECT_EQ(refused.code, 12) << refused.errors;
  EXPECT_THAT(refused.errors, HasSubstr("data.train: rank 0 read \"text.txt\" (tokens "));
  EXPECT_THAT(refused.errors, HasSubstr("), but rank 1 read \"text.txt\" (tokens "));
  EXPECT_THAT(refused.errors, HasSubstr("all ranks must find the same file at this path"));
  EXPECT_FALSE(std::filesystem::exists(folder.at("c")));
  folder.write("1/text.txt", text);
  const Output accepted = folder.run(command);
  EXPECT_EQ(accepted.code, 0) << accepted.errors;
}

// The directory's name is the same, but each rank has its own directory.
TEST_F(Train, RanksThatWouldResumeFromDifferentCheckpointsEndBeforeTheFirstStep) {
  for (const std::string rank : {"0", "1"}) {
    std::filesystem::create_directory(folder.at(rank));
    folder.write(rank + "/config.json", folder.read("config.json"));
    folder.write(rank + "/text.txt", folder.read("text.txt"));
  }
  ASSERT_EQ(folder.run("train config.json --set checkpoint.directory=0/checkpoints").code, 0);
  ASSERT_EQ(folder.run("train config.json --set checkpoint.directory=1/checkpoints").code, 0);
  const std::string command = "launch --num_gpus 2 sh -c 'cd $RANK && exec " TRIVET_BINARY_DIR
                              "/trivet train config.json --set training.steps=9 --resume'";
  const Output refused = folder.run(command);
  EXPECT_EQ(refused.code, 12) << refused.errors;
  EXPECT_THAT(refused.errors, HasSubstr("resume: rank 0 read \"" + folder.at("0/checkpoints/step-00000008/manifest.json") +
                                        "\" (step 8 of run "));
  EXPECT_THAT(refused.errors, HasSubstr("), but rank 1 read \"" + folder.at("1/checkpoints/step-00000008/manifest.json") +
                                        "\" (step 8 of run "));
  std::filesystem::remove_all(folder.at("1/checkpoints"));
  std::filesystem::copy(folder.at("0/checkpoints"), folder.at("1/checkpoints"), std::filesystem::copy_options::recursive);
  const Output accepted = folder.run(command);
  EXPECT_THAT(accepted.text, HasSubstr("resumed after step 8")) << accepted.errors;
}

TEST_F(Train, ThreadsProcessesAndAnInterruptedRunOnOtherRanksGiveTheSameBits) {
  EXPECT_EQ(folder.run("train config.json --ranks 2 --metrics threads.jsonl --set checkpoint.directory=one").code, 0);
  const Output processes = folder.run("launch --num_gpus 3 " TRIVET_BINARY_DIR
                                      "/trivet train config.json --metrics processes.jsonl --set checkpoint.directory=two "
                                      "--set zero_optimization.stage=3");
  EXPECT_EQ(processes.code, 0) << processes.errors;
  EXPECT_EQ(folder.run("train config.json --metrics parts.jsonl --set training.steps=4 --set checkpoint.directory=three").code,
            0);
  const Output second =
      folder.run("train config.json --ranks 4 --resume --metrics parts.jsonl --set checkpoint.directory=three");
  EXPECT_EQ(second.code, 0) << second.errors;
  EXPECT_THAT(second.text, HasSubstr("resumed after step 4"));
  EXPECT_THAT(second.errors, testing::Not(HasSubstr("not as they were")));
  EXPECT_EQ(losses("threads.jsonl").size(), 8u * 9u);
  EXPECT_EQ(losses("threads.jsonl"), losses("processes.jsonl"));
  EXPECT_EQ(losses("threads.jsonl"), losses("parts.jsonl"));
  EXPECT_THAT(folder.run("checkpoint diff one two --json").text, HasSubstr("\"equal\": true"));
  EXPECT_THAT(folder.run("checkpoint diff one three --json").text, HasSubstr("\"equal\": true"));
  EXPECT_THAT(
      folder
          .run("train config.json --resume --set checkpoint.directory=three --set training.steps=9 --set "
               "gradient_clipping=0.5 --set "
               "'curriculum_learning={\"enabled\": true, \"curriculum_type\": \"seqlen\", \"min_difficulty\": 8, "
               "\"max_difficulty\": 16, \"schedule_type\": \"fixed_root\", \"schedule_config\": "
               "{\"total_curriculum_step\": 5, \"difficulty_step\": 8, \"root_degree\": 2}}'")
          .errors,
      testing::ContainsRegex("--resume: these keys are not as they were in three/step-0000000.: gradient_clipping is 0.5, "
                             "and was [0-9.]+.*; curriculum_learning.enabled is true, and was false"));
}

// No file changed: the key is named.
TEST_F(Train, ASourceWithAnotherWeightIsNoOtherData) {
  std::filesystem::copy(folder.at("text.txt"), folder.at("more.txt"));
  const auto run = [&](const std::string& weight, const char* how) {
    return folder.run(std::string("train config.json --set training.steps=1 --set "
                                  "'data={\"sources\": [{\"path\": \"text.txt\", \"weight\": ") +
                      weight + "}, {\"path\": \"more.txt\", \"weight\": 1}]}'" + how);
  };
  EXPECT_EQ(run("1", "").code, 0);
  const Output refused = run("2", " --resume");
  EXPECT_EQ(refused.code, 18);
  EXPECT_THAT(refused.errors, HasSubstr("data.sources: [{\"path\": \"text.txt\", \"weight\": 2.0}"));
}

// Otherwise the rest of the run would train on data that no longer exists, and a mapped file would end it with SIGBUS.
TEST_F(Train, EndsWithTheNameOfDataThatIsCutShortWhileItRuns) {
  ASSERT_EQ(folder.run("data prepare text.txt --vocabulary bytes --output text.tokens").code, 0);
  const std::string tokens = folder.at("text.tokens");
  std::atomic<bool> ended = false;
  std::thread other([&] {  // after the third step, whenever that is
    const auto steps = [&] {
      const std::string lines = folder.read("metrics.jsonl");
      return std::count(lines.begin(), lines.end(), '\n');
    };
    while (!ended && steps() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::filesystem::resize_file(tokens, 4096);
  });
  const Output cut = folder.run(
      "train config.json --metrics metrics.jsonl --set data.train=text.tokens --set model.vocabulary=bytes "
      "--set training.steps=1000000 --set training.evaluate_every=0 --set checkpoint.every_steps=0");
  ended = true;
  other.join();
  EXPECT_EQ(cut.code, 18) << cut.errors;
  EXPECT_THAT(cut.errors, HasSubstr("text.tokens: has 4096 bytes, but had "));
  EXPECT_THAT(cut.errors, HasSubstr(" when it was opened; put the file back as it was and continue from the last checkpoint"));
}

TEST_F(Train, SaysWhatBecomesOfAConfigForDeepSpeed) {
  folder.write("ds.json", R"({"train_batch_size": "auto", "dump_state": true, "fp16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": 0.1}},
    "model": {"type": "gpt", "layers": 1, "hidden_size": 32, "heads": 2, "sequence_length": 16, "vocabulary": "bytes"},
    "data": {"train": "text.txt"}, "training": {"steps": 1}})");
  folder.write("text.txt", std::string(4000, 'a'));
  for (const char* command : {"train ds.json", "train --deepspeed ds.json", "train --deepspeed_config ds.json",
                              "train --config ds.json", "config check ds.json"}) {
    const Output output = folder.run(command);
    EXPECT_EQ(output.code, 0) << command << ": " << output.errors;
    EXPECT_THAT(output.text, HasSubstr("optimizer.params.lr: \"auto\" is 0.00005, the default of Hugging Face's Trainer"));
    EXPECT_THAT(output.text, HasSubstr("dump_state: not used here; use `trivet plan`"));
    EXPECT_THAT(output.text, HasSubstr("optimizer.params.weight_decay: biases and norms do not decay"));
  }
  // Many are one line, so that the loss stays in sight.
  const std::string many =
      folder.run("train ds.json --set fp16.hysteresis=2 --set fp16.min_loss_scale=1 --set wandb.enabled=true").text;
  EXPECT_THAT(many, HasSubstr("no effect 4 keys (`trivet config check` says why): dump_state, fp16.hysteresis, "));
  EXPECT_THAT(many, HasSubstr("wandb"));
  EXPECT_THAT(folder.run("train ds.json --deepspeed ds.json").errors,
              HasSubstr("--deepspeed ds.json: the config is ds.json; name one"));
  EXPECT_EQ(folder.run("train").code, 2);
}

// With SGD, the sum over 2 ranks at half the rate is the mean: twice a number and half of it are exact.
TEST_F(Train, SumsGradientsOverRanksWhereTheConfigSaysSo) {
  const auto bits = [&](const std::string& settings) {
    const Output output = folder.run(
        "train config.json --ranks 2 --metrics metrics.jsonl --set reproducible=run --set gradient_clipping=0 --set "
        "checkpoint.directory= --set optimizer.type=SGD --set training.steps=3 --set training.evaluate_every=0 " +
        settings);
    EXPECT_EQ(output.code, 0) << output.errors;
    return losses("metrics.jsonl");
  };
  const std::string mean = bits("--set optimizer.params.lr=0.125");
  EXPECT_EQ(mean.size(), 3u * 9u);
  EXPECT_EQ(bits("--set gradient_allreduce_op=sum --set optimizer.params.lr=0.0625"), mean);
  EXPECT_NE(bits("--set gradient_allreduce_op=sum --set optimizer.params.lr=0.125"), mean);
}

TEST_F(Train, AndConfigCheckBothRefuseAProfileOfAStepThatDoesNotCome) {
  for (const char* command : {"config check", "train"}) {
    const Output refused = folder.run(std::string(command) +
                                      " config.json --set training.steps=3 --set flops_profiler.enabled=true "
                                      "--set flops_profiler.profile_step=3");
    EXPECT_EQ(refused.code, 2) << command;
    EXPECT_THAT(refused.errors,
                HasSubstr("flops_profiler.profile_step: 3 steps come before the one that is profiled, but this run "
                          "has only 3; use at most 2"));
  }
}

TEST_F(Train, AndConfigCheckBothRefuseWhatTheConfigAloneShows) {
  folder.write("broken.json", "{\"model\": ");
  for (const auto& [settings, message] : std::vector<std::pair<std::string, std::string>>{
           {"training.steps=0", "training.steps: 0 is not accepted; say how long to train"},
           {"training.steps=0 --set training.epochs=0", "training.steps: 0 is not accepted; say how long to train"},
           {"data.train='\"\"'", "data.train: \"\" is not accepted; name the data to train on"},
           {"model.vocabulary=broken.json", "broken.json: is not a tokenizer: it ends at column 11"},
           {"model.vocabulary=bytes --set model.vocabulary_rows=10",
            "the embedding has 10 rows, but the vocabulary \"bytes\""}})
    for (const char* command : {"config check", "train"}) {
      const Output refused = folder.run(std::string(command) + " config.json --set " + settings);
      EXPECT_EQ(refused.code, 2) << command << " " << settings;
      EXPECT_THAT(refused.errors, HasSubstr(message)) << command;
    }
  EXPECT_THAT(folder.run("config check config.json --set data.train=nowhere.txt").text,
              HasSubstr("data.train: there is no nowhere.txt here, relative to this folder\n"));
  for (const std::string section : {"offload_param", "offload_optimizer"})
    for (const std::string path : {"nowhere", "text.txt"}) {
      const std::string key = "zero_optimization." + section;
      const std::string offload = "--set zero_optimization.stage=3 --set " + key + ".device=nvme --set " + key + ".nvme_path=";
      EXPECT_THAT(folder.run("config check config.json " + offload + path).text,
                  HasSubstr(key + ".nvme_path: there is no folder " + path + " here, relative to this folder\n"));
      EXPECT_THAT(folder.run("train config.json " + offload + path).errors, HasSubstr("; name a folder that exists"));
      EXPECT_THAT(folder.run("config check config.json " + offload + ".").text, Not(HasSubstr("there is no folder")));
    }
}

TEST_F(Train, NamesTheDirectoryThatItCannotResumeFrom) {
  std::filesystem::create_directory(folder.at("pipes"));
  ASSERT_EQ(mkfifo(folder.at("pipes/step-00000005").c_str(), 0600), 0);
  for (const auto& [directory, message] : std::vector<std::pair<std::string, std::string>>{
           {"nowhere", "--resume: there is no directory \"nowhere\"; name the directory of an earlier run"},
           {"text.txt", "--resume: \"text.txt\" is not a directory; name"},
           {"nowhere/step-00000005", "--resume: there is no directory \"nowhere/step-00000005\"; name"},
           {"pipes/step-00000005", "--resume: \"pipes/step-00000005\" is not a directory; name"},
           {".", "--resume: \".\" holds no checkpoint; name"}}) {
    const Output output = folder.run("train config.json --resume " + directory);
    EXPECT_EQ(output.code, 2) << directory;
    EXPECT_THAT(output.errors, HasSubstr(message)) << directory;
  }
  // Other commands call it a mistake of the same kind.
  for (const std::string directory : {"nowhere", "text.txt", "nowhere/step-00000005", "pipes/step-00000005"})
    for (const std::string command : {"generate ", "checkpoint show ", "checkpoint export hf --output x "}) {
      const Output output = folder.run(command + directory);
      EXPECT_EQ(output.code, 2) << command << directory;
      EXPECT_THAT(output.errors, AllOf(HasSubstr(directory + ": "), HasSubstr("directory of checkpoints or one of its steps")))
          << command;
    }
}

TEST_F(Train, AsksForTheModelThatAConfigForDeepSpeedLacks) {
  folder.write("ds.json", R"({"train_batch_size": "auto", "data": {"train": "text.txt"}, "training": {"steps": 1}})");
  for (const char* command : {"train ds.json", "config check ds.json"}) {
    const Output refused = folder.run(command);
    EXPECT_EQ(refused.code, 2) << command;
    EXPECT_THAT(refused.errors,
                HasSubstr("ds.json: model: there is no such section: in DeepSpeed the program brings the model"));
  }
  folder.write("gpt2.json", R"({"train_batch_size": 1, "model": {"n_embd": 8}})");
  const std::string misspelt = folder.run("config check gpt2.json").errors;
  EXPECT_THAT(misspelt, HasSubstr("model.n_embd: unknown key; did you mean \"hidden_size\"?"));
  EXPECT_EQ(misspelt.find("no such section"), std::string::npos) << misspelt;
  const Output told = folder.run("config check ds.json");
  EXPECT_THAT(told.text, HasSubstr("ds.json: no model section\n"));
  EXPECT_THAT(told.text, HasSubstr("optimizer: there is no section, so AdamW with lr 0.001"));
}

TEST_F(Train, RefusesAFileNameThatIsNotUtf8BeforeItStarts) {
  folder.write("latin1.json", "{\"train_batch_size\": 1,\n \"data\": {\"train\": \"caf\xE9.txt\"}}");
  for (const char* command : {"config check latin1.json", "train latin1.json"}) {
    const Output refused = folder.run(command);
    EXPECT_EQ(refused.code, 2);
    EXPECT_EQ(refused.errors,
              "trivet: error: latin1.json:2:20: data.train: \"caf\\xe9.txt\" is not UTF-8; write it in UTF-8 "
              "(if it names a file, rename the file)\n");
  }
}

// A path may hold any bytes; JSON, in which it would be printed or passed on, may not.
TEST_F(Train, RefusesAnArgumentThatIsNotUtf8WhereItBecomesJson) {
  std::filesystem::copy(folder.at("config.json"), folder.at("\xE9.json"));
  for (const char* command : {"config check \xE9.json --json",
                              "launch --emit kubernetes --image i --volume v --num_nodes 1 --num_gpus 2 \xE9.json"}) {
    const Output refused = folder.run(command);
    EXPECT_EQ(refused.code, 2) << command;
    EXPECT_THAT(refused.errors, HasSubstr(": is not UTF-8, as JSON must be; rename the file and give its new name\n"))
        << command;
  }
}

TEST_F(Train, AndConfigCheckBothRefuseABatchThatNoNumberOfRanksGives) {
  for (const char* batch :
       {"--set train_batch_size=7 --set train_micro_batch_size_per_gpu=2 --set gradient_accumulation_steps=2",
        "--set train_batch_size=null --set train_micro_batch_size_per_gpu=null"})
    for (const char* command : {"config check", "config check --json", "train"}) {
      const Output refused = folder.run(std::string(command) + " config.json --set reproducible=run " + batch);
      EXPECT_EQ(refused.code, 2) << command;
      EXPECT_EQ(refused.text.find("OK"), std::string::npos) << refused.text;
      EXPECT_THAT(refused.errors, HasSubstr("train_batch_size")) << command;
    }
}

TEST_F(Train, NoMessageSendsCommandsToTheTerminal) {
  folder.write("bad.json", "{\"train_batch_size\": 1, \"\\u001b[31m\": 1}");
  EXPECT_THAT(folder.run("config check bad.json").errors, HasSubstr("\\x1b[31m: unknown key"));
  const Output file = folder.run("config check '\x1b[31m.json'");
  EXPECT_EQ(file.code, 2);
  EXPECT_EQ(file.errors.find('\x1b'), std::string::npos) << file.errors;
}

// In memory these lists take ten times their text. The exception is thrown in a destructor of the reader, where nothing can
// catch it, so the terminate handler ends the program.
TEST_F(Train, EndsWithCode19WhereMemoryRunsOut) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs more address space than the test allows";
#endif
  std::string list = "{\"model\": [0";
  for (int i = 0; i < 15'000'000; ++i) list += ",0";
  folder.write("tokenizer.json", list + "]}");
  const Output prepared = folder.run_in("sh -c 'ulimit -v 500000; exec \"$0\" \"$@\"'",
                                        "data prepare text.txt --vocabulary tokenizer.json --output text.tokens");
  EXPECT_EQ(prepared.code, 19) << prepared.errors;
  EXPECT_THAT(prepared.errors, HasSubstr("trivet: error: out of host memory; "));
}

TEST_F(Train, OffloadedToFilesItGivesTheSameBitsAndLeavesNothing) {
  ASSERT_EQ(folder.run("train config.json --metrics plain.jsonl --set checkpoint.directory=one").code, 0);
  const std::string offload =
      " --set zero_optimization.stage=3 --set zero_optimization.offload_optimizer.device=nvme --set "
      "zero_optimization.offload_optimizer.nvme_path=scratch --set zero_optimization.offload_param.device=nvme --set "
      "zero_optimization.offload_param.nvme_path=scratch --set zero_optimization.offload_param.max_in_cpu=0 --set "
      "zero_optimization.stage3_param_persistence_threshold=0";
  const Output missing = folder.run("train config.json --set checkpoint.directory=two" + offload);
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.errors, HasSubstr("zero_optimization.offload_param.nvme_path: create scratch/trivet-weights-rank-0: No "
                                        "such file or directory; name a folder that exists"));
  std::filesystem::create_directory(folder.at("scratch"));
  const Output files = folder.run("train config.json --ranks 2 --metrics files.jsonl --set checkpoint.directory=two" + offload);
  EXPECT_EQ(files.code, 0) << files.errors;
  EXPECT_EQ(losses("plain.jsonl"), losses("files.jsonl"));
  EXPECT_THAT(folder.run("checkpoint diff one two --json").text, HasSubstr("\"equal\": true"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.at("scratch")));
  EXPECT_THAT(folder.run("plan config.json" + offload).text, HasSubstr("MiB in a file per rank"));
}

// The system lets no file grow beyond a few KiB. The program ignores SIGXFSZ, which would end it.
TEST_F(Train, ADiskThatDoesNotTakeWhatIsOffloadedHasAnExitCodeOfItsOwn) {
  folder.write("small", "ulimit -f 8\nexec \"$@\"\n");
  const Output output = folder.run_in("sh small",
                                      "train config.json --set zero_optimization.offload_optimizer.device=nvme "
                                      "--set zero_optimization.offload_optimizer.nvme_path=.");
  EXPECT_EQ(output.code, 21);
  EXPECT_THAT(output.errors, HasSubstr("zero_optimization.offload_optimizer.nvme_path: reserve ./trivet-optimizer-rank-0: File "
                                       "too large; this rank keeps "));
}

TEST_F(Train, ACheckpointThatTheSystemDoesNotLetGrowIsExitCode14) {
  folder.write("small", "ulimit -f 8\nexec \"$@\"\n");
  const Output output = folder.run_in("sh small", "train config.json --set checkpoint.every_steps=0");
  EXPECT_EQ(output.code, 14) << output.errors;
  EXPECT_THAT(output.errors, HasSubstr("trivet: error: checkpoint of step 8 was not written: "));
  EXPECT_THAT(output.errors, HasSubstr(" checkpoints/.tmp-step-00000008-"));
  EXPECT_THAT(output.errors, HasSubstr("rank-00000.safetensors: File too large"));
  EXPECT_THAT(output.errors, Not(HasSubstr("training continues")));
}

TEST_F(Train, SaysWhatItDoesAndWhatItUsed) {
  const Output output = folder.run("train config.json");
  EXPECT_EQ(output.code, 0) << output.errors;
  EXPECT_THAT(output.text, HasSubstr("ZeRO-2 on data 1, float32, batch 12 = 1 x 12 x 1"));
  EXPECT_THAT(output.text, HasSubstr("validation loss"));
  EXPECT_THAT(output.text, HasSubstr("MiB planned /"));
  EXPECT_THAT(output.text, HasSubstr("checkpoint checkpoints, step 8"));
  const Output text = folder.run("generate checkpoints --prompt line --tokens 20");
  EXPECT_EQ(text.code, 0) << text.errors;
  EXPECT_THAT(text.text, testing::StartsWith("line"));
  EXPECT_EQ(text.text, folder.run("generate checkpoints --prompt line --tokens 20").text);
  EXPECT_THAT(folder.run("generate checkpoints --prompt \"\xe2\x82\xac\"").errors,
              HasSubstr("is not among the 21 characters of the training text"));
}

// What is held out may be too short for a sample.
TEST_F(Train, NeedsNoValidationDataWhereNothingIsEvaluated) {
  folder.write("short.txt", "a text of so many letters, of which few are held out");
  const std::string few = "train config.json --set data.train=short.txt --set training.steps=1 --set checkpoint.directory= ";
  const Output output = folder.run(few + "--set training.evaluate_every=0");
  EXPECT_EQ(output.code, 0) << output.errors;
  const std::string unused = "6 validation tokens, which are not used without training.evaluate_every";
  EXPECT_THAT(output.text, HasSubstr(unused));
  EXPECT_THAT(folder.run("train config.json").text, testing::Not(HasSubstr("which are not used")));
  EXPECT_THAT(folder.run(few + "--set training.evaluate_every=1").errors,
              HasSubstr("validation split: data: 6 tokens are too few for one sample"));
}

TEST_F(Train, ResumesNoOtherModelAndSaysWhenNothingIsLeftToDo) {
  ASSERT_EQ(folder.run("train config.json").code, 0);
  for (const auto& [change, message] :
       {std::pair{"model.heads=4",
                  "--set: model.heads: 4 does not match checkpoints/step-00000008, which was saved with 2; set it to 2"},
        {"model.norm_epsilon=0.1", "model.norm_epsilon: 0.1 does not match"},
        {"model.sequence_length=8", "model.sequence_length: 8 does not match"},
        {"parallel.context_grain=2",
         "parallel.context_grain: 2 does not match checkpoints/step-00000008, which was saved with 1; set it to 1"},
        {"activation_checkpointing.mlp_slice_tokens=4", "activation_checkpointing.mlp_slice_tokens: 4 does not match"},
        {"data.shuffle=false", "data.shuffle: false does not match"}}) {
    const Output output = folder.run(std::string("train config.json --resume --set training.steps=9 --set ") + change);
    EXPECT_EQ(output.code, 2);
    EXPECT_THAT(output.errors, HasSubstr(message));
  }
  EXPECT_EQ(folder.run("train config.json --resume --set model.dropout=0 --set training.steps=9").code, 0);
  const Output done = folder.run("train config.json --resume");
  EXPECT_EQ(done.code, 0);
  EXPECT_THAT(done.text, HasSubstr("nothing to do: step 9 is already done, and the run ends at step 8"));
  EXPECT_THAT(folder.run("train config.json --resume --set checkpoint.directory=elsewhere").errors,
              HasSubstr("elsewhere holds no checkpoint; starting at step 1"));
}

// The second half of the run has another number of context ranks.
TEST_F(Train, ContextRanksHaveTheBitsOfOneRank) {
  const std::string train = "train config.json --set parallel.context_grain=2 --metrics ";
  ASSERT_EQ(folder.run(train + "one.jsonl --set checkpoint.directory=").code, 0);
  const std::string shared = train + "shared.jsonl --ranks 2 --set parallel.context=2 --set training.steps=";
  const Output half = folder.run(shared + "4");
  ASSERT_EQ(half.code, 0) << half.errors;
  const Output rest = folder.run(train + "shared.jsonl --resume --ranks 3");
  ASSERT_EQ(rest.code, 0) << rest.errors;
  EXPECT_EQ(losses("shared.jsonl"), losses("one.jsonl"));
  EXPECT_EQ(losses("shared.evaluation.jsonl"), losses("one.evaluation.jsonl"));
}

TEST_F(Train, GoesBackToAnEarlierStepInAnotherDirectory) {
  ASSERT_EQ(folder.run("train config.json").code, 0);
  EXPECT_EQ(folder.run("train config.json --ranks 2 --resume checkpoints/step-00000004 --set checkpoint.directory=again").code,
            0);
  EXPECT_THAT(folder.run("checkpoint diff checkpoints again --json").text, HasSubstr("\"equal\": true"));
  const Output later = folder.run("train config.json --resume checkpoints/step-00000004");
  EXPECT_EQ(later.code, 2);
  EXPECT_THAT(later.errors,
              HasSubstr("checkpoint.directory: \"checkpoints\" holds steps up to 8 of an earlier run; use --resume "
                        "without a directory to continue from the newest of them; to continue from "
                        "checkpoints/step-00000004, choose another directory"));
  for (const char* own : {"checkpoints", "checkpoints/", "./checkpoints"})
    EXPECT_THAT(folder.run(std::string("train config.json --resume ") + own).text, HasSubstr("nothing to do: step 8 is "));
  EXPECT_EQ(folder.run("train config.json --resume checkpoints/step-00000099 --set checkpoint.directory=third").code, 2);
}

TEST_F(Train, AnOverflowSaysTheNewLossScale) {
  const std::string run =
      "train config.json --set fp16.enabled=true --set fp16.initial_scale_power=40 --set training.steps=2 --set "
      "checkpoint.directory= --set fp16.hysteresis=";
  EXPECT_THAT(folder.run(run + "1").text,
              HasSubstr("       1   skipped: overflow at step 1: the loss scale goes from 1099511627776 to 549755813888\n"));
  EXPECT_THAT(folder.run(run + "2").text,
              HasSubstr("       1   skipped: overflow at step 1: the loss scale stays 1099511627776\n"));
}

TEST_F(Train, StopsWhenTheWeightsAreNoNumbersAnyMore) {
  const Output output = folder.run(
      "train config.json --set bf16.enabled=true --set bf16.check_grad_overflow=false --set reproducible=run "
      "--set optimizer.params.lr=1e30");
  EXPECT_EQ(output.code, 16);
  EXPECT_THAT(output.errors, HasSubstr("step 2: the loss is nan and the step was not skipped"));
  EXPECT_THAT(output.errors, HasSubstr("; start over with a lower optimizer.params.lr"));
}

// Step 5 made weights for which step 6 computed no finite loss, so a checkpoint of step 5 would end the same way.
TEST_F(Train, NamesACheckpointFromBeforeTheWeightsThatGaveNoFiniteLoss) {
  const std::string train =
      "train config.json --set bf16.enabled=true --set bf16.check_grad_overflow=false --set reproducible=run ";
  ASSERT_EQ(folder.run(train + "--set training.steps=4").code, 0);
  const Output output = folder.run(train + "--resume --set optimizer.params.lr=1e30");
  EXPECT_EQ(output.code, 16);
  EXPECT_THAT(output.errors, HasSubstr("step 6: the loss is nan and the step was not skipped"));
  EXPECT_THAT(output.errors, HasSubstr("; resume from a checkpoint before step 5 with a lower optimizer.params.lr"));
}

TEST_F(Train, DoesNotMixRuns) {
  ASSERT_EQ(folder.run("train config.json").code, 0);
  const Output again = folder.run("train config.json");
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.errors, HasSubstr("\"checkpoints\" holds steps up to 8 of an earlier run; add --resume"));
  const Output seed = folder.run("train config.json --resume --set training.steps=9 --set training.seed=4");
  EXPECT_EQ(seed.code, 2);
  EXPECT_THAT(seed.errors,
              HasSubstr("training.seed: 4 does not match checkpoints/step-00000008, which was saved with 3; set it to 3"));
  const Output nowhere = folder.run("train config.json --resume elsewhere --set checkpoint.directory=");
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_THAT(nowhere.errors, HasSubstr("--resume: there is no directory \"elsewhere\""));
}

TEST_F(Train, DataThatChangedSinceTheCheckpointIsExitCode18) {
  ASSERT_EQ(folder.run("train config.json").code, 0);
  const Output share = folder.run("train config.json --resume --set training.steps=9 --set data.validation_fraction=0.3");
  EXPECT_EQ(share.code, 18);
  EXPECT_THAT(share.errors, HasSubstr("data.validation_fraction: 0.3 does not match checkpoints/step-00000008, which was saved "
                                      "with "));
  folder.write("text.txt", folder.read("text.txt") + "one more line of a text\n");
  const Output output = folder.run("train config.json --resume --set training.steps=9");
  EXPECT_EQ(output.code, 18);
  EXPECT_THAT(output.errors, HasSubstr("the training or validation data is not what checkpoints/step-00000008 was trained on"));
}

TEST_F(Train, AFlippedBitInTheOnlyCheckpointIsExitCode15) {
  ASSERT_EQ(folder.run("train config.json --set checkpoint.every_steps=0").code, 0);
  for (const auto& entry : std::filesystem::directory_iterator(folder.at("checkpoints/step-00000008"))) {
    if (entry.path().extension() != ".safetensors") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-5, std::ios::end);
    const char byte = static_cast<char>(file.peek() ^ 4);
    file.seekp(-5, std::ios::end);
    file.write(&byte, 1);
  }
  EXPECT_EQ(folder.run("train config.json --resume").code, 15);
  EXPECT_EQ(folder.run("checkpoint verify checkpoints").code, 15);
}

TEST_F(Train, MistakesAreExitCode2AndNamedOnce) {
  const auto refused = [&](const std::string& arguments, const std::string& message) {
    const Output output = folder.run(arguments);
    EXPECT_EQ(output.code, 2) << arguments << ": " << output.errors;
    EXPECT_THAT(output.errors, HasSubstr(message)) << arguments;
  };
  refused("train nothing.json", "nothing.json");
  refused("train config.json --set zero_optimization.stage=4", "zero_optimization.stage");
  refused("train config.json --set zero_optimisation.stage=2", "did you mean \"zero_optimization");
  refused("train config.json --set data.train=missing.txt", "missing.txt");
  refused("train config.json --ranks 5", "train_batch_size");
  refused(
      "train config.json --set parallel.context=2 --ranks 2",
      "parallel.context: 2 does not divide parallel.context_grain 1, which reproducible \"layout\" requires to add sums over "
      "tokens in a fixed order; use 2 for that, another number of ranks, or reproducible \"run\"");
  refused("train config.json --set parallel.pipeline=2 --ranks 3", "mesh: ");
  refused("train config.json --set data.validation_fraction=0.0001", "validation split");
  refused("plan config.json --world-size 7", "train_batch_size");
  refused("plan config.json --set train_micro_batch_size_per_gpu=4000000000 --set train_batch_size=4000000000",
          "is more than 2147483648 values");
  refused("train config.json --set train_batch_size=4611686018427387904",
          "gradient_accumulation_steps: 4611686018427387904 is more than 65536");
  refused("train", "config is required");
  refused("trian config.json", "\"trian\" is not a subcommand of trivet; did you mean \"train\"?");
  refused("checkpoint show-all", "\"show-all\" is not a subcommand of checkpoint");
  refused("launch --num_gpus 0 true", "num_gpus");
}

// The job ends with the first failure of a rank, not with the errors of ranks that lost it as their peer.
TEST_F(Train, AJobEndsWithTheCodeOfItsFirstFailure) {
  const Output output =
      folder.run("launch --num_gpus 2 " TRIVET_BINARY_DIR "/trivet train config.json --set data.train=missing.txt");
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(output.errors, HasSubstr("missing.txt"));
}

TEST(CommandLine, AMistakeIsOneLineThatSaysWhatToDo) {
  const Folder folder;
  const auto refused = [&](const std::string& arguments, const std::string& message) {
    const Output output = folder.run(arguments);
    EXPECT_EQ(output.code, 2) << arguments;
    EXPECT_EQ(output.text, "") << arguments;
    EXPECT_EQ(output.errors, "trivet: error: " + message + "\n") << arguments;
  };
  refused("",
          "a subcommand is required; use one of train, replay, evaluate, launch, plan, report, tune, estimate, schedule, "
          "config, checkpoint, "
          "data, generate, doctor, bench, demo, completion; see trivet --help");
  refused("data", "data: a subcommand is required; use one of prepare, show; see trivet data --help");
  refused("train", "train: config is required; see trivet train --help");
  refused("train a.json b.json", "train: \"b.json\" is not expected; see trivet train --help");
  refused("train a.json --rank 4", "train: --rank: unknown flag; did you mean \"--ranks\"? see trivet train --help");
  refused("train a.json --metrix=x", "train: --metrix: unknown flag; did you mean \"--metrics\"? see trivet train --help");
  refused("train a.json --unheard-of", "train: --unheard-of: unknown flag; see trivet train --help");
  refused("train a.json --learning_rate 1",
          "train: --learning_rate: unknown flag; here it is --set optimizer.params.lr=VALUE; see trivet train --help");
  refused("train a.json --resume_from_checkpoint=x",
          "train: --resume_from_checkpoint: unknown flag; here it is --resume [DIRECTORY]; see trivet train --help");
  refused("train --ranks", "train: --ranks: a value is missing; see trivet train --help");
  refused("train a.json --ranks 5000", "train: --ranks: 5000 is not accepted; use 1 to 1024; see trivet train --help");
  refused("data show a.tokens --first -3",
          "data show: --first: -3 is not accepted; use 0 to 4611686018427387904; see trivet data show --help");
  refused("generate a --top-k many",
          "generate: --top-k: \"many\" is not accepted; a whole number is expected; see trivet generate --help");
  refused("generate a --top-p many",
          "generate: --top-p: \"many\" is not accepted; a number is expected; see trivet generate --help");
  refused("data prepare a.txt --outptu b",
          "data prepare: --outptu: unknown flag; did you mean \"--output\"? see trivet data prepare --help");
  refused("data prepare a.txt --output b --vocabulary bytes --train-bpe 300",
          "data prepare: --vocabulary excludes --train-bpe; see trivet data prepare --help");
  refused("launch --num_gpu 2 true", "launch: --num_gpu: unknown flag; did you mean \"--num_gpus\"? see trivet launch --help");
  refused("--versoin", "--versoin: unknown flag; did you mean \"--version\"? see trivet --help");
}

TEST(CommandLine, HelpAndVersionAreNoErrors) {
  const Folder folder;
  for (const std::string arguments : {"--help", "train --help", "data prepare --help", "--version"}) {
    const Output output = folder.run(arguments);
    EXPECT_EQ(output.code, 0) << arguments;
    EXPECT_EQ(output.errors, "") << arguments;
    EXPECT_THAT(output.text, HasSubstr(arguments == "--version" ? "trivet 0." : "--help")) << arguments;
  }
}

TEST(Help, NamesConfigsThatExist) {
  const Folder folder;
  const std::string help = folder.run("launch --help").text, start = "configs/";
  const size_t at = help.find(start);
  ASSERT_NE(at, std::string::npos) << help;
  const std::string config = help.substr(at, help.find_first_of(" \n", at) - at);
  EXPECT_TRUE(std::filesystem::exists(TRIVET_SOURCE_DIR "/" + config)) << config;
}

TEST_F(Train, ATimelineIsMeasuredAndSimulated) {
  const Output run = folder.run(
      "train config.json --ranks 2 --set parallel.pipeline=2 --set timeline.step=3 --set timeline.directory=times --set "
      "checkpoint.directory=x");
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_THAT(run.text, HasSubstr("timeline times/timeline.svg: "));
  EXPECT_THAT(run.text, HasSubstr(" ms measured and "));
  EXPECT_THAT(folder.read("times/timeline.svg"), HasSubstr("measured 1f1b: P 2, M 12, makespan "));
  EXPECT_THAT(folder.read("times/timeline.svg"), HasSubstr("simulated 1f1b: P 2, M 12, makespan "));
  for (const char* trace : {"times/measured.json", "times/simulated.json"}) {
    EXPECT_THAT(folder.read(trace), HasSubstr("\"name\":\"0.0B11\",\"pid\":0,"));
    EXPECT_THAT(folder.read(trace), HasSubstr("\"name\":\"1.2L11\",\"pid\":1,"));
    EXPECT_THAT(folder.read(trace), HasSubstr("\"name\":\"0SEND_F0\""));
  }
  EXPECT_THAT(folder.read("times/costs.json"), HasSubstr("\"name\": \"blocks.0\""));
}

TEST_F(Train, ATimelineOfOneStepRecordsThatStep) {
  for (const char* step : {"1", "8"}) {
    const Output run =
        folder.run(std::string("train config.json --set timeline.steps=1 --set timeline.directory=one --set timeline.step=") +
                   step + " --set checkpoint.directory=one" + step);
    EXPECT_EQ(run.code, 0) << run.errors;
    EXPECT_THAT(run.text, HasSubstr("timeline one/timeline.svg: ")) << step;
  }
}

// Looking into steps changes no bit of them.
TEST_F(Train, LooksIntoStepsAsAConfigForDeepSpeedAsks) {
  const std::string ranks = "train config.json --ranks 2 --set training.evaluate_every=0 --set checkpoint.every_steps=0 ";
  ASSERT_EQ(folder.run(ranks + "--metrics plain.jsonl --set checkpoint.directory=a").code, 0);
  const Output run = folder.run(ranks +
                                "--metrics watched.jsonl --set checkpoint.directory=b --set wall_clock_breakdown=true --set "
                                "memory_breakdown=true --set steps_per_print=5 --set flops_profiler.enabled=true --set "
                                "flops_profiler.profile_step=3 --set flops_profiler.output_file=new/flops.txt --set "
                                "comms_logger.enabled=true --set comms_logger.verbose=true --set timeline.step=4 --set "
                                "timeline.steps=2 --set timeline.directory=times");
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(losses("watched.jsonl"), losses("plain.jsonl"));
  const auto count = [&](const std::string& part) {
    size_t found = 0;
    for (size_t at = run.text.find(part); at != std::string::npos; at = run.text.find(part, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("\ntime    backward "), 3u) << run.text;  // after steps 1, 5 and 8
  EXPECT_EQ(count("\nmemory  most in "), 3u) << run.text;
  EXPECT_EQ(count("\nflops   new/flops.txt: step 4, data 2, microbatch 1 x accumulation 6, per rank\n"), 1u) << run.text;
  EXPECT_THAT(folder.read("new/flops.txt"), HasSubstr("\n  blocks.0 "));
  EXPECT_EQ(count("\ntimeline times/timeline.svg: "), 1u);
  EXPECT_EQ(count("\ncomms   operation "), 1u);
  EXPECT_GE(count("\ncomms   all_gather of 2 ranks, "), 8u);
}

// What the last step sends may still be on its way when the step has ended.
TEST_F(Train, LogsTheOperationsOfTheLastStepToo) {
  const auto gathers = [&](const char* overlap) {
    std::filesystem::remove_all(folder.at("checkpoints"));
    const Output run = folder.run(
        "train config.json --ranks 2 --set training.evaluate_every=0 --set zero_optimization.stage=2 --set "
        "comms_logger.enabled=true --set comms_logger.verbose=true --set zero_optimization.overlap_comm=" +
        std::string(overlap));
    EXPECT_EQ(run.code, 0) << run.errors;
    size_t found = 0;
    const std::string line = "\ncomms   all_gather of 2 ranks, ";
    for (size_t at = run.text.find(line); at != std::string::npos; at = run.text.find(line, at + 1)) ++found;
    return found;
  };
  const size_t all = gathers("false");
  EXPECT_GT(all, 8u);
  for (int run = 0; run < 3; ++run) EXPECT_EQ(gathers("true"), all);
}

// A device takes the report; where none can be written, the run ends well all the same and prints it.
TEST_F(Train, AReportThatCannotBeWrittenEndsNoRun) {
  ASSERT_EQ(::mkfifo(folder.at("unread").c_str(), 0600), 0);
  for (const std::string to : {"/dev/null", "/dev/full", "unread"}) {
    std::filesystem::remove_all(folder.at("checkpoints"));
    const Output run = folder.run(
        "train config.json --set training.steps=2 --set training.evaluate_every=0 --set "
        "flops_profiler.enabled=true --set flops_profiler.output_file=" +
        to);
    EXPECT_EQ(run.code, 0) << to << run.errors;
    EXPECT_THAT(run.text, HasSubstr(to == "/dev/null" ? "flops   /dev/null: step 2, " : "flops   step 2, "));
    EXPECT_EQ(run.errors.find(to + ": cannot be written: ") != std::string::npos, to != "/dev/null") << run.errors;
  }
}

TEST_F(Train, AStepToProfileThatIsNotInTheRunIsRefused) {
  const Output run = folder.run("train config.json --set flops_profiler.enabled=true --set flops_profiler.profile_step=8");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.errors, HasSubstr("flops_profiler.profile_step: 8 steps come before the one that is profiled, but this run "
                                    "has only 8; use at most 7"));
}

// Also of a run that counts epochs, whose steps are known only at its start.
TEST_F(Train, ASchedulesEndIsComparedWithTheStepsOfTheRun) {
  int runs = 0;
  const auto told = [&](const std::string& arguments) {
    const Output run = folder.run("train config.json --set training.steps=0 --set training.epochs=0.1 " + arguments +
                                  " --set checkpoint.directory=run" + std::to_string(++runs));
    EXPECT_EQ(run.code, 0) << run.errors;
    return run.text + run.errors;
  };
  const auto schedule = [](const std::string& type, const std::string& params) {
    return "--set 'scheduler={\"type\":\"" + type + "\",\"params\":{" + params + "}}' ";
  };
  EXPECT_THAT(told(schedule("WarmupDecayLR", R"("total_num_steps":9000)")),
              HasSubstr("the schedule of 9000 steps is longer than the run of "));
  EXPECT_THAT(told(schedule("WarmupDecayLR", R"("total_num_steps":2,"warmup_num_steps":1)")),
              HasSubstr("the schedule of 2 steps ends before the run of "));
  EXPECT_THAT(told(schedule("WarmupLR", R"("warmup_num_steps":9000)")), HasSubstr("warmup_num_steps: 9000 is more than the "));
  const std::string decay = schedule("WarmupDecayLR", R"("warmup_num_steps":1)");
  told(decay);
  EXPECT_THAT(told(decay + "--set training.epochs=0.2 --resume run4"),
              HasSubstr("training.epochs is 0.2, and was 0.1, which moves the end of the schedule"));
}

// The run is worth more than its drawing.
TEST_F(Train, GoesOnWithoutATimelineThatCannotBeWritten) {
  const Output run =
      folder.run("launch --num_gpus 1 sh -c 'ulimit -f 2; exec " TRIVET_BINARY_DIR
                 "/trivet train config.json --set timeline.step=2 --set timeline.directory=drawn --set checkpoint={}'");
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("timeline.directory: drawn/timeline.svg cannot be written: File too large"));
}

TEST_F(Train, ALimitOfFilesBelowTheMemoryThatRanksShareIsNamed) {
  folder.write("small", "ulimit -f 300\nexec \"$@\"\n");
  const Output run = folder.run_in("bash small", "launch --num_gpus 2 " TRIVET_BINARY_DIR "/trivet train config.json");
  EXPECT_EQ(run.code, 19) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr(" MiB are more than the limit of the size of files; raise it (ulimit -f)"));
}

TEST_F(Train, ATimelineThatCannotBeIsRefusedBeforeTheFirstStep) {
  Output run = folder.run("train config.json --set timeline.step=7");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.errors, HasSubstr("timeline.step: 7 and the 2 steps after it are not all within training.steps 8"));
  run = folder.run("train config.json --set timeline.step=7 --set training.steps=0 --set training.epochs=0.1");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.errors, HasSubstr("timeline.step: 7 and the 2 steps after it are not all within the "));
  run = folder.run("train config.json --set timeline.step=2 --set timeline.directory=config.json/x");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.errors, HasSubstr("timeline.directory: \"config.json/x\" cannot be created: Not a directory"));
}

}  // namespace
}  // namespace trivet::test
