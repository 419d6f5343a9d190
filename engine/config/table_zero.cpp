// zero_optimization.*, without offload
#include <fmt/format.h>

#include "engine/config/section_builder.h"
#include "engine/config/tables.h"
#include "model/family.h"

namespace trivet::config {
namespace {

using Z = ZeroConfig;

// 0 for a model without one.
int64_t hidden_size(const Config& config) {
  return model::family_of(config.model.type).reads_images ? 0 : config.model.hidden_size;
}

std::string number_of(int64_t value) { return std::to_string(value); }

// A bucket of hidden_size^2 x numerator / denominator elements, as Hugging Face's Trainer fills it in.
std::string take_size(const Config& config, int64_t& size, int64_t numerator, int64_t denominator, const char* formula) {
  const int64_t hidden = hidden_size(config);
  if (hidden == 0) return number_of(size) + ", the default";
  size = hidden * hidden * numerator / denominator;
  return fmt::format("{}, {}, as Hugging Face's Trainer does", size, formula);
}

// DeepSpeed's older switches of offload to host memory.
template <typename Part>
void add_old_offload(SectionBase& zero, const std::string& name, const std::string& section, Part ZeroConfig::*part) {
  zero.custom(
          name, KeyType::Bool, "older form of " + section + ".device: true is \"cpu\"",
          [part](Config& c, const JsonNode& node) {
            if (node.boolean) (c.zero.*part).device = OffloadDevice::Cpu;
          },
          [part](const Config& c) { return std::string((c.zero.*part).device == OffloadDevice::Cpu ? "true" : "false"); })
      .nullable()
      .alias_of("zero_optimization." + section + ".device");
}

void add_old_names(KeyTable& table, SectionBase& zero) {
  add_old_offload(zero, "cpu_offload", "offload_optimizer", &ZeroConfig::offload_optimizer);
  add_old_offload(zero, "cpu_offload_param", "offload_param", &ZeroConfig::offload_param);
  zero.other_name("cpu_offload_params", "cpu_offload_param");
  for (const std::string name :
       {"prefetch_bucket_size", "param_persistence_threshold", "model_persistence_threshold", "max_live_parameters",
        "max_reuse_distance", "module_granularity_threshold", "use_all_reduce_for_fetch_params", "allgather_sequential"})
    zero.other_name(name, "stage3_" + name);
  table.add_name("allgather_size", "zero_optimization.allgather_bucket_size");
}

void add_buckets(Section<Z>& zero) {
  const auto partitioned = [](const Config& c) { return c.zero.stage >= 1; };
  const std::string when = "zero_optimization.stage is 1 or more";
  zero.inert("contiguous_gradients", "true", "gradients are copied to one buffer as they are computed",
             "a block's gradients are computed in one buffer");
  zero.key("reduce_scatter", &Z::reduce_scatter, "reduce-scatter gradients to their owners instead of all-reducing them")
      .active_when(when, partitioned);
  zero.key("reduce_bucket_size", &Z::reduce_bucket_size, "elements reduced at once; 0: the default")
      .zero_is_default()
      .takes_auto([](Config& c) { return take_size(c, c.zero.reduce_bucket_size, 1, 1, "hidden_size x hidden_size"); });
  zero.key("allgather_partitions", &Z::allgather_partitions, "updated parameters are gathered instead of broadcast one by one")
      .active_when(when, partitioned);
  zero.key("allgather_bucket_size", &Z::allgather_bucket_size, "elements gathered at once; 0: the default")
      .zero_is_default()
      .active_when(when, partitioned);
  zero.key("mics_shard_size", &Z::mics_shard_size,
           "MiCS or hybrid sharding: this many ranks with consecutive numbers, such as those of a host, hold all shards, and "
           "the "
           "others replicas of them, at stages 1 to 3 (DeepSpeed: at stage 3 only); -1 or 0: all ranks divide them")
      .at_least(-1)
      .deepspeed("at stage 3 only")
      .active_when(when, partitioned);
  zero.key(
          "zero_quantized_gradients", &Z::zero_quantized_gradients,
          "qgZ of ZeRO++: sum gradients in blocks of 4-bit numbers; at stage 3 first among zero_hpz_partition_size ranks, then "
          "between such groups (DeepSpeed: at stage 3 only, and among the ranks of a host)")
      .deepspeed("at stage 3 only, and among the ranks of a host")
      .active_when(when, partitioned);
  zero.inert("mics_hierarchical_params_gather", "false", "gather between hosts in two steps",
             "gathers between hosts always are in two steps");
  zero.key("overlap_comm", &Z::overlap_comm, "communicate while computing").default_note("stage 3: true").nullable();
  zero.key("sub_group_size", &Z::sub_group_size,
           "elements the optimizer updates at once, at every stage (DeepSpeed: at stage 3 only); 0: the default")
      .zero_is_default()
      .deepspeed("at stage 3 only");
  zero.inert("round_robin_gradients", "false", "spread the copying of gradients over the ranks",
             "every rank owns an equal part of every block");
}

void add_stage3(Section<Z>& zero) {
  const auto stage3 = [](const Config& c) { return c.zero.stage == 3; };
  const std::string when = "zero_optimization.stage is 3";
  zero.key(
          "zero_hpz_partition_size", &Z::zero_hpz_partition_size,
          "hpZ of ZeRO++: this many ranks with consecutive numbers, such as those of a host, keep a second copy of the weights "
          "together from the first gather of a step, so that later gathers of the step stay among them; 1: none")
      .at_least(1)
      .active_when(when, stage3);
  zero.key("zero_quantized_weights", &Z::zero_quantized_weights,
           "qwZ of ZeRO++: gather weights in blocks of 8-bit numbers; layers compute with these, on any number of ranks")
      .active_when(when, stage3);
  zero.key("zero_quantized_nontrainable_weights", &Z::zero_quantized_nontrainable_weights,
           "as zero_quantized_weights, for frozen weights only")
      .active_when(when, stage3);
  zero.key("stage3_prefetch_bucket_size", &Z::stage3_prefetch_bucket_size,
           "elements prefetched, that is, gathered before they are used; 0: none")
      .at_least(0)
      .takes_auto(
          [](Config& c) { return take_size(c, c.zero.stage3_prefetch_bucket_size, 9, 10, "0.9 x hidden_size x hidden_size"); })
      .active_when(when, stage3);
  zero.key("stage3_param_persistence_threshold", &Z::stage3_param_persistence_threshold,
           "parameters with fewer elements stay whole on every rank")
      .at_least(0)
      .takes_auto([](Config& c) {
        const int64_t hidden = hidden_size(c);
        if (hidden == 0) return number_of(c.zero.stage3_param_persistence_threshold) + ", the default";
        c.zero.stage3_param_persistence_threshold = 10 * hidden;
        return number_of(10 * hidden) + ", 10 x hidden_size, as Hugging Face's Trainer does";
      })
      .active_when(when, stage3);
  zero.key("stage3_model_persistence_threshold", &Z::stage3_model_persistence_threshold, "maximum elements that stay whole")
      .at_least(0)
      .active_when(when, stage3);
  zero.key("stage3_max_live_parameters", &Z::stage3_max_live_parameters, "maximum elements that are gathered at any time")
      .at_least(0)
      .active_when(when, stage3);
  zero.key("stage3_max_reuse_distance", &Z::stage3_max_reuse_distance,
           "parameters stay gathered if fewer elements than this are used before their next use")
      .at_least(0)
      .active_when(when + " and stage3_release is \"distance\"", [](const Config& c) {
        return c.zero.stage == 3 && c.zero.stage3_release == pipeline::UnshardRelease::Distance;
      });
  zero.key("stage3_release", &Z::stage3_release,
           "when gathered parameters are released: \"distance\" follows stage3_max_reuse_distance; \"use\" releases them after "
           "each use; \"microbatch\" keeps them from a microbatch's forward to its backward; \"step\" keeps them until the end "
           "of the step; `trivet plan` prints the cost of each")
      .own()
      .active_when(when, stage3);
}

void add_zero_without_effect(SectionBase& zero) {
  const std::string layout_free = "a checkpoint holds global shapes and loads on any layout";
  const std::string python = "there are no Python modules";
  zero.inert("use_multi_rank_bucket_allreduce", "true", "one bucket may hold several owners' gradients",
             "buckets may always do so");
  zero.inert("load_from_fp32_weights", "true", "restore master weights from float32", "master weights are always saved");
  zero.inert("elastic_checkpoint", "false", "checkpoints for a different number of ranks", layout_free);
  zero.inert("stage3_gather_16bit_weights_on_model_save", "false", "save whole weights in a checkpoint", layout_free);
  zero.inert("stage3_gather_fp16_weights_on_model_save", "false", "older name of stage3_gather_16bit_weights_on_model_save",
             layout_free);
  zero.other_name("gather_16bit_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save");
  zero.other_name("gather_fp16_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save");
  zero.inert("pipeline_loading_checkpoint", "false", "overlap reading a checkpoint with its distribution",
             "every rank reads its own part");
  zero.inert("memory_efficient_linear", "true", "keep references instead of copies in linear layers", "layers keep no copies");
  zero.inert("override_module_apply", "true", "hook Module.apply", python);
  zero.inert("log_trace_cache_warnings", "false", "warn when the order of modules changes",
             "the order is decided before the first step");
  zero.inert("enable_sanity_checks", "false", "additional checks", "the checks are always on");
  zero.inert("compute_grad_norm", "true", "compute the norm of the gradient", "it is always computed");
  zero.inert("parameter_alignment", "false", "align each parameter in flat buffers", "blocks are laid out for the kernels");
  zero.inert("verbose", "false", "print more", "`trivet plan` prints what ZeRO does");
}

void add_not_implemented(KeyTable& table, SectionBase& zero) {
  zero.unused("stage3_module_granularity_threshold", "0", "gather modules smaller than this together");
  zero.unused("stage3_use_all_reduce_for_fetch_params", "false",
              "gather parameters with an all-reduce instead of an all-gather");
  zero.unused("stage3_allgather_sequential", "false", "gather one parameter at a time");
  zero.inert("ignore_unused_parameters", "true", "tolerate parameters without a gradient",
             "every parameter of a model has a gradient");
  zero.unused("legacy_stage1", "false", "the first implementation of stage 1");
  zero.unsupported("zeropp_loco_param", "null", "ZeRO++: error feedback {err_beta, reset_T}").type(KeyType::Object);
  zero.unsupported("save_muon_momentum_buffer_in_memory", "false", "where Muon keeps its momentum");
  zero.inert("cpu_offload_use_pin_memory", "false", "older name of pin_memory of both sections of offload",
             "memory that a device copies from is always page-locked")
      .nullable();
  SectionBase leaf(table, "zero_optimization.leaf_module");
  leaf.unsupported("classes", "[]", "modules gathered as a whole, by class").type(KeyType::List);
  leaf.unsupported("names", "[]", "modules gathered as a whole, by name");
  leaf.unsupported("name_suffixes", "[]", "modules gathered as a whole, by the end of the name");
}

}  // namespace

void add_zero_keys(KeyTable& table) {
  Section<Z> zero(table, "zero_optimization", [](Config& c) -> Z& { return c.zero; });
  zero.key("stage", &Z::stage, "what is partitioned: 0 nothing, 1 optimizer state, 2 also gradients, 3 also parameters")
      .between(0, 3)
      .selects();
  add_buckets(zero);
  add_stage3(zero);
  add_zero_without_effect(zero);
  add_not_implemented(table, zero);
  add_old_names(table, zero);
}

}  // namespace trivet::config
