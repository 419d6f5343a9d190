// Keys of the batch equation and of gradient processing.
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

void batch_key(SectionBase& top, const std::string& name, int64_t BatchConfig::*member, const std::string& meaning) {
  top.custom(
         name, KeyType::Integer, meaning,
         [member](Config& config, const JsonNode& node) { config.batch.*member = node.integer; },
         [member](const Config& config) {
           return config.batch.*member == 0 ? std::string("null") : std::to_string(config.batch.*member);
         })
      .at_least(1)
      .nullable();
}

}  // namespace

void add_batch_keys(KeyTable& table) {
  Section<Config> top(table, "", [](Config& c) -> Config& { return c; });
  batch_key(top, "train_batch_size", &BatchConfig::train_batch_size,
            "samples per optimizer step over all ranks: microbatch x accumulation steps x data-parallel size");
  batch_key(top, "train_micro_batch_size_per_gpu", &BatchConfig::micro_batch_size,
            "samples per microbatch, that is, per forward pass of one rank");
  batch_key(top, "gradient_accumulation_steps", &BatchConfig::gradient_accumulation_steps,
            "microbatches per rank in one optimizer step");
  top.key("gradient_clipping", &Config::gradient_clipping, "largest global norm of the gradient; 0: no clipping").at_least(0);
  top.unsupported("managed_gradient_accumulation", "true", "the engine counts accumulation steps itself");
  top.unsupported("data_parallel_size", "null", "data-parallel ranks; in Trivet these are the ranks that the other axes leave")
      .instead("parallel");
  top.unsupported("sequence_parallel_size", "1", "ranks that share a sequence").instead("parallel.context").nullable();
  top.unsupported("prescale_gradients", "false", "divide gradients before the reduction instead of after it");
  top.unsupported("gradient_predivide_factor", "1.0", "split the division into a part before and a part after the reduction");
  top.unsupported("gradient_allreduce_op", "\"mean\"", "mean or sum of the ranks' gradients");
  top.unsupported("sparse_gradients", "false", "sparse gradients of embeddings");
}

}  // namespace trivet::config
