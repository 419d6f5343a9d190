// Runs `trivet checkpoint import`, `train --init-from` and `checkpoint export` as a user does, with models that transformers
// and other programs saved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/padded_model.h"
#include "tests/cli/program.h"

namespace trivet::test {
namespace {

using testing::HasSubstr;

const std::string kGolden = TRIVET_SOURCE_DIR "/tests/golden/hf/";
const std::string kForeign = TRIVET_SOURCE_DIR "/tests/golden/foreign/";
const std::string kZero = TRIVET_SOURCE_DIR "/tests/golden/zero/";

class Exchange : public testing::Test {
 protected:
  Exchange() {
    std::string text;
    for (int i = 0; i < 1500; ++i) text += static_cast<char>(1 + i * i % 90);
    folder.write("text.txt", text);
    folder.write("config.json", R"({
      "model": {"dropout": 0},
      "data": {"train": "tokens"}, "training": {"steps": 20}, "reproducible": "layout",
      "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
      "checkpoint": {"directory": "one"}
    })");
    EXPECT_EQ(folder.run("data prepare text.txt --vocabulary characters --output tokens").code, 0);
  }
  Output run(const std::string& arguments) const {
    Output output = folder.run(arguments);
    EXPECT_EQ(output.code, 0) << arguments << ": " << output.errors;
    return output;
  }
  std::string refused(const std::string& arguments) const {
    const Output output = folder.run(arguments);
    EXPECT_EQ(output.code, 2) << arguments << ": " << output.errors;
    return output.errors;
  }

  Folder folder;
};

TEST_F(Exchange, TrainsFromAModelOnAnyLayoutAndExportsIt) {
  for (const std::string name : {"gpt2", "llama"}) {
    const std::string start = "train config.json --init-from " + kGolden + name + " --set model.sequence_length=32";
    EXPECT_THAT(run(start + " --set checkpoint.directory=one-" + name).text,
                HasSubstr("weights " + kGolden + name + " (" + name + ")"));
    run(start + " --set checkpoint.directory=many-" + name + " --ranks 8 --set parallel.tensor=2 --set parallel.pipeline=2 " +
        "--set zero_optimization.stage=1");
    EXPECT_THAT(run("checkpoint diff one-" + name + " many-" + name + " --json").text, HasSubstr("\"equal\": true"));
    run("checkpoint export hf many-" + name + " --output back-" + name + " --like " + kGolden + name);
    // Whoever begins with the exported weights begins where the run ended.
    run("checkpoint import hf back-" + name + " --output imported-" + name);
    const std::string shown = run("checkpoint diff imported-" + name + " one-" + name).text;
    EXPECT_THAT(shown, testing::Not(HasSubstr("elements differ")));
  }
}

// The same model in four files: training from each gives the same bits, on any layout.
TEST_F(Exchange, TrainsFromFilesOfOtherPrograms) {
  std::string text;
  for (int i = 0; i < 1500; ++i) text += static_cast<char>('a' + i * i % 9);
  folder.write("few.txt", text);
  run("data prepare few.txt --vocabulary characters --output few");
  const std::string start = "train config.json --set data.train=few --set training.steps=5 --set model.sequence_length=16";
  const auto train = [&](const std::string& model, const std::string& to, const std::string& layout) {
    const std::string output = " --set checkpoint.directory=" + to;
    return run(start + " --init-from " + kForeign + model + output + layout).text;
  };
  const std::string sharded = " --ranks 4 --set parallel.tensor=2 --set zero_optimization.stage=3";
  EXPECT_THAT(train("llama-untied/v0.bin", "v0", ""), HasSubstr("v0.bin (llama, llama2.c, version 0)"));
  EXPECT_THAT(train("llama-untied/v1.bin", "v1", sharded), HasSubstr("v1.bin (llama, llama2.c, version 1)"));
  EXPECT_THAT(train("llama-untied/meta", "meta", sharded), HasSubstr("meta (llama, Meta's format)"));
  EXPECT_THAT(train("gpt2/fp32.bin", "fp32", ""), HasSubstr("fp32.bin (gpt2, llm.c, version 3)"));
  EXPECT_THAT(train("gpt2/bf16.bin", "bf16", sharded), HasSubstr("bf16.bin (gpt2, llm.c, version 5)"));
  for (const std::string pair : {"v0 v1", "v0 meta", "fp32 bf16"})
    EXPECT_THAT(run("checkpoint diff " + pair + " --json").text, HasSubstr("\"equal\": true")) << pair;
}

TEST_F(Exchange, ACheckpointOfDeepSpeedIsImportedWithTheConfigOfItsModel) {
  const std::string step = kZero + "stage2-fp16/global_step2";
  const std::string text = run("checkpoint import deepspeed " + step + " --output imported").text;
  EXPECT_THAT(text, HasSubstr("(llama, DeepSpeed's ZeRO-2 of 3 ranks) -> imported/step-00000000"));
  EXPECT_THAT(text, HasSubstr("\"lora\": {\n    \"rank\": 0\n  }"));
  EXPECT_THAT(text, HasSubstr("--init-from imported"));
  // Without the config next to it.
  run("checkpoint import deepspeed " + kZero + "universal/universal --config " + kZero +
      "universal/config.json --output other");
  EXPECT_THAT(run("checkpoint import deepspeed " + kZero + "stage1-bf16 --output first").text, HasSubstr("ZeRO-1 of 2 ranks"));
  EXPECT_THAT(run("checkpoint diff first other --json").text, HasSubstr("\"equal\": true"));
  EXPECT_THAT(refused("checkpoint import llm.c " + kForeign + "llama/v1.bin --output x"), HasSubstr("as a file of llm.c"));
}

TEST_F(Exchange, NoCheckpointNeedsResharding) {
  run("train config.json --init-from " + kGolden + "gpt2 --ranks 2 --set training.steps=1");
  EXPECT_THAT(run("checkpoint reshard one").text,
              HasSubstr("one/step-00000001 was saved by 2 ranks. Every layout reads it as it is"));
  EXPECT_THAT(run("checkpoint reshard one --json").text, HasSubstr("\"needs_resharding\": false"));
  EXPECT_THAT(refused("checkpoint reshard nowhere"), HasSubstr("nowhere"));
}

TEST_F(Exchange, TheModelOfTheWeightsIsTunedAndThenTrained) {
  const std::string job = std::string(TRIVET_BINARY_DIR) + "/trivet train config.json --init-from " + kGolden +
                          "gpt2 --set training.steps=2 --set autotuning.tuner_num_trials=1 ";
  const Output output = run("launch --num_gpus 2 --autotuning run " + job);
  EXPECT_THAT(output.text, HasSubstr("ds_config_optimal.json --init-from " + kGolden + "gpt2\n"));
  EXPECT_THAT(output.text, HasSubstr("weights " + kGolden + "gpt2 (gpt2)"));
  const auto given = nlohmann::json::parse(folder.read("autotuning_results/ds_config_optimal.json")).at("model");
  const auto theirs = nlohmann::json::parse(std::ifstream(kGolden + "gpt2/config.json"));
  EXPECT_EQ(given.at("layers"), theirs.at("n_layer"));
  EXPECT_EQ(given.at("hidden_size"), theirs.at("n_embd"));
  EXPECT_EQ(given.at("sequence_length"), theirs.at("n_positions"));
}

TEST_F(Exchange, OffloadedAndShardedWeightsAreTheSame) {
  const std::string start = "train config.json --init-from " + kGolden + "gpt2 --set training.steps=3";
  run(start);
  run(start + " --ranks 2 --set zero_optimization.stage=3 --set checkpoint.directory=sharded");
  run(start +
      " --set zero_optimization.stage=1 --set checkpoint.directory=offloaded --set "
      "zero_optimization.offload_optimizer.device=nvme "
      "--set zero_optimization.offload_optimizer.nvme_path=.");
  for (const std::string other : {"sharded", "offloaded"})
    EXPECT_THAT(run("checkpoint diff one " + other + " --json").text, HasSubstr("\"equal\": true")) << other;
}

// One line in the config is as good as the flag, in every command that needs the model.
TEST_F(Exchange, TheConfigMayNameTheModelThatItBeginsWith) {
  const std::string model = kGolden + "gpt2", from = " --set model.from=" + model;
  for (const std::string command : {"plan config.json", "estimate config.json", "config check config.json",
                                    "tune config.json --set autotuning.tuner_num_trials=1"})
    EXPECT_THAT(refused(command), HasSubstr("config.json: model: this section does not say which model")) << command;
  for (const std::string command : {"plan config.json", "config explain config.json"}) {
    std::string with_key = run(command + from).text;
    EXPECT_EQ(with_key, run(command + " --init-from " + model).text) << command;
    EXPECT_THAT(with_key, testing::Not(HasSubstr("768"))) << "the default sizes";
  }
  EXPECT_EQ(run("estimate --init-from " + model).text, run("estimate config.json --init-from " + model).text);
  EXPECT_THAT(run("config check config.json" + from).text, HasSubstr("config.json: OK"));
  run("tune config.json --set autotuning.tuner_num_trials=1 --set training.steps=2" + from);
  for (const std::string command : {"config check config.json", "plan config.json", "train config.json"})
    EXPECT_THAT(
        refused(command + from + " --set model.layers=9"),
        HasSubstr("model.from " + model + ": these weights are of another model: in the config, model.layers is 9, not 2"))
        << command;

  const std::string contradicts = "config check config.json" + from + " --set model.layers=9";
  EXPECT_EQ(folder.run(contradicts).text.find(": OK"), std::string::npos);
  EXPECT_THAT(folder.run(contradicts + " --json").text, HasSubstr("\"ok\": false"));

  run("train config.json --init-from " + model);
  EXPECT_THAT(run("train config.json --set checkpoint.directory=key" + from).text, HasSubstr("weights " + model + " (gpt2)"));
  EXPECT_THAT(run("checkpoint diff one key --json").text, HasSubstr("\"equal\": true"));
  // A run that resumes has the model of its checkpoint, with or without the key.
  for (const std::string& how : {from, std::string()})
    EXPECT_THAT(run("train config.json --resume --set checkpoint.directory=key --set training.steps=22" + how).text,
                HasSubstr("resumed"));
  EXPECT_THAT(refused("train config.json --resume --set checkpoint.directory=key --set model.layers=9"),
              HasSubstr("model.layers: 9 does not match key/step-"));
  EXPECT_THAT(refused("train config.json --resume --set checkpoint.directory=nowhere"),
              HasSubstr("this section does not say which model"));
  EXPECT_THAT(refused("train config.json --resume nowhere"),
              HasSubstr("--resume: there is no directory \"nowhere\"; name the"));
  EXPECT_THAT(refused("replay config.json --step 2 --checkpoints config.json"),
              HasSubstr("--checkpoints: \"config.json\" is not a directory; name"));
  EXPECT_THAT(refused("train config.json --init-from " + kGolden + "llama" + from), HasSubstr("name one of the two"));
  EXPECT_THAT(refused("train config.json --set model.from=nowhere"),
              HasSubstr("model.from nowhere: there is no such file or directory"));
  EXPECT_THAT(refused("config check config.json --set model.lora.targets=all-linear" + from),
              HasSubstr("config.json: model.lora.rank: 0 is not accepted with model.lora.targets"));
}

TEST_F(Exchange, AdaptersOfRandomWeightsAreTold) {
  const std::string adapters = " --set model.lora.rank=2 --set model.lora.targets=all-linear";
  const std::string with_weights = adapters + " --set checkpoint.directory=with --set model.from=" + kGolden + "gpt2";
  const std::string without =
      adapters +
      " --set checkpoint.directory=without --set model.vocabulary=characters --set model.layers=1 --set model.hidden_size=8 "
      "--set model.heads=2 --set model.sequence_length=8";
  const auto note = HasSubstr("model.lora: the adapters are trained on random weights, which do not change");
  for (const std::string command : {"config check config.json", "plan config.json", "train config.json"}) {
    EXPECT_THAT(run(command + without).text, note);
    EXPECT_THAT(run(command + with_weights).text, testing::Not(note));
  }
  EXPECT_THAT(run("train config.json --resume --set training.steps=22" + without).text, testing::Not(note));
}

TEST_F(Exchange, ACheckpointGivesWeightsToo) {
  run("checkpoint import hf " + kGolden + "gpt2 --output imported");
  run("train config.json --init-from " + kGolden + "gpt2");
  run("train config.json --init-from imported --set checkpoint.directory=two");
  EXPECT_THAT(run("checkpoint diff one two --json").text, HasSubstr("\"equal\": true"));
  EXPECT_THAT(refused("train config.json --resume imported --set checkpoint.directory=three --init-from imported"),
              HasSubstr("was imported and holds weights alone; begin a run with them: --init-from imported"));
  for (const char* command :
       {"train config.json --resume imported", "train config.json --resume --set checkpoint.directory=imported"})
    EXPECT_THAT(refused(command), HasSubstr("--resume: imported/step-00000000 was imported and holds weights alone"))
        << command;
  EXPECT_THAT(refused("train config.json --init-from imported --set checkpoint.directory=imported"),
              HasSubstr("holds a model that was imported, which no run continues; choose another directory"));
  // No run reads the file "latest" when it begins or resumes; DeepSpeed has one, too.
  std::filesystem::resize_file(folder.at("one/latest"), 1 << 24);
  run("train config.json --init-from one --set checkpoint.directory=three");
  run("train config.json --resume one --set checkpoint.directory=four");
}

// Replaces element 5 of a float32 tensor in a file of safetensors.
void plant(const std::string& file, const std::string& tensor, float value) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  uint64_t header_bytes = 0;
  stream.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
  std::string header(header_bytes, ' ');
  stream.read(header.data(), static_cast<std::streamsize>(header_bytes));
  const auto entry = nlohmann::json::parse(header).at(tensor);
  ASSERT_EQ(entry.at("dtype"), "F32");
  stream.seekp(
      static_cast<std::streamoff>(8 + header_bytes + entry.at("data_offsets").at(0).get<uint64_t>() + 5 * sizeof value));
  stream.write(reinterpret_cast<const char*>(&value), sizeof value);
}

TEST_F(Exchange, NamesTheFileAndTheTensorOfAWeightThatIsNotFinite) {
  for (const auto& [value, shown] : {std::pair(NAN, "nan"), {INFINITY, "inf"}})
    for (const std::string further : {"", " --ranks 2 --set zero_optimization.stage=3"}) {
      std::filesystem::remove_all(folder.at("bad"));
      std::filesystem::copy(kGolden + "gpt2", folder.at("bad"));
      plant(folder.at("bad/model.safetensors"), "transformer.h.0.mlp.c_fc.weight", value);
      const Output output = folder.run("train config.json --init-from bad" + further);
      EXPECT_EQ(output.code, 15) << output.errors;
      EXPECT_THAT(output.errors,
                  HasSubstr(std::string("--init-from: tensor \"transformer.h.0.mlp.c_fc.weight\" of bad/model.safetensors "
                                        "has an element that is ") +
                            shown + ": no training can begin with it, whatever its learning rate"));
      const Output import = folder.run("checkpoint import hf bad --output imported");
      EXPECT_EQ(import.code, 15) << import.errors;
      EXPECT_THAT(import.errors,
                  HasSubstr(std::string("error: checkpoint import: tensor \"transformer.h.0.mlp.c_fc.weight\" of "
                                        "bad/model.safetensors has an element that is ") +
                            shown + ": no training can begin with it"));
    }
  // A finite one may be too large for the type of the run, also if it is frozen.
  plant(folder.at("bad/model.safetensors"), "transformer.h.0.mlp.c_fc.weight", 70000);
  const std::string adapted = " --set model.lora.rank=2 --set model.lora.targets=all-linear";
  for (const std::string& further : {std::string(), adapted, adapted + " --ranks 2 --set zero_optimization.stage=3"}) {
    const Output half = folder.run("train config.json --init-from bad --set fp16.enabled=true" + further);
    EXPECT_EQ(half.code, 15) << half.errors;
    EXPECT_THAT(half.errors, HasSubstr("bad/model.safetensors has an element that is 70000, infinite in float16")) << further;
  }
  // A finite one may be too large to compute with.
  plant(folder.at("bad/model.safetensors"), "transformer.h.0.mlp.c_fc.weight", 3e38F);
  const Output large = folder.run("train config.json --init-from bad");
  EXPECT_EQ(large.code, 16) << large.errors;
  EXPECT_THAT(large.errors,
              HasSubstr("no step had changed a weight before, so that no learning rate helps: look at the weights"));
}

TEST_F(Exchange, AResumedRunIgnoresTheInitialWeights) {
  const std::string start = "train config.json --init-from " + kGolden + "gpt2 --resume ";
  run(start + "--set training.steps=10");
  run(start);
  run("train config.json --init-from " + kGolden + "gpt2 --set checkpoint.directory=two");
  EXPECT_THAT(run("checkpoint diff one two --json").text, HasSubstr("\"equal\": true"));
}

TEST_F(Exchange, TheDifferenceOfConfigsIsThatOfTheirModels) {
  folder.write("of_folder.json", R"({"model": {"from": ")" + kGolden + R"(gpt2"}})");
  folder.write("as_keys.json", run("config explain of_folder.json").text);
  EXPECT_THAT(run("config diff of_folder.json as_keys.json").text, testing::Not(HasSubstr("model.layers")));
}

TEST_F(Exchange, AResumedRunIsNotThatOfOtherWeights) {
  EXPECT_THAT(run("train config.json --init-from " + kGolden + "gpt2").text, testing::Not(HasSubstr("initializer_range")));
  EXPECT_THAT(
      refused("train config.json --resume --init-from " + kGolden + "llama"),
      testing::ContainsRegex("--init-from [^ ]*llama is another model: its model.[a-z_]+ is [^,]*, but one/step-[^ ]* was "
                             "saved with [^;]*; a resumed run has the model of its checkpoint, so leave --init-from out"));
}

TEST_F(Exchange, RefusesWeightsOfAnotherModel) {
  EXPECT_THAT(
      refused("train config.json --init-from " + kGolden + "gpt2 --set model.layers=3"),
      HasSubstr("these weights are of another model: in the config, model.layers is 3, not 2; leave these keys out to take "
                "them from the weights"));
  EXPECT_THAT(refused("train config.json --init-from " + kGolden + "gpt2 --set model.heads=1"),
              HasSubstr("these weights are of another model: in the config, model.heads is 1, not "));
  EXPECT_THAT(refused("tune config.json --init-from " + kGolden + "gpt2 --set model.sequence_length=8"),
              HasSubstr("these weights are of another model: in the config, model.sequence_length is 8, not "));
  EXPECT_THAT(refused("train config.json --init-from nowhere"),
              HasSubstr("--init-from nowhere: there is no such file or directory"));
  EXPECT_THAT(refused("train config.json --init-from text.txt"),
              HasSubstr("--init-from text.txt: is a file, but none of llm.c"));
  EXPECT_THAT(refused("train config.json --init-from /dev/null"),
              HasSubstr("--init-from /dev/null: is a pipe or a device; give"));
  std::filesystem::create_directories(folder.at("trainer/checkpoint-5"));
  EXPECT_THAT(refused("train config.json --init-from trainer"), HasSubstr("it holds checkpoint-5"));
  std::filesystem::copy(kGolden + "gpt2", folder.at("trainer/checkpoint-5"), std::filesystem::copy_options::recursive);
  EXPECT_THAT(refused("train config.json --init-from trainer"),
              HasSubstr("is no model, but holds one; name it: --init-from trainer/checkpoint-5"));
  run("train config.json --init-from " + kGolden + "gpt2 --set run.directory=of_run --set checkpoint.directory=of_run/steps");
  EXPECT_THAT(refused("evaluate of_run text.txt"),
              HasSubstr("of_run: is the folder of a run (run.directory); its checkpoints are in of_run/steps: name that"));
  std::filesystem::create_directory(folder.at("empty"));
  EXPECT_THAT(refused("train config.json --init-from empty"), HasSubstr("; it is empty"));
  EXPECT_THAT(refused("checkpoint export hf nowhere --output x"), HasSubstr("nowhere"));
  EXPECT_THAT(refused("checkpoint export hf of_run/steps --output of_run/steps/step-00000020/x"),
              HasSubstr("lies in the step that is exported"));
  EXPECT_EQ(folder.run("checkpoint import hf nowhere --output x").code, 2);
}

// The cache of Hugging Face's hub consists of links. A checkpoint needs nothing of the folder that its run began with.
TEST_F(Exchange, AModelMayConsistOfLinksAndBeGoneWhenItsRunResumes) {
  write_padded_model(folder, "blobs", 7);
  std::filesystem::create_directory(folder.at("snapshot"));
  for (const auto& file : std::filesystem::directory_iterator(folder.at("blobs")))
    std::filesystem::create_symlink("../blobs/" + file.path().filename().string(),
                                    folder.at("snapshot/" + file.path().filename().string()));
  std::string text;
  for (int i = 0; i < 1500; ++i) text += i * i % 7 < 3 ? "a " : "b ";
  folder.write("ab.txt", text);
  EXPECT_EQ(run("checkpoint import hf snapshot --output imported").text.find("tokenizer"), std::string::npos);
  const std::string train = "train config.json --set data.train=ab.txt --set training.steps=";
  run(train + "3 --init-from snapshot");
  run(train + "3 --set model.from=snapshot --set checkpoint.directory=key");
  run("checkpoint export hf one --output back --like snapshot");
  EXPECT_EQ(folder.read("back/tokenizer.json"), folder.read("blobs/tokenizer.json"));
  const std::string draw = " --prompt 'a b' --tokens 20 --temperature 3";
  EXPECT_EQ(run("generate back" + draw).text, run("generate one" + draw).text);
  EXPECT_NE(run("generate back --context 1" + draw).text, run("generate one" + draw).text);
  EXPECT_THAT(refused("generate " + kGolden + "gpt2" + draw), HasSubstr("the folder has no tokenizer; put"));
  std::filesystem::remove_all(folder.at("snapshot"));
  std::filesystem::remove_all(folder.at("blobs"));
  for (const char* named : {"5", "6 --init-from snapshot", "5 --set model.from=snapshot --set checkpoint.directory=key"})
    EXPECT_THAT(run(train + named + " --resume").text, HasSubstr("resumed")) << named;
  EXPECT_THAT(run("replay config.json --set data.train=ab.txt --set training.steps=5 --step 5").text, HasSubstr("are equal"));
  EXPECT_THAT(refused(train + "5 --init-from snapshot --resume --set checkpoint.directory=nowhere"),
              HasSubstr("--init-from snapshot: there is no such file or directory"));
}

// The loss is that of an evaluation in training, whatever holds the model and however it is dealt to ranks.
TEST_F(Exchange, EvaluateMeasuresTheLossOfACheckpointAndOfAModel) {
  std::string text;
  for (int i = 0; i < 900; ++i) text += i * i % 7 < 3 ? "a " : "b ";
  folder.write("held_out.txt", text);
  write_padded_model(folder, "chat", 7);
  run("train config.json --init-from chat --metrics m.jsonl --set data.train=held_out.txt --set data.validation=held_out.txt "
      "--set "
      "training.steps=3 --set training.evaluate_every=3 --set model.sequence_length=7");
  const auto evaluated = nlohmann::json::parse(folder.read("m.evaluation.jsonl"));
  run("checkpoint export hf one --output back --like chat");
  for (const char* how : {"one held_out.txt", "back held_out.txt --set model.sequence_length=7",
                          "one held_out.txt --ranks 3 --set zero_optimization.stage=3",
                          "one held_out.txt --ranks 4 --set parallel.tensor=2 --set parallel.pipeline=2"}) {
    const auto found = nlohmann::json::parse(
        run(std::string(
                "evaluate --json --set reproducible=layout --set train_batch_size=12 --set train_micro_batch_size_per_gpu=2 ") +
            how)
            .text);
    EXPECT_EQ(found.at("loss"), evaluated.at("loss")) << how;
    EXPECT_EQ(found.at("targets"), evaluated.at("tokens")) << how;
  }
  EXPECT_THAT(run("evaluate one held_out.txt").text, HasSubstr("held_out.txt: 900 tokens\nloss    "));
  EXPECT_THAT(run("evaluate one held_out.txt").errors, HasSubstr("the last 3 tokens are not scored: they fill no sample of "));
  // Documents of one sample have the bits that each has alone, angles of rotary positions among them.
  folder.write("documents.jsonl", R"({"text": "a b b a"}
{"text": "b a a"}
{"text": "b b a b a b b a"}
{"text": "a a"}
{"text": "b a b"}
)");
  const auto loss_of = [&](const std::string& how) {
    return nlohmann::json::parse(run("evaluate --json one documents.jsonl --set data.packing=" + how).text).at("loss");
  };
  const auto alone = loss_of("single --set train_batch_size=4");
  EXPECT_EQ(loss_of("isolated --set train_batch_size=4"), alone);
  EXPECT_EQ(loss_of("isolated --ranks 2 --set train_batch_size=8"), alone);
  EXPECT_NE(loss_of("whole --set train_batch_size=4"), alone);
  // The loss counts what the run of the checkpoint counted.
  folder.write("pairs.jsonl", "{\"prompt\": \"a a\", \"completion\": \" b\"}\n");
  run("train config.json --init-from chat --set data.train=pairs.jsonl --set training.objective=sft --set training.steps=1 "
      "--set "
      "data.packing=single --set checkpoint.directory=two --set data.validation_fraction=0");
  EXPECT_THAT(run("evaluate two pairs.jsonl").text, testing::AllOf(HasSubstr("pairs.jsonl: 1 document, in 1 sample with "),
                                                                   HasSubstr("over 2 targets of 1 sample, perplexity")));
  EXPECT_THAT(refused("evaluate nowhere pairs.jsonl"), HasSubstr("evaluate nowhere: there is no such file or directory"));
  EXPECT_THAT(refused("evaluate one pairs.jsonl --set training.objective=dpo"), HasSubstr("compares with the weights"));
  for (const char* other : {"model.from=two", "data.train=pairs.jsonl", "data.validation=pairs.jsonl",
                            "data.validation_fraction=0.5", "training.evaluate_samples=3"})
    EXPECT_THAT(refused(std::string("evaluate one held_out.txt --set ") + other),
                testing::ContainsRegex("evaluate one held_out.txt (says what|trains nothing and writes no files)"));
  for (const char* other : {"run.directory=r", "training.evaluate_every=3", "tensorboard.enabled=true"})
    EXPECT_THAT(refused(std::string("evaluate one held_out.txt --set ") + other), HasSubstr("this key is for training"));
}

// Such a model may have rows to spare, as all others.
TEST_F(Exchange, AModelOfBytesIsUsedWithBytesAsTheConfigSays) {
  run("train config.json --set data.train=text.txt --set model.vocabulary=bytes --set model.vocabulary_rows=320 --set "
      "model.layers=1 --set "
      "model.hidden_size=8 --set model.heads=2 --set model.sequence_length=8 --set training.steps=1");
  run("checkpoint export hf one --output back");
  EXPECT_EQ(nlohmann::json::parse(run("evaluate --json one text.txt").text).at("loss"),
            nlohmann::json::parse(run("evaluate --json back text.txt --set model.vocabulary=bytes").text).at("loss"));
  EXPECT_THAT(refused("evaluate back text.txt"), HasSubstr("the folder back has no tokenizer"));
}

// The rows of the embedding belong to the characters that the run had, not to as many others.
TEST_F(Exchange, CharactersAreThoseOfTheRunThatSavedTheModel) {
  std::string a, b;
  for (int i = 0; i < 300; ++i) a += i % 3 == 0 ? "ab " : "ba ", b += i % 3 == 0 ? "xy " : "yx ";
  folder.write("a.txt", a), folder.write("b.txt", b);
  const std::string characters = " --set model.vocabulary=characters";
  const std::string small =
      "train config.json --set model.layers=1 --set model.hidden_size=16 --set model.heads=2 --set training.steps=1";
  run(small + characters + " --set data.train=a.txt --set model.sequence_length=8");
  run("evaluate one a.txt");
  run("evaluate one/step-00000001/ a.txt");  // as shells complete it
  EXPECT_THAT(refused("evaluate one b.txt"), HasSubstr("is not among the 3 characters of the training text"));
  for (const std::string& vocabulary : {std::string(), characters})
    EXPECT_THAT(refused("train config.json --init-from one --set checkpoint.directory=two --set data.train=b.txt" + vocabulary),
                HasSubstr("is not among the 3 characters of the training text"));
  for (const char* how : {"", " --resume"})
    EXPECT_THAT(refused(small + " --set checkpoint.directory=" + kGolden + "gpt2" + how), HasSubstr("name another folder"));
  std::filesystem::create_directory(folder.at("others"));
  folder.write("others/latest", "global_step500");
  EXPECT_THAT(refused("checkpoint import hf " + kGolden + "gpt2 --output others"),
              HasSubstr("--output: others holds checkpoints of another program, whose \"latest\" names \"global_step500\""));
  const std::string of_run = small + " --set model.vocabulary=characters --set run.directory=r --set checkpoint.directory=r";
  run(of_run);  // which leaves its own config.json there
  run(of_run + " --resume --set training.steps=2");
  run("plan config.json --init-from r");
}

// Samples as long as all positions of a model would be mostly padding.
TEST_F(Exchange, AFolderGivesSamplesOfAtMost1024Positions) {
  write_padded_model(folder, "long", 7);
  auto config = nlohmann::json::parse(folder.read("long/config.json"));
  config["max_position_embeddings"] = 4096;
  folder.write("long/config.json", config.dump());
  const std::string line = "model.sequence_length: 1024 of the 4096 positions that the model has; longer documents are cut";
  const std::string check = "config check config.json --init-from long --set training.steps=1";
  EXPECT_THAT(run(check).text, HasSubstr(line));
  EXPECT_THAT(run(check + " --set model.sequence_length=2048").text, testing::Not(HasSubstr("positions that the model has")));
  EXPECT_THAT(run("config explain config.json --init-from long").text, HasSubstr("\"sequence_length\": 1024"));
  for (const char* command : {"plan config.json --init-from long", "estimate --init-from long"})
    EXPECT_THAT(run(command).errors, HasSubstr(line)) << command;
  EXPECT_THAT(folder.run("bench step config.json --set model.from=long --profile none").errors, HasSubstr(line));
}

// With transformers 5.24, AutoTokenizer gives other tokens for such a folder than PreTrainedTokenizerFast.
TEST_F(Exchange, TellsThatTransformersTakesATokenizerByTheTypeOfTheModel) {
  std::string text;
  for (int line = 0; line < 100; ++line) text += "the tide of line " + std::to_string(line) + " goes on\n";
  folder.write("lines.txt", text);
  run("data prepare lines.txt --train-bpe 300 -o lines.tokens");
  for (const bool bias : {true, false}) {
    const std::string name = bias ? "biased" : "plain";
    folder.write(
        name + ".json",
        R"({"model": {"type": "llama", "layers": 1, "hidden_size": 16, "heads": 2, "sequence_length": 8, "qkv_bias": )" +
            std::string(bias ? "true" : "false") + R"(, "vocabulary": "lines.tokens"}, "data": {"train": "lines.tokens"},
                     "training": {"steps": 1}, "train_batch_size": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
                     "checkpoint": {"directory": "of-)" +
            name + "\"}}");
    run("train " + name + ".json");
    const std::string exported = run("checkpoint export hf of-" + name + " --output hf-" + name).text;
    EXPECT_THAT(exported, HasSubstr(bias ? "\"qwen2\"" : "\"llama\""));
    const auto told = HasSubstr("note: transformers reads the tokenizer of a model of type \"qwen2\" as Qwen2Tokenizer");
    EXPECT_EQ(testing::Value(exported, told), bias) << exported;
  }
}

// Weights of 140 GB are on the cluster, or not published.
TEST_F(Exchange, AConfigOfHuggingFaceAloneIsPlanned) {
  std::filesystem::create_directory(folder.at("described"));
  std::filesystem::copy(kGolden + "llama/config.json", folder.at("described/config.json"));
  const auto without_name = [](std::string text) {
    for (const std::string& name : {kGolden + "llama", std::string("described/config.json"), std::string("described")})
      for (size_t at = text.find(name); at != std::string::npos; at = text.find(name)) text.erase(at, name.size());
    return text;
  };
  for (const std::string command : {"plan config.json --set data.train=text.txt --init-from ", "estimate --init-from "})
    for (const char* alone : {"described", "described/config.json"})
      EXPECT_EQ(without_name(run(command + alone).text), without_name(run(command + kGolden + "llama").text))
          << command << alone;
  EXPECT_THAT(refused("train config.json --init-from described"), HasSubstr("put the weights there"));
  // Such a model stands in the place of a config, too.
  folder.write("batch.json", R"({"train_micro_batch_size_per_gpu": 1})");
  const std::string planned = without_name(run("plan batch.json --init-from described").text);
  for (const char* alone : {"described", "described/config.json"}) {
    const Output plan = run(std::string("plan ") + alone);
    EXPECT_EQ(without_name(plan.text), planned) << alone;
    EXPECT_THAT(plan.errors, HasSubstr(std::string("plan: ") + alone +
                                       " is a model, planned as with --init-from and the "
                                       "config {\"train_micro_batch_size_per_gpu\": 1}; --set gives other keys\n"));
  }
  EXPECT_THAT(run("plan described --set train_batch_size=4 --world-size 2").errors, HasSubstr("the config {};"));
  for (const char* command : {"train ", "tune ", "config check ", "estimate "}) {
    EXPECT_THAT(refused(std::string(command) + "described/config.json"),
                testing::AllOf(HasSubstr("described/config.json: this is the config.json of a model in Hugging Face's format"),
                               testing::Not(HasSubstr("unknown key"))))
        << command;
    EXPECT_THAT(refused(std::string(command) + "described"), HasSubstr("described: is the folder of a model, not a config"))
        << command;
  }
  // The folder of a run holds its config, which has the same name.
  std::filesystem::create_directory(folder.at("run"));
  folder.write("run/config.json", folder.read("config.json"));
  EXPECT_THAT(refused("config check run"), testing::Not(HasSubstr("the folder of a model")));
}

TEST_F(Exchange, ConversationsAreWrittenByTheTokensOfAFoldersOwnTemplate) {
  write_padded_model(folder, "chat", 7);
  EXPECT_THAT(refused("generate chat --chat --prompt a --tokens 1"),
              HasSubstr("the template of its conversations is not known"));
  folder.write("chat/chat_template.jinja", "{{ '<|im_start|>' + role + content + '<|im_end|>' }}");
  EXPECT_THAT(run("generate chat --chat --prompt a --tokens 1").errors,
              HasSubstr("chat: its template is a program in Jinja, which is not run: conversations are written as chatml"));
}

TEST_F(Exchange, TheFolderOfAModelSaysHowConversationsAreWrittenAndWithWhichTypeAutoTrains) {
  write_padded_model(folder, "chat", 7);
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += R"({"messages": [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "b"}]})"
             "\n";
  folder.write("chats.jsonl", lines);
  const std::string train =
      "train config.json --set data.train=chats.jsonl --set training.steps=2 --set training.objective=sft --set "
      "bf16.enabled=auto ";
  const auto begin = [&](const std::string& jinja) {
    folder.write("chat/chat_template.jinja", jinja);
    return train + "--init-from chat ";
  };
  EXPECT_THAT(refused(begin("{{ '<|im_start|>user<|im_sep|>' + content + '<|im_end|>' }}")), HasSubstr("need a chat template"));
  const std::string ours = begin("{{ bos_token }}{{ '<|im_start|>' + role + content + '<|im_end|>' }}");
  const std::string line = "data.chat_template: chatml, whose marks are in that of chat; what this program in Jinja adds";
  EXPECT_THAT(run(ours + "--set checkpoint.directory=taken").text, testing::AllOf(HasSubstr(line), HasSubstr(", float32,")));
  run(ours + "--set data.chat_template=chatml --set checkpoint.directory=named");
  EXPECT_THAT(run("checkpoint diff taken named --json").text, HasSubstr("\"equal\": true"));
  auto config = nlohmann::json::parse(folder.read("chat/config.json"));
  config["dtype"] = "bfloat16";
  folder.write("chat/config.json", config.dump());
  const std::string text = run(ours + "--set checkpoint.directory=short").text;
  EXPECT_THAT(text, HasSubstr("bf16.enabled: \"auto\" is true, the type of the weights in chat"));
  EXPECT_THAT(text, HasSubstr(", bfloat16,"));
  EXPECT_THAT(run("checkpoint export hf short --output same").text, HasSubstr("of weights in bfloat16"));
  EXPECT_THAT(run("checkpoint export hf taken --output narrow").text,
              testing::AllOf(HasSubstr("of weights in bfloat16"), HasSubstr("as those of chat; --dtype float32 keeps them")));
  EXPECT_THAT(run("checkpoint export hf taken --output wide --dtype float32").text, HasSubstr("of weights in float32"));
  // A run that resumes takes both from its checkpoint.
  std::filesystem::remove_all(folder.at("chat"));
  const std::string resumed = run(train + "--set training.steps=4 --resume short --set checkpoint.directory=longer").text;
  EXPECT_THAT(resumed, testing::AllOf(HasSubstr("data.chat_template: chatml, that of"), HasSubstr(", bfloat16,")));
}

TEST_F(Exchange, AnEmbeddingMayHaveMoreRowsThanTheTokenizerOfItsFolderHasTokens) {
  write_padded_model(folder, "chat", 7);
  std::string text;
  for (int i = 0; i < 1500; ++i) text += i * i % 7 < 3 ? "a " : "b ";
  folder.write("ab.txt", text);
  const std::string start = "train config.json --init-from chat --set data.train=ab.txt --set training.steps=3";
  run(start);
  EXPECT_THAT(run("generate one --prompt a --tokens 60 --temperature 9 --top-k 0").text,
              testing::MatchesRegex("([ab ]|\\[UNK\\]|<\\|im_end\\|>)*\n"));
  for (const char* command : {"config check", "plan", "train"})
    EXPECT_THAT(refused(command +
                        std::string(" config.json --init-from chat --set data.train=ab.txt --set model.vocabulary=characters")),
                HasSubstr("model.vocabulary is \"characters\" (3 tokens), but the embedding of this model has 97 rows"))
        << command;
  for (const std::string vocabulary : {"chat", "./chat", "chat/tokenizer.json"}) {
    run(start + " --set model.vocabulary=" + vocabulary + " --set checkpoint.directory=two");
    EXPECT_THAT(run("checkpoint diff one two --json").text, HasSubstr("\"equal\": true")) << vocabulary;
    std::filesystem::remove_all(folder.at("two"));
  }
  EXPECT_THAT(run("plan config.json --set model.layers=1 --set model.vocabulary=chat --set model.vocabulary_rows=97 --set "
                  "data.train=ab.txt")
                  .text,
              HasSubstr("mesh"));
  // Tokens of another tokenizer would train the wrong rows.
  run("data prepare ab.txt --vocabulary characters --output other.tokens");
  run("data prepare ab.txt --vocabulary chat --output same.tokens");
  for (const std::string command :
       {"train config.json --init-from chat --set checkpoint.directory=four --set data.train=", "evaluate chat "})
    EXPECT_THAT(
        refused(command + "other.tokens"),
        HasSubstr("model.vocabulary: the tokenizer of the weights is chat/tokenizer.json, but other.tokens was made with "
                  "tokenizer \"characters\" of 3 tokens; use data that were prepared with that of the weights"));
  run("train config.json --init-from chat --set data.train=same.tokens --set training.steps=3 --set checkpoint.directory=two");
  EXPECT_THAT(run("checkpoint diff one two --json").text, HasSubstr("\"equal\": true"));
  run("checkpoint export hf one --output back");
  EXPECT_EQ(nlohmann::json::parse(folder.read("back/config.json")).at("vocab_size"), 97);
  EXPECT_EQ(nlohmann::json::parse(folder.read("back/config.json")).at("eos_token_id"), 6);
  EXPECT_EQ(nlohmann::json::parse(folder.read("back/tokenizer_config.json")).at("eos_token"), "<|im_end|>");
  // The tokenizer is that of the checkpoint, whatever --like has.
  const std::string tokenizer = folder.read("chat/tokenizer.json");
  std::filesystem::copy(folder.at("chat"), folder.at("like"));
  std::filesystem::remove(folder.at("like/tokenizer.json"));
  EXPECT_THAT(run("checkpoint export hf one --output without --like like").text,
              HasSubstr("--like like has no tokenizer.json, so that of the checkpoint was written"));
  EXPECT_EQ(folder.read("without/tokenizer.json"), folder.read("back/tokenizer.json"));
  std::string other = tokenizer;
  folder.write("like/tokenizer.json", other.replace(other.find("\"b\""), 3, "\"q\""));
  EXPECT_THAT(
      refused("checkpoint export hf one --output never --like like"),
      HasSubstr("--like like: its tokenizer.json is not the tokenizer of the checkpoint, whose tokens the weights have "));
  EXPECT_FALSE(std::filesystem::exists(folder.at("never")));
  auto rewritten = nlohmann::ordered_json::parse(tokenizer);
  rewritten["truncation"] = nullptr;
  folder.write("like/tokenizer.json", rewritten.dump(7));
  run("checkpoint export hf one --output same --like like");
  run("checkpoint import hf chat --output imported");
  run("train config.json --init-from imported --set data.train=ab.txt --set training.steps=3 --set checkpoint.directory=three");
  EXPECT_THAT(run("checkpoint diff one three --json").text, HasSubstr("\"equal\": true")) << "it knows its tokenizer";
  for (const char* gone : {"chat/tokenizer.json", "imported", "three"}) std::filesystem::remove_all(folder.at(gone));
  run("checkpoint import hf chat --output imported");
  for (const std::string vocabulary : {"", " --set model.vocabulary=bytes", " --set model.vocabulary=characters"}) {
    EXPECT_THAT(refused(start + " --set checkpoint.directory=four" + vocabulary),
                HasSubstr("the folder chat has no tokenizer: put the tokenizer.json"))
        << vocabulary;
    EXPECT_THAT(
        refused("train config.json --init-from imported --set checkpoint.directory=four --set data.train=ab.txt" + vocabulary),
        HasSubstr("imported/step-00000000 holds no tokenizer"))
        << vocabulary;
  }
  std::filesystem::remove_all(folder.at("imported"));
  folder.write("chat/generation_config.json", "{");
  EXPECT_THAT(run("checkpoint import hf chat --output imported").text,
              HasSubstr("note: the folder has no tokenizer.json or tokenizer.model, so the checkpoint holds no tokenizer\n"
                        "note: chat/generation_config.json: is no JSON object"));
  std::filesystem::remove_all(folder.at("imported"));
  ASSERT_EQ(mkfifo(folder.at("chat/tokenizer.json").c_str(), 0600), 0);
  EXPECT_THAT(run("checkpoint import hf chat --output imported").text,
              HasSubstr("note: the tokenizer was left out: chat/tokenizer.json is a folder, a pipe or a device"));
  write_padded_model(folder, "more", 98);
  EXPECT_THAT(refused("train config.json --init-from more --set data.train=ab.txt"),
              HasSubstr("the embedding has 97 rows, but the vocabulary \"more/tokenizer.json\" has 98 tokens"));
  EXPECT_THAT(refused("train config.json --init-from more --set data.train=ab.txt --set model.vocabulary=bytes"),
              HasSubstr("model.vocabulary is \"bytes\" (256 tokens), but the embedding of this model has 97 rows"));
}

}  // namespace
}  // namespace trivet::test
