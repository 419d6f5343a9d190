#include "engine/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "engine/checkpoint/async_saver.h"
#include "engine/checkpoint_pieces.h"
#include "engine/config/load.h"
#include "engine/worker.h"

namespace trivet {
namespace {

std::vector<zero::NamedParameters> named_parameters(const model::Model& model) {
  std::vector<zero::NamedParameters> layers;
  for (size_t i = 0; i < model.layers.size(); ++i) layers.push_back({model.names[i], model.layers[i]->parameters()});
  return layers;
}

// One step and one evaluation of rank 0 on meta kernels. The ranks of a data group differ in nothing that costs memory.
class Rehearsal {
 public:
  Rehearsal(Plan& plan, const model::Model& model)
      : plan_(plan),
        model_(model),
        kernels_(kernels::make_meta_kernels()),
        stream_(make_inline_stream()),
        control_(comm::make_meta_group(0, plan.layout.ranks, "data.control")),
        gather_(comm::make_meta_group(0, plan.layout.ranks, "data.gather")),
        reduce_(comm::make_meta_group(0, plan.layout.ranks, "data.reduce")) {}

  void run() {
    Worker worker(plan_.config, plan_.programs, plan_.layout, model_, plan_.batch.micro_batch_size,
                  {.kernels = *kernels_,
                   .allocator = meta_allocator(),
                   .meter = meter_,
                   .activations = activations_,
                   .buffers = buffers_,
                   .control_group = *control_,
                   .control_stream = *stream_,
                   .gather_group = *gather_,
                   .gather_stream = *stream_,
                   .reduce_group = *reduce_,
                   .reduce_stream = *stream_});
    const Shape shape{plan_.batch.micro_batch_size, model_.sequence_length};
    const Microbatch microbatch{{nullptr, DType::Int32, shape}, {nullptr, DType::Int32, shape}, 0};
    const std::vector<Microbatch> microbatches(static_cast<size_t>(plan_.batch.gradient_accumulation_steps), microbatch);
    worker.train_step(microbatches, {});
    plan_.step_counters = kernels_->counters();
    plan_.gather = gather_->traffic();
    plan_.reduce = reduce_->traffic();
    worker.evaluate(1, [&](int64_t) { return microbatch; });
    plan_.activation_arena_bytes = activations_.peak_bytes();
    plan_.buffer_arena_bytes = buffers_.peak_bytes();
    plan_.memory = meter_.peak();
    plan_.memory[MemoryCategory::Activations] += activations_.peak_bytes();
    plan_.memory[MemoryCategory::Buffers] += buffers_.peak_bytes() + staging_bytes(worker);
  }

 private:
  int64_t staging_bytes(Worker& worker) const {
    if (plan_.config.checkpoint.directory.empty()) return 0;
    return checkpoint::AsyncSaver::staging_bytes_for(
        checkpoint_pieces(worker.parameters(), plan_.config.optimizer, 0, PieceRange::Shard));
  }

  Plan& plan_;
  const model::Model& model_;
  MemoryMeter meter_;
  Arena activations_{"activations"}, buffers_{"buffers"};
  std::unique_ptr<kernels::Kernels> kernels_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<comm::ProcessGroup> control_, gather_, reduce_;
};

constexpr int64_t kMostTokens = int64_t{1} << 31, kMostMicrobatches = int64_t{1} << 16;

// Beyond these no machine goes, and counting bytes and instructions would overflow or never end.
void check_batch(const Config& config, const model::Model& model, const ResolvedBatch& batch) {
  const auto refuse = [&](const std::string& what) { throw ConfigError(fmt::format("{}: {}", config.source, what)); };
  if (batch.micro_batch_size > kMostTokens / model.sequence_length)
    refuse(
        fmt::format("train_micro_batch_size_per_gpu: a microbatch of {} sequences of {} tokens is more than {} tokens; use a "
                    "smaller one and gradient_accumulation_steps",
                    batch.micro_batch_size, model.sequence_length, kMostTokens));
  if (batch.gradient_accumulation_steps > kMostMicrobatches)
    refuse(fmt::format("gradient_accumulation_steps: {} is more than {}; use a larger train_micro_batch_size_per_gpu",
                       batch.gradient_accumulation_steps, kMostMicrobatches));
}

}  // namespace

Plan make_plan(const Config& config, const model::Model& model, int world_size) {
  check(config);
  Plan plan;
  plan.config = config;
  plan.mesh = Mesh(config.parallel, world_size);
  const int data = plan.mesh.size(Axis::Data);
  plan.batch = resolve_batch(config.batch, data, config.source);
  check_batch(config, model, plan.batch);
  plan.layout = zero::make_shard_layout(
      named_parameters(model),
      {.ranks = data,
       .persistence_threshold = config.zero.stage >= 3 ? config.zero.stage3_param_persistence_threshold : 0,
       .persistence_limit = config.zero.stage3_model_persistence_threshold});
  plan.programs = make_programs(config, plan.layout, plan.batch.gradient_accumulation_steps);
  plan.parameters = model::parameter_count(model);
  plan.model_flops_per_step =
      model::flops_per_token(model) * static_cast<double>(plan.batch.train_batch_size * model.sequence_length);
  Rehearsal(plan, model).run();
  return plan;
}

model::Description describe_model(const ModelConfig& config, int64_t vocabulary_size) {
  model::Description description;
  description.type = config.type == ModelType::Llama ? model::Type::Llama : model::Type::Gpt;
  description.layers = config.layers;
  description.hidden = config.hidden_size;
  description.heads = config.heads;
  description.key_value_heads = config.key_value_heads;
  description.feed_forward = config.feed_forward_size;
  description.sequence_length = config.sequence_length;
  description.vocabulary_size = vocabulary_size;
  description.dropout = config.dropout;
  description.tied_embedding = config.tied_embedding;
  description.bias = config.bias;
  description.norm_epsilon = config.norm_epsilon;
  description.rotary_base = config.rotary_base;
  description.initializer_range = config.initializer_range;
  return description;
}

}  // namespace trivet
