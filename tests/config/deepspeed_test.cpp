// What DeepSpeed accepts is accepted, and what differs is said.
#include "engine/config/deepspeed.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "engine/config/explain.h"
#include "engine/config/key_table.h"
#include "engine/config/load_for_run.h"
#include "tests/config/support.h"

namespace trivet {
namespace {

using Lines = std::vector<std::string>;

Config parsed(const std::string& text) { return parse_config(text, "a"); }

std::string taken(const Config& config, const std::string& path) {
  for (const AutoKey& key : config.automatic)
    if (key.path == path) return key.taken;
  return "nothing";
}

TEST(Auto, InZeroAndPrecisionIsTheDefaultAsInDeepSpeed) {
  const Config config =
      parsed(R"({"zero_optimization": {"stage": 3, "overlap_comm": "auto", "stage3_max_live_parameters": "auto",
      "offload_optimizer": {"device": "auto", "pin_memory": "auto"}}, "fp16": {"loss_scale": "auto", "enabled": "auto"}})");
  EXPECT_TRUE(config.zero.overlap_comm);
  EXPECT_EQ(config.zero.stage3_max_live_parameters, 1'000'000'000);
  EXPECT_EQ(config.zero.offload_optimizer.device, OffloadDevice::None);
  EXPECT_FALSE(config.fp16.enabled);
  EXPECT_EQ(taken(config, "zero_optimization.overlap_comm"), "true, the default");
  EXPECT_EQ(taken(config, "zero_optimization.offload_optimizer.pin_memory"), "true, the default");
  EXPECT_EQ(taken(config, "fp16.enabled"), "false, the default of Hugging Face's Trainer, which takes --fp16");
}

TEST(Auto, OfBucketsFollowsTheHiddenSizeAsInTheTrainer) {
  const Config config = parsed(R"({"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": "auto",
      "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto"}, "model": {"hidden_size": 96}})");
  EXPECT_EQ(config.zero.reduce_bucket_size, 9216);
  EXPECT_EQ(config.zero.stage3_prefetch_bucket_size, 8294);
  EXPECT_EQ(config.zero.stage3_param_persistence_threshold, 960);
  EXPECT_EQ(taken(config, "zero_optimization.stage3_prefetch_bucket_size"),
            "8294, 0.9 x hidden_size x hidden_size, as Hugging Face's Trainer does");
}

TEST(Auto, OfBucketsIsTheDefaultForAModelWithoutAHiddenSize) {
  const Config config =
      parsed(R"({"zero_optimization": {"reduce_bucket_size": "auto", "stage3_param_persistence_threshold": "auto"},
      "model": {"type": "sequential", "input": [1, 8, 8], "network": ["flatten", "dense 10"]}})");
  EXPECT_EQ(config.zero.reduce_bucket_size, 500'000'000);
  EXPECT_EQ(config.zero.stage3_param_persistence_threshold, 100'000);
}

TEST(Auto, OfTheOptimizerAndScheduleIsWhatTheTrainerHas) {
  const Config config = parsed(R"({"training": {"steps": 50},
      "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_min_lr": "auto",
                                                        "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
      "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
      "gradient_clipping": "auto"})");
  EXPECT_EQ(config.optimizer.lr, 5e-5);
  EXPECT_EQ(config.optimizer.beta2, 0.999);
  EXPECT_EQ(config.scheduler.warmup_max_lr, 5e-5);  // follows lr, which comes later in the file
  EXPECT_EQ(config.scheduler.warmup_num_steps, 0);
  EXPECT_EQ(config.scheduler.total_num_steps, 50);
  EXPECT_EQ(config.gradient_clipping, 1.0);
  EXPECT_EQ(taken(config, "scheduler.params.warmup_max_lr"), "5e-05, which is optimizer.params.lr");
}

TEST(Auto, OfTheMaximumFollowsTheLearningRateThatIsGiven) {
  const Config config = parsed(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}},
      "optimizer": {"type": "AdamW", "params": {"lr": 0.002}}})");
  EXPECT_EQ(config.scheduler.warmup_max_lr, 0.002);
}

TEST(Auto, OfBatchSizesIsWhatTheOthersGive) {
  const auto batch = [](const std::string& train, const std::string& micro, const std::string& steps) {
    const BatchConfig sizes = parsed("{\"train_batch_size\": " + train + ", \"train_micro_batch_size_per_gpu\": " + micro +
                                     ", \"gradient_accumulation_steps\": " + steps + "}")
                                  .batch;
    return std::vector<int64_t>{sizes.train_batch_size, sizes.micro_batch_size, sizes.gradient_accumulation_steps};
  };
  const std::string automatic = "\"auto\"";
  EXPECT_EQ(batch(automatic, automatic, automatic), (std::vector<int64_t>{0, 8, 0}));
  EXPECT_EQ(batch(automatic, "2", automatic), (std::vector<int64_t>{0, 2, 0}));
  EXPECT_EQ(batch("64", automatic, "4"), (std::vector<int64_t>{64, 0, 4}));
  EXPECT_EQ(batch("64", automatic, automatic), (std::vector<int64_t>{64, 0, 0}));
  EXPECT_EQ(batch(automatic, automatic, "4"), (std::vector<int64_t>{0, 8, 4}));
}

TEST(Auto, OfTheWholeBatchAloneTakesTheTrainersMicrobatch) {
  EXPECT_EQ(parsed(R"({"train_batch_size": "auto"})").batch.micro_batch_size, 8);
}

TEST(Auto, IsReadBackAsTheValueThatWasTaken) {
  const Config config = parsed(R"({"train_batch_size": "auto", "optimizer": {"type": "Adam", "params": {"lr": "auto"}},
      "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}, "model": {"hidden_size": 96}})");
  EXPECT_TRUE(diff(config, parsed(explain_as_json(config))).empty());
}

TEST(Auto, ForASectionIsAsWithoutIt) {
  const Config config = parsed(R"({"optimizer": "auto", "scheduler": "auto"})");
  EXPECT_EQ(config.scheduler.type, SchedulerType::Constant);
  EXPECT_EQ(taken(config, "scheduler"), "the defaults, as without the section");
}

TEST(OtherNames, OfZerosKeysNeedNoStage3) {
  const Config config = parsed(R"({"zero_optimization": {"stage": 3, "max_live_parameters": 5, "max_reuse_distance": 6,
      "prefetch_bucket_size": 7, "param_persistence_threshold": 8, "model_persistence_threshold": 9,
      "gather_16bit_weights_on_model_save": true}, "allgather_size": 10})");
  EXPECT_EQ(config.zero.stage3_max_live_parameters, 5);
  EXPECT_EQ(config.zero.stage3_max_reuse_distance, 6);
  EXPECT_EQ(config.zero.stage3_prefetch_bucket_size, 7);
  EXPECT_EQ(config.zero.stage3_param_persistence_threshold, 8);
  EXPECT_EQ(config.zero.stage3_model_persistence_threshold, 9);
  EXPECT_EQ(config.zero.allgather_bucket_size, 10);
}

TEST(OtherNames, CpuOffloadIsADevice) {
  const Config config = parsed(R"({"zero_optimization": {"stage": 3, "cpu_offload": true, "cpu_offload_param": true,
                                                         "cpu_offload_use_pin_memory": true}})");
  EXPECT_EQ(config.zero.offload_optimizer.device, OffloadDevice::Cpu);
  EXPECT_EQ(config.zero.offload_param.device, OffloadDevice::Cpu);
  EXPECT_EQ(parsed(R"({"zero_optimization": {"stage": 3, "cpu_offload_params": true}})").zero.offload_param.device,
            OffloadDevice::Cpu);
  EXPECT_EQ(parsed(R"({"zero_optimization": {"cpu_offload": false}})").zero.offload_optimizer.device, OffloadDevice::None);
}

TEST(Ranges, ZeroIsTheDefaultOfBucketsAndSubGroups) {
  const ZeroConfig zero =
      parsed(R"({"zero_optimization": {"sub_group_size": 0, "reduce_bucket_size": 0, "allgather_bucket_size": 0}})").zero;
  EXPECT_EQ(zero.sub_group_size, 1'000'000'000);
  EXPECT_EQ(zero.reduce_bucket_size, 500'000'000);
  EXPECT_EQ(zero.allgather_bucket_size, 500'000'000);
}

TEST(Ranges, ALossScaleAndAWarmUpMayBeZero) {
  EXPECT_EQ(parsed(R"({"fp16": {"enabled": true, "min_loss_scale": 0}})").fp16.min_loss_scale, 0);
  EXPECT_EQ(parsed(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}}})").scheduler.warmup_num_steps, 0);
}

TEST(NotUsed, KeysThatChangeNoWeightCostOneLineEach) {
  EXPECT_EQ(
      accepted_without_effect(parsed(R"({"graph_harvesting": true, "memory_breakdown": false, "dump_state": true,
      "flops_profiler": {"enabled": false, "module_depth": -1}, "comms_logger": {"enabled": true, "prof_ops": ["send"]}, "wandb": {"enabled": true, "entity": "me"},
      "checkpoint": {"use_node_local_storage": true}, "fp16": {"auto_cast": true}, "prescale_gradients": true,
      "activation_checkpointing": {"mode": "full", "cpu_checkpointing": true}, "compile": {"deepcompile": true}})")),
      (Lines{"graph_harvesting: not used here; use cuda_graph", "dump_state: not used here; use `trivet plan`",
             "comms_logger.prof_ops: takes effect only when comms_logger.prof_all is false",
             "checkpoint.use_node_local_storage: not used here; use checkpoint.replicas",
             "fp16.auto_cast: tokens are integers, and images are read in the model's type",
             "prescale_gradients: the result is the same mean; only its rounding differs",
             "activation_checkpointing.cpu_checkpointing: takes effect only when the device has its own memory",
             "flops_profiler: is not switched on", "wandb: Weights & Biases is not used here; use csv_monitor or tensorboard",
             "compile: DeepCompile is not used here"}));
  const Lines trainers = accepted_without_effect(parsed(R"({"gradient_checkpointing": true})"));
  ASSERT_EQ(trainers.size(), 1);
  EXPECT_THAT(trainers[0], testing::EndsWith("; the section is called activation_checkpointing here"));
}

TEST(NotUsed, ParametersAreOffloadedAtStage3Only) {
  const Config config = parsed(R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})");
  EXPECT_EQ(config.zero.offload_param.device, OffloadDevice::None);
  EXPECT_EQ(accepted_without_effect(config),
            Lines{"zero_optimization.offload_param: takes effect only when zero_optimization.stage is 3"});
  EXPECT_EQ(parsed(R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}})").zero.offload_param.device,
            OffloadDevice::Cpu);
}

// What builds a model reads the config's description, and must not find there what "takes effect only when ...".
TEST(NotUsed, NumbersOfOtherModelsAreAsIfLeftOut) {
  int tried = 0;
  for (const std::string type : {"gpt", "llama"}) {
    const std::string text = R"({"train_batch_size": 1, "model": {"type": ")" + type + R"("}})";
    const Config without = parse_config(text, "t");
    for (const config::KeyEntry& entry : config::key_table().entries()) {
      const bool is_number = entry.type == config::KeyType::Number || entry.type == config::KeyType::Integer;
      if (!entry.path.starts_with("model.") || !entry.active || entry.active(without) || entry.path == "model.lora.dropout" ||
          (!is_number && entry.type != config::KeyType::Bool))
        continue;
      std::string value = entry.default_json == "true" ? "false" : "true";
      for (const char* number : {"0.5", "2", "1"})
        if (is_number && std::stod(number) != std::stod(entry.default_json) && entry.bounds.contains(std::stod(number)))
          value = number;
      const Config given = parse_config(text, "t", {entry.path + "=" + value});
      EXPECT_EQ(entry.get(given), entry.get(without)) << type << " " << entry.path;
      EXPECT_EQ(accepted_without_effect(given).size(), 1) << type << " " << entry.path;
      ++tried;
    }
  }
  EXPECT_GT(tried, 20);
}

// As DeepSpeed prints the config of a run. The second and third are no numbers of 63 bits, of which double cannot tell.
TEST(Integers, MayHaveAnExponent) {
  const auto live = [](const std::string& number) {
    return parsed(R"({"zero_optimization": {"stage": 3, "stage3_max_live_parameters": )" + number + "}}")
        .zero.stage3_max_live_parameters;
  };
  EXPECT_EQ(live("9.223372e+18"), 9223372000000000000);
  EXPECT_EQ(live("1.50E16"), 15000000000000000);
  for (const char* number : {"9.3e18", "1e19", "9007199254740993.5"}) EXPECT_THROW(live(number), ConfigError) << number;
  EXPECT_EQ(live("9007199254740993.0"), 9007199254740993);
}

TEST(NotUsed, InitialWeightsNeedNoDeviation) {
  Config config = parsed(R"({"model": {"initializer_range": 0.5}})");
  EXPECT_EQ(accepted_without_effect(config), Lines{});
  config.model_from = "model";
  EXPECT_EQ(
      accepted_without_effect(config),
      (Lines{"model.initializer_range: takes effect only when model.type is \"gpt\" or \"llama\", and the weights are not "
             "those of model.from or --init-from"}));
}

TEST(NotUsed, PairsOfAnswersAreNotPacked) {
  EXPECT_EQ(
      accepted_without_effect(parsed(R"({"training": {"objective": "dpo"}, "data": {"packing": "stream"}})")),
      (Lines{"data.packing: takes effect only when the model reads text; with training.objective \"dpo\", only when it is "
             "\"isolated\""}));
}

// They have neither adapters nor rows of an embedding, so that nothing more is to be said.
TEST(NotUsed, ModelsOfImagesHaveNoKeysOfText) {
  const Config config = parse_config_for_run(R"({"train_batch_size": 1, "training": {"steps": 1}, "data": {"train": "images"},
    "model": {"type": "sequential", "input": [1, 8, 8], "network": ["flatten", "dense 2"], "lora": {"rank": 4},
              "vocabulary_rows": 3}})",
                                             "images.json");
  EXPECT_EQ(accepted_without_effect(config),
            (Lines{"model.lora.rank: takes effect only when model.type is \"gpt\" or \"llama\"",
                   "model.vocabulary_rows: takes effect only when model.type is \"gpt\" or \"llama\""}));
  EXPECT_EQ(note_on_adapters(config), "");
}

TEST(NotUsed, Bfloat16NeedsNoLossScale) {
  EXPECT_EQ(accepted_without_effect(parsed(R"({"bf16": {"enabled": true, "loss_scale": 0, "min_loss_scale": 1}})")),
            (Lines{"bf16.loss_scale: bfloat16 needs no loss scale", "bf16.min_loss_scale: bfloat16 needs no loss scale"}));
}

TEST(NotUsed, CommentsAndSectionsOfOtherProgramsAreListed) {
  EXPECT_EQ(
      accepted_without_effect(parsed(R"({"_comment": "mine", "comment": 1, "zero_optimization": {"//": ["a"]},
                                               "peft_settings": {"rank": 8}, "ignore_unused_parameters": true})")),
      (Lines{"_comment: not used here: a comment", "comment: not used here: a comment",
             "zero_optimization.//: not used here: a comment", "peft_settings: not used here: a section of another program",
             "ignore_unused_parameters: not used here: it belongs in \"zero_optimization\", where it has no effect, either"}));
}

TEST(NotUsed, KeysThatDeepSpeedIgnoresAreListed) {
  EXPECT_EQ(
      accepted_without_effect(
          parsed(R"({"find_unused_parameters": false, "experiment": "mine", "trainium": {"use_trainium": true},
                                               "zero_force_dp_cpu_optimizer": false,
                                               "optimizer": {"type": "Adam", "adam_w_mode": true}})")),
      (Lines{"find_unused_parameters: not used here: a key of another program, which DeepSpeed ignores, too",
             "experiment: not used here: a key of another program, which DeepSpeed ignores, too",
             "trainium: not used here: a section of another program",
             std::string(
                 "zero_force_dp_cpu_optimizer: not used here: if it is a misspelt \"zero_force_ds_cpu_optimizer\", that ") +
                 "has no effect, either",
             "optimizer.adam_w_mode: not used here: it belongs in \"optimizer.params\", where this is the default"}));
}

TEST(NotUsed, OtherSpellingsOfDeepSpeedAreAccepted) {
  EXPECT_NO_THROW(parsed(R"({"checkpoint": {"tag_validation": "ignore"}, "bf16": {"enabled": true, "auto_cast": true},
                             "zero_optimization": {"stage": 3, "gather_fp16_weights_on_model_save": true}})"));
}

TEST(NotUsed, AFeatureThatIsSwitchedOffMayHoldAnything) {
  EXPECT_EQ(accepted_without_effect(parsed(R"({"curriculum_learning": {"enabled": false, "later": {"a": 1}},
                                               "progressive_layer_drop": {"enabled": false, "theta": 0.5, "gamma": 0.01},
                                               "amp": {"enabled": false}, "zero_optimization": {"zenflow": null}})")),
            (Lines{"curriculum_learning: is not switched on", "progressive_layer_drop: is not switched on"}));
}

TEST(NotUsed, WhatDeepSpeedDoesNotReadCostsALine) {
  for (const auto& [config, line] : std::vector<std::pair<std::string, std::string>>{
           {R"({"pipeline": {"partition_method": "uniform"}})", "pipeline.partition_method: not used here: DeepSpeed does not"},
           {R"({"pipeline": {"pipeline_parallel_size": 4}})", "parallel.pipeline sets the number of stages here"},
           {R"({"activation_checkpointing": {"enabled": true}})",
            "activation_checkpointing.mode switches recomputation on here"},
           {R"({"aio": {"async_io": true}})", "aio.async_io: not used here: DeepSpeed does not read it, either"},
           {R"({"flops_profiler": {"enabled": true, "end_profile_step": 5}})",
            "flops_profiler.end_profile_step: not used here"},
           {R"({"optimizer": {"type": "Adam", "backend": "apex"}})",
            "optimizer.backend: not used here: DeepSpeed does not read it"},
           {R"({"tensor_parallel": {"enabled": false}})", "tensor_parallel.enabled: autotp_size, or parallel.tensor, decides"},
           {R"({"zero_optimization": {"verbose": true}})", "zero_optimization.verbose: `trivet plan` prints what ZeRO does"},
           {R"({"msamp": {"enabled": false, "opt_level": "O2"}})",
            "msamp: not used here: a section of another program, and switched off"},
           {R"({"fp8": {"enabled": false}})", "fp8: not used here: a section of another program, and switched off"},
           {R"({"fp8": false})", "fp8: not used here: a key of another program"},
           {R"({"sequence_parallel": {"enabled": false, "size": 2}})",
            "sequence_parallel: not used here: a section of another"},
           {R"({"num_processes": 8})", "num_processes: not used here: a key of another program, which DeepSpeed ignores, too"},
           {R"({"num_gpus": 8})", "num_gpus: not used here: a key of another program, which DeepSpeed ignores, too"},
           {R"({"optimizer": {"type": "Adam", "params": {"lr": 0.5}},
                "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.001}}})",
            "optimizer.params.lr: takes effect only when the scheduler has no rates of its own in its place"},
           {R"({"num_epochs": 3})", "which DeepSpeed ignores, too; training.epochs is the key here"},
           {R"({"load_best_model_at_end": true})", "which DeepSpeed ignores, too; checkpoint.keep_best is the key here"},
           {R"({"n_epoches": 3})", "which DeepSpeed ignores, too; training.epochs is the key here"},
           {R"({"max_seq_len": 512})", "which DeepSpeed ignores, too; model.sequence_length is the key here"},
           {R"({"micro_batch_size_per_gpu": "auto"})", "ignores, too; train_micro_batch_size_per_gpu is the key here"},
           {R"({"zero_optimisation": {"enabled": false}})", "and switched off; did you mean \"zero_optimization\"?"},
           {R"({"lora": {}})", "and switched off; the section is called model.lora here"},
           {R"({"my_optimizer": {"name": "mine"}})", "a section of another program; did you mean \"optimizer\"?"},
           {R"({"optimizer_config": {"type": "AdamW"}})", "a section of another program; did you mean \"optimizer\"?"},
           {R"({"fp16_enabled": false})", "which DeepSpeed ignores, too; fp16.enabled is the key here"},
           {R"({"checkpoint_directory": "x"})", "which DeepSpeed ignores, too; checkpoint.directory is the key here"},
           {R"({"data_types": {"param_dtype": "fp32"}})", "data_types.param_dtype: fp16.enabled and bf16.enabled determine"},
           {R"({"bf16": {"enabled": true}, "data_types": {"param_dtype": "bfloat16"}})",
            "data_types.param_dtype: fp16.enabled"},
           {R"({"foo": {}})", "foo: not used here: a section of another program"},
           {R"({"foo": {"a": 1}})", "foo: not used here: a section of another program"},
           {R"({"foo": {"fp16": {"enabled": false}}})", "foo: not used here: a section of another program"},
           {R"({"tp_size": 1})", "which DeepSpeed ignores, too; parallel.tensor is the key here"},
           {R"({"report_to": "wandb"})", "; tensorboard.enabled is the key here (true or false; csv_monitor.enabled"},
           {R"({"resume_from_checkpoint": true})",
            "; no key resumes a run, but the flag --resume [DIRECTORY] of `trivet train`"},
           {R"({"recompute_granularity": "full"})", "; activation_checkpointing.mode is the key here (\"full\", "},
           {R"({"torch_dtype": "bfloat16"})", "; bf16.enabled or fp16.enabled says it, at the top level"},
           {R"({"peft_config": "lora.json"})", "; the section is called model.lora here"},
           {R"({"base_model_name_or_path": "gpt2"})", "; model.from is the key here"},
           {R"({"logging_dir": "logs"})", "; tensorboard.output_path is the key here"},
           {R"({"run_name": "first"})", "; tensorboard.job_name is the key here"},
           {R"({"eval_strategy": "steps"})", "; training.evaluate_every is the key here (a number of steps; "},
           {R"({"save_strategy": "epoch"})", "; checkpoint.every_steps is the key here (a number of steps; "},
           {R"({"metric_for_best_model": "loss"})", "; checkpoint.keep_best is the key here (true or false; "},
           {R"({"use_cpu": true})", "; device is the key here (\"cpu\" or \"cuda\")"},
           {R"({"data_seed": 3})", "; training.seed is the key here"},
           {R"({"train_file": "a.txt"})", "; data.train is the key here"},
           {R"({"validation_file": "a.txt"})", "; data.validation is the key here"},
           {R"({"recompute_num_layers": 2})", "; activation_checkpointing.every is the key here"},
           {R"({"num_layers_per_virtual_pipeline_stage": 2})", "; pipeline.chunks is the key here (stages per rank)"},
           {R"({"untie_embeddings_and_output_weights": true})", "; model.tied_embedding is the key here (the opposite"},
           {R"({"qk_layernorm": true})", "; model.qk_norm is the key here"},
           {R"({"tokenizer_model": "t.json"})", "; model.vocabulary is the key here"},
           {R"({"dump_folder": "out"})", "; run.directory is the key here"},
           {R"({"log_freq": 10})", "; steps_per_print is the key here"},
           {R"({"profile_freq": 100})", "; timeline.step is the key here"},
           {R"({"async_mode": "async"})", "; checkpoint.asynchronous is the key here"},
           {R"({"hf_assets_path": "gpt2"})", "; model.from is the key here"},
           {R"({"comms_config": {"verbose": false}})", "comms_config: not used here: a section of another program"}}) {
    const Lines lines = accepted_without_effect(parsed(config));
    EXPECT_THAT(lines, testing::Contains(testing::HasSubstr(line))) << config;
  }
}

TEST(Comments, OfAllKindsThatDeepSpeedReadsAreAccepted) {
  EXPECT_EQ(
      parsed("# as in YAML\n{\"training\": {\"steps\": 5 # five\n}, /* of\nall ranks */ \"train_batch_size\": 8, // samples\n}")
          .training.steps,
      5);
}

TEST(Types, OfSumsHaveTheNamesOfDeepSpeed) {
  for (const char* name : {"bf16", "bfloat16"})
    EXPECT_EQ(parsed(std::string(R"({"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": ")") + name + "\"}}")
                  .gradient_dtype(),
              DType::BFloat16);
  // Reductions have the type of the sums, so the wider one is the type of both where no other is given.
  const Config widened = parsed(R"({"fp16": {"enabled": true}, "communication_data_type": "fp32"})");
  EXPECT_EQ(widened.gradient_dtype(), DType::Float32);
}

// What is told of a config, by the start of each line.
TEST(Differences, AreToldWheneverTheyApply) {
  const std::string optimizer = "optimizer: there is no section, so AdamW with lr 0.001 and weight_decay 0 trains",
                    decay = "optimizer.params.weight_decay: biases and norms do not decay by 0.1",
                    clipping = "gradient_clipping: it is not given, so gradients are clipped to a norm of 1",
                    sums = "data_types.grad_accum_dtype: fp32 is the type in which gradients of a model in bf16 are summed",
                    sends = "communication_data_type: fp32, in which gradients are summed";
  const std::string adam = R"("optimizer": {"type": "Adam", "params": {"lr": 1}}, )", clips = R"("gradient_clipping": 1, )";
  for (
      const auto& [config, expected] : std::vector<std::pair<std::string, Lines>>{
          {R"("training": {"steps": 5})", {}},
          {R"("train_batch_size": 8)", {optimizer, clipping}},
          {adam + R"("train_batch_size": 8)", {clipping}},
          {adam + clips + R"("train_batch_size": 8)", {}},
          {clips + R"("optimizer": "auto")", {optimizer}},
          {clips + R"("optimizer": {"params": {"lr": 0.01}})", {"optimizer: there is no type, so AdamW with lr 0.01 and"}},
          {clips + R"("optimizer": {"type": "AdamW", "params": {"weight_decay": 0.1}})", {decay}},
          {clips + R"("optimizer": {"type": "AdamW", "decay_all": true, "params": {"weight_decay": 0.1}})", {}},
          {clips + R"("optimizer": {"type": "AdamW", "decay_all": false, "params": {"weight_decay": 0.1}})", {}},
          {clips + R"("optimizer": {"type": "AdamW", "params": {"torch_adam": true}})",
           {"optimizer.params.torch_adam: without"}},
          {clips + R"("optimizer": {"type": "AdamW", "params": {"torch_adam": true, "weight_decay": 0}})", {}},
          {adam + clips + R"("bf16": {"enabled": true})", {sums}},
          {adam + clips + R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": null})", {sums}},
          {adam + clips + R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "bf16"})", {}},
          {adam + clips + R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"})", {sends}},
          {adam + clips + R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"},
                              "communication_data_type": "fp32")",
           {}},
          {adam + clips + R"("bf16": {"enabled": true}, "communication_data_type": "bf16")", {sums, sends}},
          {adam + clips + R"("bf16": {"enabled": true}, "communication_data_type": "bfp16")", {sums, sends}},
          {adam + clips + R"("communication_data_type": "fp16")", {sends}},
          {adam + clips + R"("fp16": {"enabled": true})", {}},
          {adam + clips + R"("fp16": {"enabled": true}, "communication_data_type": "fp32")",
           {"data_types.grad_accum_dtype: fp32"}},
          {adam + clips + R"("fp16": {"enabled": "auto"})", {"fp16.enabled: float32 trains, because \"auto\" is false"}},
          {adam + clips + R"("fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"})",
           {"fp16.enabled, bf16.enabled: float32 trains"}},
          {adam + clips + R"("fp16": {"enabled": "auto"}, "bf16": {"enabled": true})", {sums}},
          {adam + clips + R"("managed_gradient_accumulation": false, "gradient_accumulation_steps": 4)",
           {"managed_gradient_accumulation: 4 microbatches are a step"}},
          {adam + clips + R"("zero_optimization": {"stage": 2, "zero_quantized_gradients": true})",
           {"zero_optimization.zero_quantized_gradients: 4-bit sums at stage 2, too"}},
          {adam + clips + R"("scheduler": {"params": {"warmup_num_steps": 5}})",
           {"scheduler: there is no type, so the learning rate rises for 5 steps and then stays; DeepSpeed has no schedule"}},
          {adam + clips + R"("scheduler": {"type": "Constant", "params": {"warmup_num_steps": 5}})", {}},
          {adam + clips + R"("scheduler": {"params": {"warmup_num_steps": 0}})", {}},
          {clips + R"("optimizer": {"type": "Muon", "params": {"lr": 0.02, "betas": [0.9, 0.95], "eps": 1e-10}})", {}},
          {clips + R"("optimizer": {"type": "Muon", "params": {}})",
           {"optimizer.params: not given, so muon_lr is 0.001 (DeepSpeed: 0.02)"}},
          {clips + R"("optimizer": {"type": "Muon", "params": {"lr": 0.02, "muon_lr": 0, "betas": [0.9, 0.95], "eps": 1e-10}})",
           {"optimizer.params.muon_lr: 0 stands for optimizer.params.lr, 0.02; in DeepSpeed matrices then stay as they are"}},
          {clips +
               R"("optimizer": {"type": "Muon", "params": {"lr": 0.02, "adam_lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-10}},
                      "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 1}})",
           {"scheduler.type: the rates of OneCycle are multiplied by muon_lr / lr and adam_lr / lr"}},
          {clips +
               R"("optimizer": {"type": "Muon", "params": {"lr": 0.02, "adam_lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-10}},
                      "scheduler": {"type": "WarmupLR"})",
           {}},
          {adam + clips + R"("scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0}})",
           {"scheduler.params.warmup_max_lr: 0 stands for optimizer.params.lr, 1; in DeepSpeed it is a learning rate of 0"}},
          {adam + clips + R"("scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": null}})", {}},
          {adam + clips +
               R"("training": {"steps": 5}, "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 0.0}})",
           {"scheduler.params.total_num_steps: 0 stands for the steps of the run, 5; in DeepSpeed the schedule then ends "
            "with"}},
          {adam + clips +
               R"("training": {"steps": 5}, "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto"}})",
           {}},
          {adam + clips + R"("training": {"steps": 5}, "scheduler": {"type": "Cosine", "params": {"total_num_steps": 0}})", {}},
          {adam + clips + R"("scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}})",
           {"scheduler.params.warmup_num_steps: 0 stands for 2 steps; in DeepSpeed 0.19.8 it is refused"}},
          {adam + clips + R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 1,
                              "cycle_second_step_size": 0}})",
           {"scheduler.params.cycle_second_step_size: 0 stands for cycle_first_step_size, 2000; in DeepSpeed the cycle then"}},
          {adam + clips + R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 1,
                              "cycle_first_stair_count": 4, "cycle_second_stair_count": -1}})",
           {"scheduler.params.cycle_second_stair_count: -1 stands for cycle_first_stair_count, 4"}},
          {adam + clips + R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 1,
                              "cycle_second_stair_count": null, "cycle_second_step_size": null}})",
           {}},
          {adam + clips + R"("wall_clock_breakdown": true)", {"reports: in DeepSpeed, wall_clock_breakdown prints the means"}},
          {R"("bf16": {"enabled": true}, "wall_clock_breakdown": true, "optimizer": {"type": "AdamW", "params": {"weight_decay": 0.1}})",
           {decay, clipping, sums, "reports: in DeepSpeed"}}}) {
    const Lines lines = differences_from_deepspeed(parsed("{" + config + "}"));
    ASSERT_EQ(lines.size(), expected.size()) << config << ": " << testing::PrintToString(lines);
    for (size_t i = 0; i < lines.size(); ++i) EXPECT_TRUE(lines[i].starts_with(expected[i])) << config << ": " << lines[i];
  }
}

TEST(Warnings, OfSchedulesThatAreProbablyNotMeant) {
  const auto warnings = [](const std::string& type, int total, int warm_up, int steps) {
    return warnings_of(parsed(
        fmt::format(R"({{"training": {{"steps": {}}}, "scheduler": {{"type": "{}", "params": {{{}"warmup_num_steps": {}}}}}}})",
                    steps, type, total > 0 ? fmt::format("\"total_num_steps\": {}, ", total) : "", warm_up)));
  };
  EXPECT_EQ(warnings("WarmupDecayLR", 100, 10, 100), Lines{});
  EXPECT_EQ(
      warnings("WarmupDecayLR", 100, 200, 300),
      Lines{"scheduler.params.total_num_steps: 100 is less than warmup_num_steps, 200, so the learning rate rises until step "
            "200 and then drops to the end of its schedule"});
  EXPECT_EQ(warnings("WarmupCosineLR", 100, 101, 300).size(), 1u);
  EXPECT_EQ(warnings("WarmupLR", 0, 200, 100), Lines{"scheduler.params.warmup_num_steps: 200 is more than the 100 steps of the "
                                                     "run, so the learning rate never reaches its "
                                                     "maximum"});
  EXPECT_EQ(warnings("WarmupDecayLR", 11, 2, 10),
            Lines{"scheduler.params.total_num_steps: the schedule of 11 steps is longer than the run of 10 steps, "
                  "so the learning rate does not reach its end"});
}

TEST(Auto, LinesBeginWithWhatDecidesMost) {
  const Lines lines = auto_lines(
      parsed(R"({"zero_optimization": {"overlap_comm": "auto"}, "optimizer": {"type": "Adam", "params": {"lr": "auto"}},
      "train_batch_size": "auto", "bf16": {"enabled": "auto"}})"));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_TRUE(lines[0].starts_with("bf16.enabled: ")) << lines[0];
  EXPECT_TRUE(lines[3].starts_with("zero_optimization.overlap_comm: ")) << lines[3];
}

TEST(Auto, ManyValuesAreOneLineAtTheStartOfARun) {
  const std::string optimizer = R"({"optimizer": {"type": "Adam", "params": {"lr": "auto", "eps": "auto"}}, )";
  const Config few = parsed(optimizer + R"("bf16": {"enabled": "auto"}})"),
               many = parsed(optimizer + R"("train_batch_size": "auto", "bf16": {"enabled": "auto"}})");
  EXPECT_EQ(auto_lines_in_short(few), auto_lines(few));
  EXPECT_EQ(auto_lines_in_short(many),
            Lines{"4 values of \"auto\" (`trivet config check` says why): bf16.enabled false, train_batch_size, "
                  "optimizer.params.lr 5e-05, optimizer.params.eps 1e-08"});
}

TEST(Auto, OfTheMaximumIsTheTrainersRateWithoutALearningRate) {
  const Config config =
      parsed(R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 10, "warmup_max_lr": "auto"}}})");
  EXPECT_EQ(config.scheduler.warmup_max_lr, 5e-5);
  EXPECT_EQ(taken(config, "scheduler.params.warmup_max_lr"),
            "0.00005, the default of Hugging Face's Trainer, which takes --learning_rate");
}

TEST(Auto, AndNullOfTheMaximumAreNotTheSame) {
  const Config config = parsed(
      R"({"optimizer": {"type": "Adam", "params": {"lr": 0.5}}, "training": {"steps": 5},
          "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": null}}})");
  EXPECT_EQ(config.scheduler.warmup_max_lr, 0);  // the optimizer's rate, as in DeepSpeed, and not the default of 0.001
}

TEST(ModelIsGiven, IsAskedOfEveryConfig) {
  EXPECT_NO_THROW(check_model_is_given(parsed(R"({"train_batch_size": "auto", "model": {"type": "gpt"}})")));
  for (const char* config : {R"({"train_batch_size": "auto"})", R"({"train_batch_size": 8})"}) try {
      check_model_is_given(parsed(config));
      FAIL() << config;
    } catch (const ConfigError& error) {
      EXPECT_TRUE(
          std::string(error.what()).starts_with("a: model: there is no such section: in DeepSpeed the program brings "));
    }
}

}  // namespace
}  // namespace trivet
