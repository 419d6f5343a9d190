// What the files of DeepSpeed users contain is accepted unchanged.
#include <filesystem>

#include "engine/config/deepspeed.h"
#include "engine/config/explain.h"
#include "engine/config/other_programs.h"
#include "tests/config/support.h"

namespace trivet {
namespace {

TEST(AcceptedConfigs, AZeroSectionWithEveryDocumentedKeyAtItsDefault) {
  EXPECT_EQ(refusal(R"({"zero_optimization": {
    "stage": 3, "contiguous_gradients": true, "reduce_scatter": true, "reduce_bucket_size": 5e8,
    "use_multi_rank_bucket_allreduce": true, "allgather_partitions": true, "allgather_bucket_size": 5e8, "overlap_comm": true,
    "load_from_fp32_weights": true, "elastic_checkpoint": false, "sub_group_size": 1e9, "stage3_prefetch_bucket_size": 5e7,
    "stage3_param_persistence_threshold": 1e5, "stage3_model_persistence_threshold": 9223372036854775807,
    "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": false,
    "stage3_module_granularity_threshold": 0, "stage3_use_all_reduce_for_fetch_params": false,
    "stage3_allgather_sequential": false, "ignore_unused_parameters": true, "legacy_stage1": false,
    "round_robin_gradients": false, "zero_hpz_partition_size": 1, "zero_quantized_weights": false,
    "zero_quantized_gradients": false, "zero_quantized_nontrainable_weights": false, "zeropp_loco_param": null,
    "mics_shard_size": -1, "mics_hierarchical_params_gather": false, "memory_efficient_linear": true,
    "pipeline_loading_checkpoint": false, "override_module_apply": true, "log_trace_cache_warnings": false,
    "enable_sanity_checks": false, "save_muon_momentum_buffer_in_memory": false,
    "leaf_module": {"classes": [], "names": [], "name_suffixes": []},
    "offload_param": {"device": "none", "nvme_path": null, "buffer_count": 5, "buffer_size": 1e8, "max_in_cpu": 1e9,
                      "pin_memory": true},
    "offload_optimizer": {"device": "none", "nvme_path": null, "buffer_count": 4, "pin_memory": true, "pipeline_read": false,
                          "pipeline_write": false, "fast_init": false, "ratio": 1.0, "super_offload": false,
                          "cpuadam_cores_perc": 0.8},
    "zenflow": null}})"),
            "accepted");
}

TEST(AcceptedConfigs, FeaturesThatAreSwitchedOffWithTheirSettings) {
  EXPECT_EQ(refusal(R"({
    "train_batch_size": 16, "steps_per_print": 2000, "wall_clock_breakdown": false, "prescale_gradients": false,
    "gradient_predivide_factor": 1, "sparse_gradients": false, "dump_state": false, "memory_breakdown": false,
    "zero_allow_untested_optimizer": true, "dataloader_drop_last": true, "communication_data_type": null,
    "amp": {"enabled": false, "opt_level": "O2"}, "tensorboard": {"enabled": false, "output_path": "x"},
    "wandb": {"enabled": false, "project": "mine"}, "flops_profiler": {"enabled": false, "profile_step": 3},
    "elasticity": {"enabled": false, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4]},
    "curriculum_learning": {"enabled": false, "curriculum_type": "seqlen"},
    "compression_training": {"weight_quantization": {"shared_parameters": {"enabled": false, "schedule_offset": 0},
                                                     "different_groups": {"wq1": {"params": {"start_bits": 8}}}},
                             "layer_reduction": {"enabled": false}},
    "quantize_training": {"enabled": false, "quantize_verbose": true},
    "aio": {"block_size": 262144, "queue_depth": 32, "thread_count": 1, "single_submit": false, "overlap_events": true},
    "autotuning": {"enabled": true, "fast": false, "arg_mappings": {"train_batch_size": "--batch"}, "metric": "latency"},
    "activation_checkpointing": {"partition_activations": false, "number_checkpoints": null, "cpu_checkpointing": false},
    "checkpoint": {"tag_validation": "Warn", "load_universal": false, "parallel_write": {"pipeline_stage": false}},
    "scheduler": null})"),
            "accepted");
}

TEST(AcceptedConfigs, EveryOptimizerInAnyCase) {
  for (const auto& [name, type] : EnumNames<OptimizerType>::table)
    for (const auto& written : {std::string(name), config::lower_words(std::string(name))})
      EXPECT_EQ(refusal(R"({"optimizer": {"type": ")" + written + "\"}}"), "accepted") << written;
}

TEST(AcceptedConfigs, IntegersMayBeWrittenWithAnExponent) {
  EXPECT_EQ(parse_config(R"({"zero_optimization": {"reduce_bucket_size": 2e8}})", "a").zero.reduce_bucket_size, 200'000'000);
  EXPECT_EQ(parse_config(R"({"train_batch_size": 8.0})", "a").batch.train_batch_size, 8);
}

TEST(AcceptedConfigs, EveryFileInConfigsIsCorrectAndNothingIsToldOfIt) {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(TRIVET_SOURCE_DIR "/configs")) {
    if (file.path().extension() != ".json") continue;
    const Config config = load_config(file.path().string());
    EXPECT_EQ(accepted_without_effect(config), std::vector<std::string>{}) << file.path();
    EXPECT_EQ(differences_from_deepspeed(config), std::vector<std::string>{}) << file.path();
    ++files;
  }
  EXPECT_GE(files, 5);
}

}  // namespace
}  // namespace trivet
