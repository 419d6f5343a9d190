// Keys of the batch equation and of gradient processing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/config/gradient_sum.h"
#include "engine/config/refuse.h"
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

const int64_t kMicrobatchOfTrainer = 8;
const char* const kFromTrainer = "the default of Hugging Face's Trainer, which takes --per_device_train_batch_size";

// Without any number there is no batch; then the Trainer's own microbatch is taken.
std::string take_train_batch(Config& config) {
  if (config.batch.micro_batch_size > 0 || config.elasticity.enabled) return "what the other sizes give";
  config.batch.micro_batch_size = kMicrobatchOfTrainer;
  return fmt::format("with a microbatch of {}, {}", kMicrobatchOfTrainer, kFromTrainer);
}

std::string take_microbatch(Config& config) {
  if (config.batch.train_batch_size > 0 || config.elasticity.enabled) return "what train_batch_size gives";
  config.batch.micro_batch_size = kMicrobatchOfTrainer;
  return fmt::format("{}, {}", kMicrobatchOfTrainer, kFromTrainer);
}

KeyRefiner batch_key(SectionBase& top, const std::string& name, int64_t BatchConfig::*member, const std::string& meaning) {
  return top
      .custom(
          name, KeyType::Integer, meaning,
          [member](Config& config, const JsonNode& node) { config.batch.*member = node.integer; },
          [member](const Config& config) {
            return config.batch.*member == 0 ? std::string("null") : std::to_string(config.batch.*member);
          })
      .at_least(1)
      .nullable()
      .active_when("elasticity is not enabled", [](const Config& config) { return !config.elasticity.enabled; });
}

void set_micro_batch_sizes(Config& config, const JsonNode& node) {
  for (const JsonNode& item : node.items) {
    if (!item.is_integer || item.integer < 1) throw std::invalid_argument("use a list of integers from 1");
    config.elasticity.micro_batch_sizes.push_back(item.integer);
  }
}

void set_version(Config& config, const JsonNode& node) {
  if (node.number != 0.1 && node.number != 0.2) throw std::invalid_argument("use 0.1 or 0.2");
  config.elasticity.version = node.number;
}

void add_elasticity(KeyTable& table) {
  using E = ElasticityConfig;
  Section<E> elasticity(table, "elasticity", [](Config& c) -> E& { return c.elasticity; });
  const auto key = [&](const std::string& name, auto E::*member, const std::string& meaning) {
    return elasticity.key(name, member, meaning).active_when("elasticity.enabled is true", [](const Config& c) {
      return c.elasticity.enabled;
    });
  };
  const auto list = [](const Config& c) { return fmt::format("[{}]", fmt::join(c.elasticity.micro_batch_sizes, ", ")); };
  elasticity.key(
      "enabled", &E::enabled,
      "choose the batch that the most numbers of ranks can train; with it a job keeps its batch when hosts are lost");
  elasticity
      .custom(
          "max_train_batch_size", KeyType::Integer, "the largest batch that may be chosen",
          [](Config& c, const JsonNode& node) { c.elasticity.max_train_batch_size = node.integer; },
          [](const Config& c) {
            return c.elasticity.max_train_batch_size == 0 ? "null" : std::to_string(c.elasticity.max_train_batch_size);
          })
      .between(1, 1e9)
      .nullable()
      .active_when("elasticity.enabled is true", [](const Config& c) { return c.elasticity.enabled; });
  elasticity
      .custom("micro_batch_sizes", KeyType::List, "microbatches to choose from; the largest that fits is taken",
              set_micro_batch_sizes, list)
      .active_when("elasticity.enabled is true", [](const Config& c) { return c.elasticity.enabled; });
  key("min_gpus", &E::min_gpus, "smallest number of ranks").at_least(1);
  key("max_gpus", &E::max_gpus, "largest number of ranks").at_least(1);
  key("num_gpus_per_node", &E::num_gpus_per_node, "ranks per host: version 0.2 only counts whole hosts").at_least(1);
  key("model_parallel_size", &E::model_parallel_size, "ranks that share the model: parallel.tensor x pipeline x context")
      .at_least(1);
  elasticity
      .custom("version", KeyType::Number, "0.1: any number of data-parallel ranks; 0.2: whole hosts, and other axes",
              set_version, [](const Config& c) { return number_json(c.elasticity.version); })
      .active_when("elasticity.enabled is true", [](const Config& c) { return c.elasticity.enabled; });
  key("prefer_larger_batch", &E::prefer_larger_batch, "of equally good batches the larger one");
  key("ignore_non_elastic_batch_info", &E::ignore_non_elastic_batch_info,
      "ignore the other keys of the batch instead of refusing them");
  elasticity.inert("min_time", "0", "minimum minutes between changes", "a lost host is left out at once").at_least(0);
}

void set_sequence_parallel_size(Config& config, const JsonNode& node) {
  if (node.integer > 1) config.parallel.context = node.integer;  // 1, DeepSpeed's default: off
}

}  // namespace

void add_batch_keys(KeyTable& table) {
  Section<Config> top(table, "", [](Config& c) -> Config& { return c; });
  batch_key(top, "train_batch_size", &BatchConfig::train_batch_size,
            "samples per optimizer step over all ranks: microbatch x accumulation steps x data-parallel size")
      .takes_auto(take_train_batch);
  batch_key(top, "train_micro_batch_size_per_gpu", &BatchConfig::micro_batch_size,
            "samples per microbatch, that is, per forward pass of one rank")
      .takes_auto(take_microbatch);
  batch_key(top, "gradient_accumulation_steps", &BatchConfig::gradient_accumulation_steps,
            "microbatches per rank in one optimizer step")
      .takes_auto([](Config& c) {
        return std::string(c.batch.train_batch_size > 0 ? "what train_batch_size gives"
                                                        : "1, the default of Hugging Face's Trainer");
      });
  add_elasticity(table);
  top.key("gradient_clipping", &Config::gradient_clipping, "largest global norm of the gradient; 0: no clipping").at_least(0);
  top.custom(
         "managed_gradient_accumulation", KeyType::Bool,
         "the engine ends a step after gradient_accumulation_steps microbatches; Trivet's own program does so with false, too",
         [](Config&, const JsonNode&) {},
         [](const Config& c) {
           const GivenKey* given = find_given(c, "managed_gradient_accumulation");
           return given ? given->value : std::string("true");
         })
      .deepspeed("false: the program ends a step whenever it calls step()");
  top.unsupported("data_parallel_size", "null", "data-parallel ranks; in Trivet these are the ranks that the other axes leave")
      .instead("--ranks or trivet launch");
  top.custom("sequence_parallel_size", KeyType::Integer, "the same as parallel.context", set_sequence_parallel_size,
             [](const Config& c) { return std::to_string(c.parallel.context); })
      .nullable()
      .at_least(1)
      .alias_of("parallel.context");
  const std::string mean = "the result is the same mean; only its rounding differs";
  top.inert("prescale_gradients", "false", "divide gradients before the reduction instead of after it", mean);
  top.inert("gradient_predivide_factor", "1.0", "split the division into a part before and a part after the reduction", mean);
  top.custom(
         "gradient_allreduce_op", KeyType::Enum,
         "\"mean\" of the gradients of the data-parallel ranks, or their \"sum\", which is larger by the number of these ranks",
         [](Config&, const JsonNode&) {}, [](const Config& c) { return quoted(sums_gradients(c) ? "sum" : "mean"); })
      .names({"mean", "sum"})
      .ignores_case()
      .deepspeed("has \"sum\" below stage 3 only");
  top.unsupported("sparse_gradients", "false", "sparse gradients of embeddings");
}

}  // namespace trivet::config
