#include "autotune/search_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "core/error.h"
#include "engine/config/context_kind.h"
#include "engine/config/load.h"
#include "engine/config/optimizer_traits.h"
#include "engine/config/refuse.h"
#include "engine/make_plan.h"

namespace trivet::autotune {
namespace {

std::vector<int64_t> divisors(int64_t number, int64_t most) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d <= std::min(number, most); ++d)
    if (number % d == 0) all.push_back(d);
  return all;
}

struct PipelineKind {
  ScheduleKind schedule;
  int64_t chunks;
};

// The kinds of pipelines for this many blocks and pipeline ranks.
std::vector<PipelineKind> pipelines(int64_t pipeline, int64_t blocks) {
  if (pipeline == 1) return {{ScheduleKind::OneForwardOneBackward, 1}};
  std::vector<PipelineKind> kinds;
  for (const ScheduleKind schedule : searched_schedules()) {
    const ScheduleTraits traits = traits_of(schedule);
    const int64_t most = traits.any_chunks ? 16 : traits.chunks;
    for (int64_t chunks = traits.chunks; chunks * pipeline <= blocks && chunks <= most; ++chunks)
      kinds.push_back({schedule, chunks});
  }
  return kinds;
}

bool shares(const model::Model& model, const SearchSpace& space, int64_t tensor) {
  try {
    model::check_tensor_size(model, static_cast<int>(tensor));
    if (space.fixed_sums) model::check_fixed_sums(model, static_cast<int>(tensor));
  } catch (const ConfigError&) {
    return false;
  }
  return true;
}

// Sizes that divide a node; a group of any other size could span two nodes.
std::vector<int64_t> tensor_sizes(const model::Model& model, const Cluster& cluster, const SearchSpace& space) {
  std::vector<int64_t> sizes;
  for (const int64_t size :
       divisors(cluster.devices_per_node, space.most_tensor > 0 ? space.most_tensor : cluster.devices_per_node))
    if (shares(model, space, size)) sizes.push_back(size);
  return sizes;
}

// As the config and make_plan check it for ranks that exchange heads.
bool shares_sequences(const model::Model& model, int64_t context, int64_t tensor) {
  return context == 1 ||
         (model.description && model.sample.is_sequence() && model.sample.input[0] % context == 0 &&
          !model.description->token_drop.enabled && model::ulysses_problem(*model.description, context, tensor).empty());
}

// Ranks that share one sequence.
struct Sharers {
  int64_t tensor = 1, context = 1;
  int64_t ranks() const { return tensor * context; }
};
std::vector<Sharers> sharers(const model::Model& model, const Cluster& cluster, const SearchSpace& space) {
  const int64_t most = space.context == ContextSearch::Always && model.description ? model.description->heads : 1;
  std::vector<Sharers> all;
  for (const int64_t tensor : tensor_sizes(model, cluster, space))
    for (int64_t context = 1; context <= most; ++context)
      if (shares_sequences(model, context, tensor)) all.push_back({tensor, context});
  return all;
}

// Checks whether some layout divides this number of devices.
bool divides(const std::vector<Sharers>& sharers, int64_t blocks, const SearchSpace& space, int64_t devices) {
  for (const Sharers& sharing : sharers) {
    const int64_t groups = devices % sharing.ranks() == 0 ? devices / sharing.ranks() : 0;
    for (int64_t pipeline = 1; pipeline <= std::min(blocks, groups); ++pipeline)
      if (groups % pipeline == 0 && space.train_batch_size % (groups / pipeline) == 0) return true;
  }
  return false;
}

}  // namespace

std::vector<ScheduleKind> searched_schedules() {
  std::vector<ScheduleKind> kinds;
  for (const bool any_chunks : {false, true})
    for (const ScheduleKind kind : all_values<ScheduleKind>())
      if (kind != ScheduleKind::GPipe && traits_of(kind).any_chunks == any_chunks) kinds.push_back(kind);
  return kinds;
}

std::vector<int64_t> expert_sizes(const model::Model& model, const SearchSpace& space, int64_t ranks) {
  const int64_t experts = model.description ? model.description->experts.count : 0;
  if (experts == 0 || !space.expert_problem.empty()) return {1};
  return divisors(std::gcd(experts, ranks), ranks);
}

bool delays_weight_gradients(ScheduleKind kind) { return traits_of(kind).sends_after_input; }

SearchSpace search_space(const Config& config, int64_t devices) {
  if (config.batch.train_batch_size == 0)
    throw ConfigError(config.source +
                      ": train_batch_size: --search needs it, because a layout must not change what is trained; give it");
  check_described(config);
  const bool both = config.parallel.context > 1 && config.parallel.context_kind == ContextKind::UlyssesRing;
  if (const ContextKind kind = both ? ContextKind::UlyssesRing : config::context_kind(config); kind != ContextKind::Ulysses)
    config::refuse(
        config, config.parallel.context_kind == kind ? "parallel.context_kind" : "parallel.context",
        fmt::format("{} context ranks with \"{}\" are not searched, only those that exchange tokens for heads; use 1 "
                    "context rank, or leave --search out",
                    config.parallel.context, name_of(kind)));
  const bool device_given = is_given(config, "device");
  std::vector<std::string> other_names;
  std::ranges::copy_if(kOtherNames, std::back_inserter(other_names),
                       [&](const char* name) { return config::find_given(config, name) != nullptr; });
  const OptimizerTraits optimizer = traits_of(config.optimizer.type);
  const bool fixed_sums = config.reproducible == Reproducible::Layout;
  Config on_gpus = config;
  on_gpus.device = DeviceChoice::Cuda;
  return {.devices = devices,
          .train_batch_size = config.batch.train_batch_size,
          .most_tensor = optimizer.whole_matrices ? 1 : 0,
          .sequence_parallel = !fixed_sums,
          .context = fixed_sums                    ? ContextSearch::Never
                     : config.parallel.context > 1 ? ContextSearch::Always
                                                   : ContextSearch::WhereItHelps,
          .expert_problem = config::shared_experts_problem(config),
          .expert_problem_on_gpus = device_given ? "" : config::shared_experts_problem(on_gpus),
          .fixed_sums = fixed_sums,
          // The cost model does not describe optimizers that visit their states several times (docs/offload.md). On a CPU, host
          // memory is the device's memory.
          .offload = optimizer.visits_once && (config.device != DeviceChoice::Cpu || !device_given),
          .sets_device = !device_given,
          .other_names = other_names,
          .types = state_types(config)};
}

void for_each_layout(const model::Model& model, const Cluster& cluster, const SearchSpace& space,
                     const std::function<void(const Layout&)>& use) {
  const auto blocks = static_cast<int64_t>(model.layers.size());
  for (const auto& [tensor, context] : sharers(model, cluster, space)) {
    if (space.devices % (tensor * context) != 0) continue;
    const bool splits_tokens = space.sequence_parallel && tensor > 1 &&
                               model::token_split_problem(model, static_cast<int>(tensor)).empty() &&
                               (context == 1 || model.sample.input[0] % (tensor * context) == 0);
    for (const int64_t pipeline : divisors(space.devices / (tensor * context), blocks)) {
      const int64_t data = space.devices / (tensor * context) / pipeline;
      if (space.train_batch_size % data != 0) continue;
      for (const int64_t microbatch : divisors(space.train_batch_size / data, space.most_microbatch)) {
        if (space.train_batch_size / data / microbatch > kMaxMicrobatches) continue;  // make_plan refuses it
        if (microbatch > kMaxValues / std::max(model.sample.inputs_of(1).elements(), model.sample.targets_of(1).elements()))
          continue;
        for (const int64_t expert : expert_sizes(model, space, data * context))
          for (const PipelineKind& kind : pipelines(pipeline, blocks)) {
            if (expert > 1 && delays_weight_gradients(kind.schedule)) continue;  // make_plan refuses it
            for (const Recompute recompute : {Recompute::None, Recompute::Selective, Recompute::Full})
              for (const int stage : space.zero_stages) {
                if (data * context == 1 && stage > 0) continue;
                use(Layout{.data = data,
                           .context = context,
                           .tensor = tensor,
                           .pipeline = pipeline,
                           .chunks = kind.chunks,
                           .expert = expert,
                           .schedule = kind.schedule,
                           .zero_stage = stage,
                           .microbatch = microbatch,
                           .microbatches = space.train_batch_size / data / microbatch,
                           .recompute = recompute,
                           .sequence_parallel = splits_tokens});
              }
          }
      }
    }
  }
}

void for_each_variant(const StepModel& steps, const Cluster& cluster, const SearchSpace& space, const Layout& layout,
                      const std::function<void(const Layout&, const StepBytes&)>& use) {
  const bool can_offload = space.offload && cluster.can_offload() && (layout.zero_stage >= 1 || layout.shards() == 1);
  for (const bool offload : {false, true})
    for (const bool prefetch : {true, false}) {
      if ((offload && !can_offload) || (!prefetch && layout.zero_stage < 3)) continue;
      Layout variant = layout;
      variant.offload_optimizer = offload, variant.prefetch = prefetch;
      if (offload && layout.shards() == 1) variant.zero_stage = 1;  // offload requires stage 1, even on one rank
      const StepBytes bytes = steps.bytes(variant);
      use(variant, bytes);
      if (fits(bytes, cluster)) return;
    }
}

bool is_long(const model::Model& model) { return model.sample.is_sequence() && model.sample.input[0] >= kLongSequence; }

bool can_share_sequences(const model::Model& model) {
  for (int64_t ranks = 2; model.description && ranks <= model.description->heads; ++ranks)
    if (shares_sequences(model, ranks, 1)) return true;
  return false;
}

bool has_layouts(const model::Model& model, const Cluster& cluster, const SearchSpace& space) {
  return divides(sharers(model, cluster, space), static_cast<int64_t>(model.layers.size()), space, space.devices);
}

void check_divides(const model::Model& model, const Cluster& cluster, const SearchSpace& space) {
  if (has_layouts(model, cluster, space)) return;
  const std::vector<Sharers> all = sharers(model, cluster, space);
  const auto blocks = static_cast<int64_t>(model.layers.size());
  int64_t below = space.devices - 1, above = space.devices + 1;
  while (below > 1 && !divides(all, blocks, space, below)) --below;
  // No larger number divides.
  const int64_t most = blocks * std::ranges::max(all, {}, &Sharers::ranks).ranks() * space.train_batch_size;
  while (above <= most && !divides(all, blocks, space, above)) ++above;
  throw ConfigError(fmt::format(
      "search: no layout divides {} devices among {} blocks and a batch of {}: the data axis must divide train_batch_size, "
      "the pipeline cannot have more ranks than blocks; use {}{} devices, or another train_batch_size",
      space.devices, blocks, space.train_batch_size, below, above <= most ? fmt::format(" or {}", above) : ""));
}

}  // namespace trivet::autotune
