// Other keys of DeepSpeed. Their defaults are accepted; a value that would switch something on is refused by name.
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

void add_compile(KeyTable& table) {
  SectionBase compile(table, "compile");
  compile.not_used("DeepCompile", "", "deepcompile");
  const char* const meaning = "DeepCompile";
  for (const char* name : {"deepcompile", "free_activation", "offload_activation", "offload_opt_states", "offload_parameters",
                           "symmetric_memory", "debug_log", "sync_before_reduce", "sync_after_reduce", "sync_before_allgather",
                           "sync_after_allgather", "keep_all_input_tensors"})
    compile.unsupported(name, "false", meaning);
  for (const char* name : {"double_buffer", "keep_int_input_tensors"}) compile.unsupported(name, "true", meaning);
  compile.unsupported("free_activation_threshold", "10485760", meaning);
  compile.unsupported("passes", "null", meaning);
}

void add_hybrid_engine(KeyTable& table) {
  SectionBase hybrid(table, "hybrid_engine");
  hybrid.refused("training and generation in one engine");
  hybrid.unsupported("enabled", "false", "training and generation in one engine");
  hybrid.unsupported("max_out_tokens", "512", "tokens generated");
  hybrid.unsupported("inference_tp_size", "1", "ranks that share a layer when generating");
  hybrid.unsupported("release_inference_cache", "false", "free the cache after generating");
  hybrid.unsupported("pin_parameters", "true", "keep parameters when generating");
  hybrid.unsupported("tp_gather_partition_size", "8", "parameters gathered at once");
  hybrid.unsupported("enable_cuda_graph", "false", "CUDA graphs when generating");
}

}  // namespace

void add_deepspeed_keys(KeyTable& table) {
  SectionBase top(table, "");
  top.inert("vocabulary_size", "null", "warn when it is not a multiple of 8", "model.vocabulary determines it")
      .type(KeyType::Integer);
  top.unused("disable_allgather", "false", "an old communication scheme").instead("zero_optimization.allgather_partitions");
  top.unused("graph_harvesting", "false", "CUDA graphs").instead("cuda_graph");
  top.unused("use_data_before_expert_parallelism", "false", "order of ranks");
  top.unsupported("weight_quantization", "null", "quantize gathered weights").type(KeyType::Object);
  top.unsupported("sparse_attention", "null", "block-sparse attention").type(KeyType::Object);
  top.unsupported("compression_training", "{}", "pruning and quantization while training");
  SectionBase(table, "weight_quantization").refused("quantization of gathered weights", "");
  SectionBase(table, "sparse_attention").refused("block-sparse attention", "");
  SectionBase(table, "compression_training").refused("compression by pruning and quantization", "");
  add_compile(table);
  add_hybrid_engine(table);
}

}  // namespace trivet::config
