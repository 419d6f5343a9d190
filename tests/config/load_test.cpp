#include "engine/config/load.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>

#include "core/error.h"
#include "engine/config/json_reader.h"
#include "engine/config/key_table.h"
#include "tests/config/support.h"

namespace trivet {
namespace {

TEST(ParseConfig, BatchSizeAndOptimizerAreEnough) {
  const Config config =
      parse_config(R"({"train_batch_size": 8, "optimizer": {"type": "adamw", "params": {"lr": 1e-4}}})", "a.json");
  EXPECT_EQ(config.batch.train_batch_size, 8);
  EXPECT_EQ(config.optimizer.type, OptimizerType::AdamW);
  EXPECT_DOUBLE_EQ(config.optimizer.lr, 1e-4);
  EXPECT_DOUBLE_EQ(config.gradient_clipping, 1.0);
  EXPECT_EQ(config.zero.stage, 0);
  EXPECT_FALSE(is_given(config, "model"));
}

// This config has most of the sections.
TEST(ParseConfig, AWholeConfigIsRead) {
  const Config config = parse_config(R"({
  // comments are allowed
  "model": {"type": "llama", "layers": 4, "hidden_size": 256, "heads": 8, "key_value_heads": 2, "sequence_length": 256,
            "vocabulary": "characters"},
  "data": {"train": "input.txt", "validation_fraction": 0.1},
  "training": {"steps": 1000, "seed": 1234, "evaluate_every": 100},
  "parallel": {"tensor": 1, "pipeline": 1},
  "pipeline": {"schedule": "gpipe"},
  "train_batch_size": 32, "train_micro_batch_size_per_gpu": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "betas": [0.9, 0.95], "weight_decay": 0.1}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 1000, "warmup_num_steps": 50}},
  "bf16": {"enabled": true}, "gradient_clipping": 1.0,
  "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8},
  "checkpoint": {"directory": "checkpoints", "every_steps": 200, "keep": 3, "replicas": 1}
})",
                                     "a.json");
  EXPECT_EQ(config.model.type, model::Type::Llama);
  EXPECT_FALSE(config.model.tied_embedding);
  EXPECT_EQ(config.vocabulary.kind, VocabularyKind::Characters);
  EXPECT_EQ(config.pipeline.schedule, ScheduleKind::GPipe);
  EXPECT_DOUBLE_EQ(config.optimizer.beta2, 0.95);
  EXPECT_EQ(config.scheduler.type, SchedulerType::WarmupCosineLR);
  EXPECT_EQ(config.scheduler.warmup_num_steps, 50);
  EXPECT_EQ(config.model_dtype(), DType::BFloat16);
  EXPECT_EQ(config.zero.reduce_bucket_size, 500'000'000);
  EXPECT_EQ(config.checkpoint.keep, 3);
  EXPECT_EQ(config.checkpoint.replicas, 1);
}

TEST(ParseConfig, TheNetworkBetweenHostsIsRead) {
  const Config config = parse_config(
      R"({"communication": {"transport": "ucx", "interface": "10.1.0.0/16", "join_seconds": 120,
                                         "silence_seconds": 20.5, "progress_seconds": 60}})",
      "a.json");
  EXPECT_EQ(config.communication.transport, TransportChoice::Ucx);
  EXPECT_EQ(parse_config(R"({"communication": {"transport": "gloo"}})", "a.json").communication.transport,
            TransportChoice::Gloo);
  EXPECT_EQ(config.communication.interface, "10.1.0.0/16");
  EXPECT_EQ(config.communication.join_seconds, 120);
  EXPECT_EQ(config.communication.silence_seconds, 20.5);
  EXPECT_EQ(config.communication.progress_seconds, 60);
  EXPECT_EQ(config.communication.sums, SumsChoice::Chain);
}

TEST(ParseConfig, HowFloatsAreAddedOverHostsHasNoEffectInLayoutMode) {
  const Config run = parse_config(R"({"communication": {"sums": "exchange"}})", "a.json");
  EXPECT_EQ(run.communication.sums, SumsChoice::Exchange);
  EXPECT_EQ(accepted_without_effect(run), std::vector<std::string>{});
  const Config layout = parse_config(R"({"communication": {"sums": "exchange"}, "reproducible": "layout",
                                         "train_batch_size": 4, "train_micro_batch_size_per_gpu": 1})",
                                     "a.json");
  EXPECT_EQ(accepted_without_effect(layout),
            std::vector<std::string>{"communication.sums: takes effect only when reproducible is \"run\""});
}

TEST(ParseConfig, AnOverrideReplacesAddsAndMayBeAStringWithoutQuotes) {
  const Config config = parse_config(R"({"zero_optimization": {"stage": 1}})", "a.json",
                                     {"zero_optimization.stage=3", "optimizer.type=SGD", "optimizer.params.lr=0.5"});
  EXPECT_EQ(config.zero.stage, 3);
  EXPECT_TRUE(config.zero.overlap_comm);
  EXPECT_EQ(config.optimizer.type, OptimizerType::Sgd);
  EXPECT_DOUBLE_EQ(config.optimizer.lr, 0.5);
}

TEST(ParseConfig, DefaultsFollowTheKindOfModelOptimizerAndScheduler) {
  EXPECT_TRUE(parse_config(R"({"model": {"type": "gpt"}})", "a").model.tied_embedding);
  EXPECT_TRUE(parse_config(R"({"model": {"tied_embedding": true, "type": "llama"}})", "a").model.tied_embedding);
  EXPECT_DOUBLE_EQ(parse_config(R"({"optimizer": {"type": "Adagrad"}})", "a").optimizer.lr, 1e-2);
  const Config muon = parse_config(R"({"optimizer": {"type": "Muon"}})", "a");
  EXPECT_DOUBLE_EQ(muon.optimizer.momentum, 0.95);
  EXPECT_TRUE(muon.optimizer.nesterov);
  EXPECT_EQ(parse_config(R"({"scheduler": {"type": "WarmupLR"}})", "a").scheduler.warmup_num_steps, 1000);
  EXPECT_EQ(parse_config("{}", "a").scheduler.warmup_num_steps, 0);
}

TEST(ParseConfig, ZeroOptimizationTrueIsStageOne) {
  EXPECT_EQ(parse_config(R"({"zero_optimization": true})", "a").zero.stage, 1);
  EXPECT_EQ(parse_config(R"({"zero_optimization": false})", "a").zero.stage, 0);
  EXPECT_EQ(parse_config(R"({"zero_optimization": {}})", "a").zero.stage, 0);
}

TEST(ParseConfig, Bfloat16IsAnotherNameOfBf16) {
  EXPECT_TRUE(parse_config(R"({"bfloat16": {"enabled": true}})", "a").bf16.enabled);
}

TEST(ParseConfig, PipelineStagesAndAutotpSizeAreTheSameAsParallel) {
  Config config;
  const auto set = [&](const char* key, const char* value) {
    config::key_table().find(key)->set(config, config::read_json(value, key));
  };
  set("pipeline.stages", "4");
  set("tensor_parallel.autotp_size", "2");
  EXPECT_EQ(config.parallel.pipeline, 4);
  EXPECT_EQ(config.parallel.tensor, 2);
  EXPECT_EQ(parse_config(R"({"pipeline": {"stages": 1}, "parallel": {"pipeline": 1}})", "a").parallel.pipeline, 1);
  EXPECT_EQ(parse_config(R"({"pipeline": {"stages": "auto"}, "parallel": {"pipeline": 1}})", "a").parallel.pipeline, 1);
}

// Values that DeepSpeed takes from the model ("auto", null, and a size of 1) leave what this config says.
TEST(ParseConfig, ExpertParallelOfDeepSpeedSaysWhatModelExpertsSays) {
  const std::string with_section =
      R"({{"model": {{"type": "llama", "experts": {{"count": 8{}}}}}, "expert_parallel": {{"enabled": true{}}}}})";
  const auto parsed = [&](const std::string& model, const std::string& section) {
    return parse_config(fmt::format(fmt::runtime(with_section), model, section), "a");
  };
  const Config config = parsed("", R"(, "autoep_size": 4, "score_func": "sigmoid", "top_k": 3, "routed_scaling_factor": 2.5,
      "route_norm": false, "num_expert_groups": 4, "num_limited_groups": 2, "preset_model": "mixtral", "score_apply": "post")");
  EXPECT_EQ(config.parallel.expert, 4);
  EXPECT_EQ(config.model.experts.per_token, 3);
  EXPECT_EQ(config.model.experts.rule, (kernels::ExpertRule{kernels::ExpertScore::Sigmoid, false, 2.5, 4, 2}));
  const std::string own = R"(, "per_token": 3, "score": "sigmoid", "scale": 2, "normalize": true, "groups": 2)";
  const Config left = parsed(own, R"(, "autoep_size": 1, "score_func": "auto", "top_k": "auto", "routed_scaling_factor": "auto",
      "route_norm": null, "num_expert_groups": null, "num_limited_groups": null, "load_balance_coeff": null)");
  EXPECT_EQ(left.model.experts.rule, parsed(own, "").model.experts.rule);
  EXPECT_EQ(left.model.experts.per_token, 3);
  EXPECT_EQ(left.parallel.expert, 1);
  EXPECT_EQ(parse_config(R"({"expert_parallel": {"enabled": false, "autoep_size": 3}})", "a").parallel.expert, 1);
}

TEST(ParseConfig, ASwitchedOffFeatureMayKeepItsSettings) {
  const Config config = parse_config(R"({"wandb": {"enabled": false, "project": "mine"}})", "a");
  EXPECT_EQ(accepted_without_effect(config), std::vector<std::string>{"wandb: is not switched on"});
  EXPECT_THAT(accepted_without_effect(parse_config(R"({"compile": {"enabled": true, "backend": "inductor"}})", "a")),
              testing::Not(testing::Contains(testing::HasSubstr("is not switched on"))));
  EXPECT_THAT([] { parse_config("{}", "a", {R"(fp16={"enabled": true, "enabled": false})"}); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("enabled")));
  EXPECT_EQ(accepted_without_effect(parse_config(R"({"wandb": {"enabled": false}})", "a")), std::vector<std::string>{});
}

TEST(ParseConfig, KeysWithoutEffectAreListedWithTheReason) {
  const Config config = parse_config(R"({"zero_optimization": {"stage": 2, "stage3_max_live_parameters": 1e9},
                                         "autotuning": {"enabled": true}, "fp16": {"loss_scale_window": 500}})",
                                     "a");
  EXPECT_EQ(accepted_without_effect(config),
            (std::vector<std::string>{
                "zero_optimization.stage3_max_live_parameters: takes effect only when zero_optimization.stage is 3",
                "autotuning.enabled: takes effect only when `trivet tune` runs",
                "fp16.loss_scale_window: takes effect only when fp16.enabled is true and fp16.loss_scale is 0"}));
}

std::string without_effect(const std::string& text) {
  std::string lines;
  for (const std::string& line : accepted_without_effect(parse_config(text, "a"))) lines += (lines.empty() ? "" : "\n") + line;
  return lines;
}

TEST(ParseConfig, ReadsTheScalingsOfRotaryFrequencies) {
  const auto scaling = [](const std::string& text) {
    return parse_config(R"({"model": {"type": "llama", "heads": 192, "rotary_scaling": )" + text + "}}", "a")
        .model.rotary_scaling;
  };
  EXPECT_EQ(scaling(R"({"type": "yarn", "factor": 4})").high_frequency_factor, 32);
  EXPECT_EQ(scaling(R"({"high_frequency_factor": 8, "type": "yarn"})").high_frequency_factor, 8);
  EXPECT_EQ(scaling(R"({"type": "llama3", "factor": 4})").high_frequency_factor, 4);
  const model::RotaryScaling longrope =
      scaling(R"({"type": "longrope", "original_length": 64, "short_factors": [1, 1.5], "long_factors": [2.5, 1e1]})");
  EXPECT_EQ(longrope.short_factors, (std::vector<double>{1, 1.5}));
  EXPECT_EQ(longrope.long_factors, (std::vector<double>{2.5, 10}));
}

TEST(ParseConfig, AKeyOfOneFamilyHasNoEffectWithAnother) {
  EXPECT_EQ(without_effect(R"({"model": {"type": "llama", "rotary_base": 5000}})"), "");
  EXPECT_EQ(without_effect(R"({"model": {"type": "gpt", "bias": false}})"), "");
  EXPECT_EQ(without_effect(R"({"model": {"type": "llama", "attention_window": 64, "rotary_share": 0.5,
                                        "rotary_scaling": {"type": "linear", "factor": 2}}})"),
            "");
  EXPECT_EQ(without_effect(R"({"model": {"type": "llama", "attention_window": 64, "full_attention_every": 2,
                                        "window_rotary_base": 100, "post_norm": true, "gate_activation": "gelu",
                                        "embedding_scale": 2}})"),
            "");
  EXPECT_EQ(without_effect(R"({"model": {"type": "llama", "qk_norm": true, "qk_norm_over": "projection", "out_bias": true,
                                        "pre_norm": false, "post_norm": true, "residual_scale": 2, "logits_scaling": 2,
                                        "no_rotary_every": 4}})"),
            "");
  EXPECT_EQ(without_effect(R"({"model": {"type": "llama", "query_temperature": 0.1, "query_temperature_length": 64}})"), "");
  EXPECT_EQ(
      without_effect(R"({"data": {"validation_fraction": 0.2}, "training": {"evaluate_every": 5, "evaluate_samples": 4}})"),
      "");
  EXPECT_EQ(without_effect(R"({"data": {"validation": "v.txt", "validation_fraction": 0.2}})"),
            "data.validation_fraction: takes effect only when data.validation is empty");
  EXPECT_EQ(without_effect(R"({"training": {"evaluate_samples": 4}})"),
            "training.evaluate_samples: takes effect only when the run evaluates");
  EXPECT_EQ(without_effect(R"({"model": {"type": "llama", "full_attention_every": 2}})"),
            "model.full_attention_every: takes effect only when model.attention_window is more than 0");
  EXPECT_EQ(without_effect(R"({"model": {"type": "llama", "rotary_scaling": {"factor": 2}}})"),
            "model.rotary_scaling.factor: takes effect only when model.rotary_scaling.type is not \"none\"");
  EXPECT_EQ(
      without_effect(R"({"model": {"type": "llama", "rotary_scaling": {"type": "linear", "original_length": 2}}})"),
      "model.rotary_scaling.original_length: takes effect only when model.rotary_scaling.type is \"llama3\" or \"yarn\" or "
      "\"longrope\"");
  EXPECT_EQ(without_effect(R"({"model": {"type": "llama", "rotary_scaling": {"type": "llama3", "whole_pairs": false}}})"),
            "model.rotary_scaling.whole_pairs: takes effect only when model.rotary_scaling.type is \"yarn\"");
  EXPECT_EQ(
      without_effect(R"({"model": {"type": "llama", "attention_soft_cap": 50, "logits_soft_cap": 30, "query_scale_size": 144,
                                        "rotary_scaling": {"type": "yarn", "factor": 4, "attention_factor": 1.2}}})"),
      "");
  EXPECT_EQ(without_effect(R"({"model": {"type": "gpt", "rotary_base": 5000}})"),
            "model.rotary_base: takes effect only when model.type is \"llama\"");
  EXPECT_EQ(without_effect(R"({"model": {"type": "llama", "qkv_bias": true, "head_size": 32}})"), "");
  EXPECT_EQ(without_effect(R"({"model": {"type": "gpt", "qkv_bias": true, "head_size": 32}})"),
            "model.qkv_bias: takes effect only when model.type is \"llama\"");
  EXPECT_EQ(without_effect(R"({"model": {"type": "llama", "bias": false}})"),
            "model.bias: takes effect only when model.type is \"gpt\"");
  EXPECT_EQ(without_effect(R"({"model": {"type": "gpt", "lora": {"rank": 2, "alpha": 4, "targets": ["c_attn"]}}})"), "");
  EXPECT_EQ(without_effect(R"({"model": {"lora": {"alpha": 4}}})"),
            "model.lora.alpha: takes effect only when model.lora.rank is more than 0");
}

TEST(ParseConfig, TargetsOfAdaptersAreOneTextOrAList) {
  const auto targets = [](const std::string& json) {
    return parse_config(R"({"model": {"type": "llama", "lora": {"rank": 2, "targets": )" + json + "}}}", "a")
        .model.lora.targets;
  };
  EXPECT_EQ(targets("\"q_proj|v_proj\""), std::vector<std::string>{"q_proj|v_proj"});
  EXPECT_EQ(targets(R"(["q_proj", "v_proj"])"), (std::vector<std::string>{"q_proj", "v_proj"}));
}

TEST(ParseConfig, TheTypeOfSummedGradientsIsFloat32OrTheModels) {
  EXPECT_EQ(without_effect(R"({"data_types": {"grad_accum_dtype": "fp32"}})"), "");
  for (const std::string model : {"fp16", "bf16"})
    for (const std::string& sum : {std::string("fp32"), model})
      EXPECT_EQ(without_effect("{\"" + model + R"(": {"enabled": true}, "data_types": {"grad_accum_dtype": ")" + sum + "\"}}"),
                "");
}

TEST(ParseConfig, TheTypeOfSummedGradientsHasNoEffectInLayoutMode) {
  EXPECT_EQ(without_effect(R"({"reproducible": "layout", "train_batch_size": 4, "train_micro_batch_size_per_gpu": 1,
                               "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}})"),
            "data_types.grad_accum_dtype: takes effect only when reproducible is \"run\"");
}

TEST(ParseConfig, AScheduleHasEffectWhereAStepHasSeveralMicrobatches) {
  const std::string none =
      "pipeline.schedule: takes effect only when a step has several microbatches or parallel.pipeline is more than 1";
  const auto with = [](const std::string& batch) {
    return without_effect(R"({"pipeline": {"schedule": "gpipe"}, )" + batch + "}");
  };
  EXPECT_EQ(with(R"("train_batch_size": 8)"), none);
  EXPECT_EQ(with(R"("train_micro_batch_size_per_gpu": 8)"), none);
  EXPECT_EQ(with(R"("train_batch_size": 8, "train_micro_batch_size_per_gpu": 8)"), none);
  EXPECT_EQ(with(R"("train_batch_size": 8, "gradient_accumulation_steps": 1)"), none);
  EXPECT_EQ(with(R"("train_batch_size": 8, "gradient_accumulation_steps": 2)"), "");
  EXPECT_EQ(with(R"("train_batch_size": 8, "train_micro_batch_size_per_gpu": 2)"), "");
}

TEST(ParseConfig, SubGroupsHaveEffectAtEveryStage) {
  for (const char* stage : {"0", "1", "2", "3"})
    EXPECT_EQ(without_effect(std::string(R"({"zero_optimization": {"sub_group_size": 4096, "stage": )") + stage + "}}"), "");
}

TEST(ParseConfig, SkippedStepsAreCountedOnlyWithoutADynamicLossScale) {
  const auto with = [](const std::string& fp16) {
    return without_effect(R"({"training": {"stop_after_skipped": 3}, "fp16": )" + fp16 + "}");
  };
  EXPECT_EQ(with(R"({"enabled": false})"), "");
  EXPECT_EQ(with(R"({"enabled": true, "loss_scale": 1024})"), "");
  EXPECT_EQ(with(R"({"enabled": true})"), "training.stop_after_skipped: takes effect only when the loss scale is not dynamic");
}

TEST(ParseConfig, EvaluationsNeedAValidationSplitOnlyWhereDataIsGiven) {
  EXPECT_NO_THROW(parse_config(R"({"data": {"validation_fraction": 0}, "training": {"evaluate_every": 1}})", "a"));
  EXPECT_NO_THROW(parse_config(R"({"data": {"train": "a.txt", "validation": "b.txt", "validation_fraction": 0},
                                   "training": {"evaluate_every": 1}})",
                               "a"));
  EXPECT_NO_THROW(parse_config(R"({"data": {"train": "a.txt", "validation_fraction": 0}})", "a"));
}

TEST(ParseConfig, WhatOnlyLayoutModeNeedsIsNotAskedOfRunMode) {
  EXPECT_NO_THROW(parse_config(R"({"train_batch_size": 8, "bf16": {"enabled": true, "check_grad_overflow": false}})", "a"));
}

TEST(ParseConfig, MuonMayStandStillWithoutRatesOfItsOwn) {
  EXPECT_NO_THROW(parse_config(R"({"optimizer": {"type": "Muon", "params": {"lr": 0}}})", "a"));
}

TEST(ParseConfig, OffloadToHostMemoryIsAcceptedAndListedAsWithoutEffectOnACpu) {
  const Config config = parse_config(R"({"zero_optimization": {"stage": 3,
      "offload_param": {"device": "cpu", "buffer_size": 5, "pin_memory": true},
      "offload_optimizer": {"device": "cpu", "ratio": 0.5, "pipeline_read": true, "fast_init": true}},
      "aio": {"block_size": 262144, "queue_depth": 32, "thread_count": 2, "single_submit": true, "overlap_events": false}})",
                                     "a");
  const std::string zero = "zero_optimization.", only = "takes effect only when ",
                    elsewhere = "the value is \"nvme\", or the device has its own memory",
                    param = only + zero + "offload_param.device is \"nvme\"",
                    optimizer = only + zero + "offload_optimizer.device is \"nvme\"",
                    either = only + zero + "offload_optimizer.device or .offload_param.device is \"nvme\"";
  EXPECT_EQ(accepted_without_effect(config),
            (std::vector<std::string>{
                zero + "offload_param.device: " + only + elsewhere, zero + "offload_param.buffer_size: " + param,
                zero + "offload_param.pin_memory: memory that a device copies from is always page-locked",
                zero + "offload_optimizer.device: " + only + elsewhere,
                zero + "offload_optimizer.ratio: " + optimizer + ", or the device has its own memory",
                zero + "offload_optimizer.pipeline_read: " + optimizer,
                zero + "offload_optimizer.fast_init: a new file reads as zeros, so initial states are never written",
                "aio.block_size: " + either, "aio.queue_depth: " + either, "aio.thread_count: " + either,
                "aio.single_submit: each request is a system call of its own",
                "aio.overlap_events: requests never wait for each other"}));
  EXPECT_EQ(config.aio.intra_op_parallelism, 2);
}

TEST(ParseConfig, TheRatioOfStatesInHostMemoryHasEffectOnAGpu) {
  const Config config = parse_config(R"({"device": "cuda", "zero_optimization": {"stage": 3,
      "offload_optimizer": {"device": "cpu", "ratio": 0.5}}})",
                                     "a");
  EXPECT_EQ(accepted_without_effect(config), std::vector<std::string>{});
}

// In a file it may be one of another program, and is told; nobody gives those with --set.
TEST(ParseConfig, ASectionOnTheCommandLineIsNoneOfAnotherProgram) {
  EXPECT_NO_THROW(parse_config(R"({"foo": {"bar": 1}})", "c.json"));
  EXPECT_THAT([] { parse_config("{}", "c.json", {"foo.bar=1"}); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("foo: unknown key")));
}

TEST(ParseConfig, AConfigOfZeroInfinityHasEffectAsItStands) {
  EXPECT_EQ(accepted_without_effect(parse_config(R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3,
      "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 4},
      "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 5, "buffer_size": 1e8,
                        "max_in_cpu": 1e9}},
      "aio": {"block_size": 262144, "queue_depth": 32, "thread_count": 1}})",
                                                 "a")),
            std::vector<std::string>{});
}

TEST(CheckConfig, AcceptsAConfigMadeByHand) { EXPECT_NO_THROW(check(Config{})); }

TEST(CheckConfig, RefusesAConfigMadeByHandWithoutAPlaceInAFile) {
  const auto refused = [](auto&& change) -> std::string {
    Config config;
    change(config);
    try {
      check(config);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refused([](Config& c) { c.parallel.tensor = 5; }),
            "config: parallel.tensor: 5 does not divide model.heads 12; use 1, 2, 3, 4, 6 or 12");
  EXPECT_EQ(refused([](Config& c) {
              c.parallel.context = 8;
              c.parallel.context_kind = ContextKind::Ulysses;
            }),
            "config: parallel.context: 8 is not accepted with parallel.context_kind \"ulysses\": 8 does not divide model.heads "
            "12, which context ranks share in "
            "attention; \"gather\" accepts it; use one of 1, 2, 4");
  EXPECT_EQ(refused([](Config& c) { c.zero.offload_optimizer.device = OffloadDevice::Cpu; }),
            "config: zero_optimization.offload_optimizer.device: optimizer state can be offloaded only at ZeRO stages 1 to 3, "
            "but the stage is 0");
  EXPECT_EQ(refused([](Config& c) { c.model.heads = 0; }),
            "config: model.heads: 0 is not accepted; give a number of at least 1");
  EXPECT_EQ(refused([](Config& c) { c.grad_accum_dtype = DType::BFloat16; }),
            "config: data_types.grad_accum_dtype: \"bf16\" is not accepted for a model in \"fp32\"; use \"fp32\"");
}

TEST(LoadConfig, AMissingFileIsNamed) {
  try {
    load_config("/does/not/exist.json");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "/does/not/exist.json: cannot be read: No such file or directory");
  }
}

// The size of a config is limited, and so are the messages about it.
TEST(ParseConfig, OfManyMistakesTheFirstTwentyAreShown) {
  std::string text = "{";
  for (int i = 0; i < 50'000; ++i) text += "\"key_" + std::to_string(i) + "\": 0,\n";
  const std::string message = refusal(text + "}");
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 20);
  EXPECT_TRUE(message.starts_with("bad.json:1:2: key_0: unknown key")) << message;
  EXPECT_NE(message.find("\nbad.json:20:1: key_19: unknown key"), std::string::npos) << message;
  EXPECT_TRUE(message.ends_with("\nand 49980 more mistakes")) << message;
}

TEST(ParseConfig, TheFirstMistakesOfTheFileAreShownWhicheverIsFoundFirst) {
  std::string text = "{\"train_batch_size\": -1,\n";  // values are checked after all keys
  for (int i = 0; i < 25; ++i) text += "\"key_" + std::to_string(i) + "\": 0,\n";
  const std::string message = refusal(text + "}");
  EXPECT_TRUE(
      message.starts_with("bad.json:1:22: train_batch_size: -1 is not accepted; use at least 1\n"
                          "bad.json:2:1: key_0: unknown key"))
      << message;
  EXPECT_NE(message.find("\nbad.json:20:1: key_18: unknown key"), std::string::npos) << message;
  EXPECT_EQ(message.find("key_19"), std::string::npos) << message;
  EXPECT_TRUE(message.ends_with("\nand 6 more mistakes")) << message;
}

// Processor time of this thread: a busy machine does not make it longer.
double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Sixteen times as many keys take about sixteen times as long. They would take 256 times as long if each key were compared with
// all others. Caches can make the factor larger than 16, but not 100. The keys differ only at their ends, so that comparing two
// of them takes some time.
TEST(ParseConfig, TheTimeIsInProportionToTheKeys) {
  const auto seconds = [](int keys) {
    std::string text = "{";
    for (int i = 0; i < keys; ++i)
      text += "\"a_key_that_begins_like_all_the_others_" + std::to_string(1'000'000 + i) + "\": 0,\n";
    text += "}";
    EXPECT_LT(text.size(), config::kMaxConfigBytes) << "it is read to the end";
    double best = HUGE_VAL;
    for (int i = 0; i < 3; ++i) {
      const double begin = thread_seconds();
      refusal(text);
      best = std::min(best, thread_seconds() - begin);
    }
    return best;
  };
  EXPECT_LT(seconds(19'200), 100 * seconds(1'200));
}

TEST(ParseConfig, TwentyMistakesAreShownWithoutACountOfMore) {
  std::string text = "{";
  for (int i = 0; i < 20; ++i) text += "\"key_" + std::to_string(i) + "\": 0,\n";
  EXPECT_EQ(refusal(text + "}").find("more mistakes"), std::string::npos);
}

TEST(ParseConfig, AMessageShowsTheBeginningOfALongKeyAndOfALongValue) {
  const std::string long_text(100'000, 'x');
  const std::string unknown = refusal("{\"" + long_text + "\": 0}");
  EXPECT_TRUE(unknown.starts_with("bad.json:1:2: " + long_text.substr(0, 200) + "...: unknown key")) << unknown.substr(0, 400);
  EXPECT_LT(unknown.size(), 2000);
  const std::string wrong = refusal("{\"train_batch_size\": \"" + long_text + "\"}");
  EXPECT_EQ(wrong,
            "bad.json:1:22: train_batch_size: \"" + long_text.substr(0, 79) + "... is not accepted; an integer is expected");
}

TEST(ParseConfig, ARegularExpressionIsCompiled) {
  const auto partition = [](const std::string& regex) {
    return refusal(R"({"pipeline": {"partition": "type:)" + regex + "\"}}");
  };
  EXPECT_EQ(partition("block123456789"), "accepted");
  EXPECT_NE(partition("(").find("use a regular expression after \"type:\", such as \"type:transformer\": missing closing"),
            std::string::npos);
  EXPECT_NE(partition(std::string(500'000, '(')).find("it has 500000 bytes; 1 to 1000 are accepted"), std::string::npos);
}

TEST(ParseConfig, AcceptsAuditsOfGradientsInLayoutMode) {
  const Config config = parse_config(
      R"({"audit": {"every_steps": 100}, "reproducible": "layout", "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1})",
      "good.json");
  EXPECT_EQ(config.audit.every_steps, 100);
}

TEST(ParseConfig, AnOverrideOfTheLengthReplacesTheOtherWayToSayIt) {
  const Config steps = parse_config(R"({"training": {"epochs": 3}})", "a.json", {"training.steps=7"});
  EXPECT_EQ(steps.training.steps, 7);
  EXPECT_EQ(steps.training.epochs, 0);
  const Config epochs = parse_config(R"({"training": {"steps": 7}})", "a.json", {"training.epochs=2"});
  EXPECT_EQ(epochs.training.steps, 0);
  EXPECT_EQ(epochs.training.epochs, 2);
  EXPECT_THROW(parse_config("{}", "a.json", {"training.epochs=2", "training.steps=7"}), ConfigError);
}

// With such a config the model is not known yet.
TEST(ParseConfig, AModelThatIsElsewhereIsNotCheckedWithoutItsKeys) {
  const char* const config = R"({"model": {"from": "llama"}, "parallel": {"tensor": 7}})";
  EXPECT_EQ(model_from_in(config, "a.json", {}), "llama");
  EXPECT_EQ(model_from_in(config, "a.json", {"model.from=other"}), "other");
  EXPECT_EQ(model_from_in("[]", "a.json", {}), "");
  EXPECT_EQ(parse_config(config, "a.json").model_from, "llama");
  EXPECT_THROW(parse_config(config, "a.json", {}, {"model.type=gpt", "model.heads=12"}), ConfigError) << "7 ranks, 12 heads";
  const std::vector<std::string> of_weights{"model.type=gpt", "model.layers=1", "model.lora.rank=1", "model.lora.targets=foo"};
  try {
    parse_config(R"({"model": {"from": "gpt"}})", "a.json", {}, of_weights);
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("a.json: model.lora.targets: \"foo\" ")) << error.what();
  }
}

TEST(ParseConfig, AnOverrideThatIsNotUtf8IsRefused) {
  EXPECT_EQ(refusal("{}", {"data.train=/tmp/\xff.txt"}),
            "--set data.train=/tmp/\\xff.txt: is not UTF-8; write it in UTF-8 (if it names a file, rename the file)");
}

TEST(ParseConfig, AcceptsEpochsTheBestStepAndEarlyStopping) {
  const Config config = parse_config(
      R"({"training": {"epochs": 12, "evaluate_every_epochs": 2, "early_stopping_patience": 3, "early_stopping_threshold": 0.01},
          "checkpoint": {"directory": "a", "every_epochs": 4, "keep_best": true},
          "data": {"sampler": "pytorch", "drop_last": true}, "dataloader_drop_last": true, "scheduler": {"type": "Cosine"},
          "optimizer": {"lr_scaling": {"rule": "linear", "base_batch_size": 32, "warmup_epochs": 5}}})",
      "good.json");
  EXPECT_EQ(config.training.evaluate_every_epochs, 2);
  EXPECT_TRUE(config.training.evaluates());
  EXPECT_EQ(config.training.early_stopping_patience, 3);
  EXPECT_EQ(config.training.early_stopping_threshold, 0.01);
  EXPECT_EQ(config.checkpoint.every_epochs, 4);
  EXPECT_TRUE(config.checkpoint.keep_best);
  EXPECT_EQ(config.data.sampler, SamplerKind::PyTorch);
  EXPECT_TRUE(config.data.drop_last);
  EXPECT_TRUE(config.data.drop_last_batch);
  EXPECT_EQ(config.lr_scaling_warmup_epochs, 5);
  EXPECT_EQ(accepted_without_effect(config), std::vector<std::string>{});
}

TEST(ParseConfig, AMixtureOfSourcesAndDocumentsWithCompletions) {
  const Config config = parse_config(
      R"({"data": {"sources": [{"path": "books.tokens", "weight": 0.7}, {"path": "chat.jsonl"}], "chat_template": "llama-3",
                   "packing": "whole", "loss_on": "all", "read_as": "text"}})",
      "good.json");
  ASSERT_EQ(config.data.sources.size(), 2u);
  EXPECT_EQ(config.data.sources[0].path, "books.tokens");
  EXPECT_EQ(config.data.sources[0].weight, 0.7);
  EXPECT_EQ(config.data.sources[1].weight, 1);
  EXPECT_EQ(config.data.train_name(), "books.tokens, chat.jsonl");
  EXPECT_TRUE(config.data.is_given());
  EXPECT_EQ(config.data.chat_template, ChatTemplate::Llama3);
  EXPECT_EQ(config.data.packing, Packing::Whole);
  EXPECT_EQ(config.data.loss_on, LossOn::All);
  EXPECT_EQ(config.data.read_as, ReadAs::Text);
  EXPECT_EQ(accepted_without_effect(config), std::vector<std::string>{});
}

TEST(ParseConfig, DataThatGrowsHoldsNothingOut) {
  const Config config = parse_config(
      R"({"data": {"train": "web", "grows": true, "validation": "held_out.tokens", "packing": "whole", "shuffle": false},
          "training": {"steps": 100, "evaluate_every_epochs": 1}, "checkpoint": {"directory": "a", "every_epochs": 1},
          "optimizer": {"lr_scaling": {"rule": "sqrt", "base_batch_size": 32}}})",
      "good.json");
  EXPECT_TRUE(config.data.grows);
  EXPECT_EQ(config.data.validation_fraction, 0);
  EXPECT_EQ(accepted_without_effect(config), std::vector<std::string>{});
  EXPECT_NO_THROW(parse_config(R"({"data": {"grows": true, "validation_fraction": 0}})", "a"));
  EXPECT_EQ(parse_config(R"({"data": {"grows": false}})", "a").data.validation_fraction, 0.1);
}

TEST(ParseConfig, PairsOfAnswers) {
  const Config config =
      parse_config(R"({"training": {"objective": "dpo"}, "dpo": {"loss_type": "robust", "beta": 0.2, "label_smoothing": 0.1}})",
                   "good.json");
  EXPECT_EQ(config.model.objective, model::Objective::Dpo);
  EXPECT_EQ(config.model.preference, (kernels::PreferenceRule{kernels::PreferenceLossType::Robust, 0.2, 0.1}));
  EXPECT_EQ(accepted_without_effect(config), std::vector<std::string>{});
  const Config packed = parse_config(R"({"training": {"objective": "dpo"}, "data": {"packing": "isolated"}})", "a");
  EXPECT_TRUE(packed.model.isolated_documents);
  EXPECT_EQ(accepted_without_effect(packed), std::vector<std::string>{});
  EXPECT_EQ(accepted_without_effect(parse_config(R"({"dpo": {"beta": 0.2}})", "a")),
            std::vector<std::string>{"dpo.beta: takes effect only when training.objective is \"dpo\""});
}

TEST(ParseConfig, KeysOfPyTorchsSamplerHaveNoEffectOnTheOther) {
  const Config config = parse_config(R"({"data": {"drop_last": true}, "dataloader_drop_last": true,
                                         "training": {"early_stopping_threshold": 1},
                                         "optimizer": {"lr_scaling": {"warmup_epochs": 5}}})",
                                     "a");
  EXPECT_EQ(accepted_without_effect(config),
            (std::vector<std::string>{
                "data.drop_last: takes effect only when data.sampler is \"pytorch\"",
                "dataloader_drop_last: takes effect only when data.sampler is \"pytorch\"",
                "training.early_stopping_threshold: takes effect only when training.early_stopping_patience is above 0",
                "optimizer.lr_scaling.warmup_epochs: takes effect only when optimizer.lr_scaling.rule is \"linear\" or "
                "\"sqrt\""}));
}

// No key of the file can be removed there.
TEST(Overrides, SayHowAnotherTypeReplacesASection) {
  const std::string text = R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 9}}})";
  EXPECT_THAT([&] { parse_config(text, "a.json", {"scheduler.type=WarmupLR"}); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr(
                  "remove it, or replace the section: --set 'scheduler={\"type\": ..., \"params\": {...}}'")));
  EXPECT_EQ(parse_config(text, "a.json", {R"(scheduler={"type": "WarmupLR"})"}).scheduler.type, SchedulerType::WarmupLR);
  EXPECT_THAT([] { parse_config(R"({"optimizer": {"type": "AdamW", "params": {"momentum": 0.5}}})", "a.json"); },
              testing::ThrowsMessage<ConfigError>(testing::EndsWith("remove it")));
}

}  // namespace
}  // namespace trivet
