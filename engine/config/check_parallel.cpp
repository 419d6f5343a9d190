// Refuses layouts that the config alone shows to be impossible.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/enum_names.h"
#include "engine/config/config.h"
#include "engine/config/context_kind.h"
#include "engine/config/optimizer_traits.h"
#include "engine/config/refuse.h"
#include "model/family.h"
#include "model/lora.h"

namespace trivet::config {
namespace {

// Describes why the model cannot be split over this many tensor ranks; empty if it can.
std::string tensor_problem(const Config& config, int64_t ranks) {
  const model::Description model = model::with_defaults(config.model);
  const bool fixed_sums = config.reproducible == Reproducible::Layout;
  if (std::string problem = model::tensor_problem(config.model, ranks, fixed_sums); !problem.empty()) return problem;
  if (config.parallel.sequence_parallel && model.sequence_length % ranks != 0)
    return fmt::format("does not divide model.sequence_length {}, as parallel.sequence_parallel requires",
                       model.sequence_length);
  return "";
}

// "1, 2 or 4"
std::string accepted_tensor_sizes(const Config& config) {
  std::vector<int64_t> sizes;
  for (int64_t ranks = 1; ranks <= config.model.heads; ++ranks)
    if (tensor_problem(config, ranks).empty()) sizes.push_back(ranks);
  std::string text = std::to_string(sizes.front());
  for (size_t i = 1; i < sizes.size(); ++i) text += fmt::format("{}{}", i + 1 == sizes.size() ? " or " : ", ", sizes[i]);
  return text;
}

void check_tensor(const Config& config) {
  const int64_t ranks = config.parallel.tensor;
  const std::string problem = tensor_problem(config, ranks);
  if (!problem.empty())
    refuse(config, "parallel.tensor", fmt::format("{} {}; use {}", ranks, problem, accepted_tensor_sizes(config)));
}

void check_sequence_parallel(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.tensor == 1 || !parallel.sequence_parallel || config.reproducible != Reproducible::Layout) return;
  const int64_t ranks = parallel.tensor * parallel.context;
  const auto refuse_it = [&](const std::string& what) { refuse(config, "parallel.sequence_parallel", "true " + what); };
  if (parallel.context_grain % ranks != 0)
    refuse_it(fmt::format(
        "needs a parallel.context_grain that {} divides with reproducible \"layout\", so that gradients of norms are sums "
        "over fixed parts of a sequence; set that, or use false, or reproducible \"run\"",
        ranks == parallel.tensor ? fmt::format("parallel.tensor {}", ranks)
                                 : fmt::format("parallel.tensor x parallel.context {}", ranks)));
  if (config.model.qk_norm)
    refuse_it(
        "is not accepted with model.qk_norm and reproducible \"layout\": its gains sum over heads of tensor ranks, too; use "
        "false, or reproducible \"run\"");
  if (config.model.lora.enabled())
    refuse_it("is not accepted with a LoRA and reproducible \"layout\"; use false, or reproducible \"run\"");
}

// Leaves of several tensor ranks would be in one slice, and their sums are a tree.
void check_mlp_slices(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  if (config.mlp_slice_tokens == 0) return;
  if (config.model.experts.enabled())
    refuse(config, "activation_checkpointing.mlp_slice_tokens",
           fmt::format("{} is not accepted with model.experts, which work on all tokens at a time in this version; use 0",
                       config.mlp_slice_tokens));
  if (config.reproducible != Reproducible::Layout) return;
  if (parallel.tensor > 1 && parallel.sequence_parallel)
    refuse(config, "activation_checkpointing.mlp_slice_tokens",
           fmt::format("{} is not accepted with parallel.sequence_parallel and reproducible \"layout\": a slice would have "
                       "tokens from several places of a sequence, whose gradients are summed in another order; use 0, or "
                       "parallel.sequence_parallel false, or reproducible \"run\"",
                       config.mlp_slice_tokens));
}

void check_ring(const Config& config) {
  const ContextKind kind = config.parallel.context_kind;
  if (kind != ContextKind::Ring && kind != ContextKind::UlyssesRing) return;
  const auto refuse_ring = [&](const std::string& what) {
    refuse(config, "parallel.context_kind",
           fmt::format("\"{}\" is not accepted with {}; use \"ulysses\" or \"gather\"", name_of(kind), what));
  };
  if (config.reproducible == Reproducible::Layout)
    refuse_ring("reproducible \"layout\", because results over the keys of the ranks are merged in another order on each");
  if (config.model.attention_window > 0) refuse_ring("model.attention_window, because windows begin within the keys of a rank");
  if (config.model.isolated_documents)
    refuse_ring("data.packing \"isolated\", because documents begin within the keys of a rank");
}

bool chooses_exchanging_ranks(const Config& config) {
  return config.parallel.context_kind == ContextKind::UlyssesRing && config.parallel.context_ulysses > 0;
}

// Checks what no number of context ranks can do in this version.
void check_context(const Config& config) {
  if (config.parallel.context == 1) return;
  check_ring(config);
  if (chooses_exchanging_ranks(config) && config.parallel.context % config.parallel.context_ulysses != 0)
    refuse(config, "parallel.context_ulysses",
           fmt::format("{} does not divide parallel.context {}; use a divisor of that, or 0 for the largest that heads allow",
                       config.parallel.context_ulysses, config.parallel.context));
  if (config.model.token_drop.enabled)
    refuse(
        config, "parallel.context",
        fmt::format("{} is not accepted with data_efficiency.data_routing.random_ltd.enabled true, with which a rank needs all "
                    "tokens to choose from; use 1, or false for that",
                    config.parallel.context));
}

// Checks sums over tokens whose bits do not depend on the number of context ranks.
void check_context_grain(const Config& config) {
  if (config.reproducible != Reproducible::Layout) return;
  const int64_t grain = config.parallel.context_grain, ranks = config.parallel.context;
  const auto refuse_grain = [&](const std::string& what) {
    refuse(config, "parallel.context_grain", fmt::format("{} {}", grain, what));
  };
  if (!std::has_single_bit(static_cast<uint64_t>(grain))) refuse_grain("is not a power of two; use 1, 2, 4, 8, 16, 32 or 64");
  if (grain % ranks != 0) {
    const bool can_be_grain = std::has_single_bit(static_cast<uint64_t>(ranks)) && ranks <= kMaxContextGrain;
    refuse(config, "parallel.context",
           fmt::format("{} does not divide parallel.context_grain {}, which reproducible \"layout\" requires to add sums over "
                       "tokens in a fixed order; use {}another number of ranks, or reproducible \"run\"",
                       ranks, grain, can_be_grain ? fmt::format("{} for that, ", ranks) : ""));
  }
  if (grain == 1) return;
  const double scale = config.model.lora.rank > 0 ? model::adapter_scale(config.model.lora) : 1;
  if (int exponent = 0; std::frexp(scale, &exponent) != 0.5)
    refuse_grain(
        fmt::format("is not accepted with a LoRA whose alpha / r is {}, by which sums over tokens are scaled: only a "
                    "power of two does not round; use another alpha, 1 for this, or reproducible \"run\"",
                    scale));
}

// Describes why this many ranks cannot share the sequences of the model; empty if they can.
std::string context_problem(const Config& config, int64_t ranks) {
  const model::Description model = model::with_defaults(config.model);
  const int64_t tensor = config.parallel.tensor, of_tokens = ranks * (config.parallel.sequence_parallel ? tensor : 1);
  if (model::family_of(model.type).reads_images) return "needs a model that reads sequences of tokens";
  if (model.sequence_length % of_tokens != 0)
    return fmt::format("is not accepted: {}{} does not divide model.sequence_length {}", ranks,
                       tensor == 1 ? "" : fmt::format(" (with parallel.tensor {}: {})", tensor, of_tokens),
                       model.sequence_length);
  if (config.parallel.context_kind == ContextKind::Ulysses)
    if (std::string problem = ulysses_problem(config, ranks); !problem.empty())
      return fmt::format("is not accepted with parallel.context_kind \"ulysses\": {}; \"gather\" accepts it", problem);
  return "";
}

void check_exchanging_ranks(const Config& config) {
  if (!chooses_exchanging_ranks(config)) return;
  const int64_t ranks = config.parallel.context_ulysses;
  if (const std::string problem = ulysses_problem(config, ranks); !problem.empty())
    refuse(config, "parallel.context_ulysses",
           fmt::format("{} is not accepted: {}; use 0, for the largest that heads allow, or a smaller divisor of "
                       "parallel.context",
                       ranks, problem));
}

void check_context_of_model(const Config& config) {
  const int64_t ranks = config.parallel.context, grain = config.parallel.context_grain;
  const model::Description model = model::with_defaults(config.model);
  if (config.fixes_token_sums() && (model::family_of(model.type).reads_images || model.sequence_length % grain != 0))
    refuse(config, "parallel.context_grain",
           model::family_of(model.type).reads_images
               ? fmt::format("{} needs a model that reads sequences of tokens; use 1", grain)
               : fmt::format("{} does not divide model.sequence_length {}; use {}", grain, model.sequence_length,
                             model.sequence_length & -model.sequence_length));
  if (ranks == 1) return;
  const std::string problem = context_problem(config, ranks);
  if (problem.empty()) return check_exchanging_ranks(config);
  std::string accepted = "1";
  const bool in_leaves = config.reproducible == Reproducible::Layout;
  for (int64_t size = 2; size <= std::max(config.model.heads, kMaxContextGrain); ++size)
    if (context_problem(config, size).empty() && (!in_leaves || grain % size == 0)) accepted += fmt::format(", {}", size);
  refuse(config, "parallel.context",
         fmt::format("{} {}; use {}{}", ranks, problem, accepted == "1" ? "" : "one of ", accepted));
}

void check_optimizer(const Config& config) {
  if (config.parallel.tensor > 1 && traits_of(config.optimizer.type).whole_matrices)
    refuse(config, "parallel.tensor",
           fmt::format("{} is not accepted with optimizer {}, which needs whole matrices; use 1", config.parallel.tensor,
                       name_of(config.optimizer.type)));
}

void check_chunks(const Config& config) {
  const PipelineConfig& pipeline = config.pipeline;
  const ScheduleTraits traits = traits_of(pipeline.schedule);
  if (!pipeline.schedule_file.empty() || traits.any_chunks || pipeline.chunks == 0) return;
  if (pipeline.chunks != traits.chunks)
    refuse(config, "pipeline.chunks",
           fmt::format("{} is not accepted with schedule \"{}\", which has {} per rank; use {} or schedule \"interleaved\"",
                       pipeline.chunks, name_of(pipeline.schedule),
                       traits.chunks == 1 ? "one stage" : fmt::format("{} stages", traits.chunks), traits.chunks));
}

void check_stages(const Config& config) {
  const int64_t blocks = model::block_count(config.model), ranks = config.parallel.pipeline;
  const int64_t chunks = std::max<int64_t>(chunks_of(config.pipeline), 1);  // a schedule file may have more
  if (ranks <= blocks / chunks) return;
  const std::string have = fmt::format("the model has {} blocks ({})", blocks, model::blocks_in_words(config.model));
  if (blocks < chunks)
    refuse(config, "pipeline.chunks", fmt::format("{} stages on each rank, but {}; use at most {}", chunks, have, blocks));
  const std::string of_a_rank = chunks == 1 ? "" : fmt::format(" with {} stages each", chunks);
  const bool fewer_chunks = chunks > 1 && traits_of(config.pipeline.schedule).any_chunks;
  refuse(config, "parallel.pipeline",
         fmt::format("{} ranks{}, but {}; use at most {},{} or more layers", ranks, of_a_rank, have, blocks / chunks,
                     fewer_chunks ? " fewer chunks" : ""));
}

void check_rank_order(const Config& config) {
  const std::vector<Axis>& order = config.parallel.rank_order;
  const auto check = [&](Axis axis, int64_t size) {
    const auto times = std::count(order.begin(), order.end(), axis);
    if (times > 1)
      refuse(config, "parallel.rank_order",
             fmt::format("\"{}\" is listed {} times; list each axis once", name_of(axis), times));
    if (times == 0 && size != 1)
      refuse(config, "parallel.rank_order",
             fmt::format("\"{}\" is missing, but it has {} ranks; list every axis with more than one rank, and \"data\"",
                         name_of(axis), size == 0 ? "the remaining" : std::to_string(size)));
  };
  check(Axis::Pipeline, config.parallel.pipeline);
  check(Axis::Data, 0);  // not known yet
  check(Axis::Context, config.parallel.context);
  check(Axis::Tensor, config.parallel.tensor);
}

// Checks only how the two sizes fit each other; the number of ranks is known only to the plan (engine/sharing.h).
void check_shard_sizes(const Config& config) {
  const int64_t shards = config.zero.mics_shard_size, secondary = config.zero.zero_hpz_partition_size;
  if (config.zero.stage == 3 && shards > 0 && shards % secondary != 0)
    refuse(config, "zero_optimization.zero_hpz_partition_size",
           fmt::format("{} does not divide zero_optimization.mics_shard_size {}; use a divisor of it", secondary, shards));
}

void check_quantized(const Config& config) {
  const bool layout_mode = config.reproducible == Reproducible::Layout;
  const ZeroConfig& zero = config.zero;
  if (zero.stage > 0 && zero.zero_quantized_gradients) {
    if (layout_mode)
      refuse(config, "zero_optimization.zero_quantized_gradients",
             "true is not accepted with reproducible \"layout\": how often a gradient is rounded depends on the number of "
             "ranks; use false, or "
             "reproducible \"run\"");
    if (!zero.reduce_scatter)
      refuse(config, "zero_optimization.zero_quantized_gradients",
             "true contradicts zero_optimization.reduce_scatter false; use true for both, or false for this");
  }
  const bool weights = zero.zero_quantized_weights || zero.zero_quantized_nontrainable_weights;
  if (zero.stage == 3 && weights && layout_mode && config.parallel.tensor > 1)
    refuse(
        config,
        zero.zero_quantized_weights ? "zero_optimization.zero_quantized_weights"
                                    : "zero_optimization.zero_quantized_nontrainable_weights",
        "true is not accepted with reproducible \"layout\" and parallel.tensor above 1: each tensor rank would round its part "
        "in other blocks; use false, parallel.tensor 1, or reproducible \"run\"");
}

void check_experts(const Config& config) {
  const int64_t ranks = config.parallel.expert, context = config.parallel.context;
  if (ranks == 1) return;
  if (const std::string problem = shared_experts_problem(config); !problem.empty())
    refuse(config, "parallel.expert", fmt::format("{} is not accepted with {}; use 1", ranks, problem));
  if (config.reproducible == Reproducible::Layout && ranks % context != 0 && context % ranks != 0)
    refuse(config, "parallel.expert",
           fmt::format("{} is neither a multiple nor a divisor of parallel.context {}, as reproducible \"layout\" requires to "
                       "add sums over tokens in a fixed order; use one of these",
                       ranks, context));
}

// A model that the config describes: its experts are divided evenly.
void check_experts_of_model(const Config& config) {
  const int64_t ranks = config.parallel.expert, experts = config.model.experts.count;
  if (ranks == 1) return;
  if (experts == 0)
    refuse(config, "parallel.expert",
           fmt::format("{} is not accepted: the model has no experts (model.experts.count); use 1", ranks));
  if (experts % ranks != 0)
    refuse(config, "parallel.expert", fmt::format("{} does not divide model.experts.count {}; use a divisor", ranks, experts));
}

}  // namespace

std::string shared_experts_problem(const Config& config) {
  const bool layout_mode = config.reproducible == Reproducible::Layout;
  if (config.device == DeviceChoice::Cuda) return "device \"cuda\": GPUs do not exchange tokens of experts yet";
  const std::vector<Axis>& order = config.parallel.rank_order;
  if (layout_mode && config.parallel.context > 1 &&
      std::ranges::find(order, Axis::Context) < std::ranges::find(order, Axis::Data))
    return "reproducible \"layout\" and a parallel.rank_order with \"context\" before \"data\", where ranks that share experts "
           "are not those that share sequences";
  if (config.audit.every_steps > 0) return "audit.every_steps, which audits ranks with the same weights";
  if (config.zero.stage > 0 && config.zero.mics_shard_size > 0) return "zero_optimization.mics_shard_size";
  if (config.zero.stage == 3 && config.zero.zero_hpz_partition_size > 1) return "zero_optimization.zero_hpz_partition_size";
  if (config.zero.stage > 0 && config.zero.zero_quantized_gradients) return "zero_optimization.zero_quantized_gradients";
  if (config.zero.stage == 3 && layout_mode &&
      (config.zero.zero_quantized_weights || config.zero.zero_quantized_nontrainable_weights))
    return "reproducible \"layout\" and quantized weights, of which ranks would round experts in other blocks";
  return "";
}

void check_parallel(const Config& config) {
  check_experts(config);
  check_shard_sizes(config);
  check_quantized(config);
  check_sequence_parallel(config);
  check_mlp_slices(config);
  check_context(config);
  check_context_grain(config);
  check_optimizer(config);
  check_chunks(config);
  check_rank_order(config);
}

void check_layout_of_model(const Config& config) {
  check_tensor(config);
  check_experts_of_model(config);
  check_context_of_model(config);
  check_stages(config);
}

}  // namespace trivet::config
