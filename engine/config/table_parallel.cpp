// parallel.*, pipeline.*, tensor_parallel.*, expert_parallel.*, activation_checkpointing.*
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

void set_pipeline_stages(Config& config, const JsonNode& node) {
  if (node.kind == JsonKind::String && node.text == "auto") return;  // DeepSpeed's default
  if (!node.is_integer || node.integer < 1) throw std::invalid_argument("use a positive integer");
  config.parallel.pipeline = node.integer;
}

void set_autotp_size(Config& config, const JsonNode& node) {
  if (node.integer > 0) config.parallel.tensor = node.integer;  // 0, DeepSpeed's default: off
}

// May a rank have several microbatches a step? With both sizes given it depends on the ranks: resolve_batch.
bool accumulates(const BatchConfig& batch) {
  if (batch.gradient_accumulation_steps > 0) return batch.gradient_accumulation_steps > 1;
  return batch.micro_batch_size > 0 && batch.train_batch_size > batch.micro_batch_size;
}

void add_pipeline(KeyTable& table) {
  Section<Config> pipeline(table, "pipeline", [](Config& c) -> Config& { return c; });
  pipeline
      .key("schedule", &Config::schedule,
           "in which order a stage works on its microbatches; \"gpipe\" keeps the activations of all of them, on one stage too")
      .active_when("a step has several microbatches or parallel.pipeline is more than 1",
                   [](const Config& c) { return c.parallel.pipeline > 1 || accumulates(c.batch); });
  pipeline
      .custom("stages", KeyType::Any, "the same as parallel.pipeline", set_pipeline_stages,
              [](const Config& c) { return std::to_string(c.parallel.pipeline); })
      .default_json("\"auto\"")
      .alias_of("parallel.pipeline");
  pipeline.unsupported("partition", "\"best\"", "how layers are dealt to stages; Trivet balances their cost");
  pipeline.unsupported("seed_layers", "false", "one seed per layer");
  pipeline.unsupported("activation_checkpoint_interval", "0", "layers per checkpoint").instead("activation_checkpointing.mode");
  pipeline.unsupported("pipe_partitioned", "true", "split activations over the tensor axis before sending");
  pipeline.unsupported("grad_partitioned", "true", "split gradients over the tensor axis before sending");
  pipeline.inert("use_reentrant", "true", "PyTorch's kind of recompute", "there is one kind of recompute");
}

void add_tensor_parallel(KeyTable& table) {
  SectionBase tensor(table, "tensor_parallel");
  tensor
      .custom("autotp_size", KeyType::Integer, "the same as parallel.tensor; 0: off", set_autotp_size,
              [](const Config& c) { return c.parallel.tensor > 1 ? std::to_string(c.parallel.tensor) : std::string("0"); })
      .at_least(0)
      .alias_of("parallel.tensor");
  tensor.unsupported("dtype", "\"fp16\"", "type of the parameters");
  tensor.unsupported("keep_module_on_host", "false", "keep the module on the host");
  tensor.unsupported("kernel_inject", "false", "inject inference kernels");
  tensor.unsupported("tp_overlap_comm", "false", "overlap the all-reduce of input gradients");
  tensor.unsupported("preset_model", "null", "split a known model");
  tensor.unsupported("injection_policy_tuple", "null", "names of row-parallel layers");
  SectionBase tp(table, "tensor_parallel.tp");
  tp.unsupported("tp_size", "1", "older name of autotp_size").instead("parallel.tensor");
  tp.unsupported("tp_grain_size", "1", "granularity of uneven splits");
  tp.unsupported("mpu", "null", "model-parallel unit of a Python program");
  tp.unsupported("tp_group", "null", "process group of a Python program");
  SectionBase partition(table, "tensor_parallel.partition_config");
  partition.unsupported("use_default_specs", "true", "use DeepSpeed's rules");
  partition.unsupported("layer_specs", "[]", "own rules");
}

void add_expert_parallel(KeyTable& table) {
  SectionBase expert(table, "expert_parallel");
  expert.unsupported("enabled", "false", "expert parallelism of known models");
  expert.unsupported("autoep_size", "1", "ranks that share the experts");
  for (const char* name : {"preset_model", "moe_layer_pattern", "router_pattern", "expert_pattern", "expert_w1", "expert_w2",
                           "expert_w3", "num_experts_attr", "top_k_attr", "has_shared_experts", "shared_experts_pattern"})
    expert.unsupported(name, "null", "how the experts are found in the model");
  expert.unsupported("use_grouped_mm", "true", "grouped matrix products");
  expert.unsupported("disable_triton_grouped_mm", "false", "without Triton");
  for (const char* name : {"combine_impl", "score_func", "score_apply", "top_k", "routed_scaling_factor"})
    expert.unsupported(name, "\"auto\"", "routing of tokens to experts").type(KeyType::Any);
  for (const char* name :
       {"route_norm", "num_expert_groups", "num_limited_groups", "load_balance_coeff", "validate_folding_routing"})
    expert.unsupported(name, "null", "routing of tokens to experts");
  expert.unsupported("route_scale", "1.0", "routing of tokens to experts");
  expert.unsupported("expert_tensor_parallel_size", "1", "ranks that share one expert");
}

void add_activation_checkpointing(KeyTable& table) {
  Section<Config> recompute(table, "activation_checkpointing", [](Config& c) -> Config& { return c; });
  recompute.key("mode", &Config::recompute,
                "\"full\": backward computes each block's activations again instead of keeping them");
  recompute.unsupported("partition_activations", "false", "split kept activations over the tensor axis");
  recompute.unsupported("number_checkpoints", "null", "kept activations; Trivet keeps one a block");
  recompute.unsupported("contiguous_memory_optimization", "false", "kept activations in one buffer");
  recompute.unsupported("synchronize_checkpoint_boundary", "false", "wait for the device at each block");
  recompute.unsupported("profile", "false", "time forward and backward of each block");
  recompute.unsupported("cpu_checkpointing", "false", "kept activations in host memory");
}

}  // namespace

void add_parallel_keys(KeyTable& table) {
  using P = ParallelConfig;
  Section<P> parallel(table, "parallel", [](Config& c) -> P& { return c.parallel; });
  parallel.key("tensor", &P::tensor, "ranks that share each layer").at_least(1);
  parallel.key("pipeline", &P::pipeline, "stages that share the layers").at_least(1);
  parallel.key("context", &P::context, "ranks that share each sequence").at_least(1);
  parallel.key("expert", &P::expert, "ranks that share the experts").at_least(1);
  add_pipeline(table);
  add_tensor_parallel(table);
  add_expert_parallel(table);
  add_activation_checkpointing(table);
}

}  // namespace trivet::config
