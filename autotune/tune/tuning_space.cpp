#include "autotune/tune/tuning_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "engine/config/load.h"
#include "engine/config/refuse.h"
#include "engine/make_plan.h"

namespace trivet::autotune {
namespace {

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> all;
  std::vector<int64_t> large;  // number / d, descending
  for (int64_t d = 1; d <= number / d; ++d) {
    if (number % d != 0) continue;
    all.push_back(d);
    if (d != number / d) large.push_back(number / d);
  }
  all.insert(all.end(), large.rbegin(), large.rend());
  return all;
}

constexpr int64_t kMaxBatch = int64_t{1} << 62;

bool is_kept(const Config& config, const std::string& path) { return config::find_given_or_alias(config, path) != nullptr; }

struct Pipelining {
  ScheduleKind schedule;
  int64_t chunks;  // 0: the schedule's default
};

// The values of one choice, as part of a trial's name and as keys.
struct KeyChoice {
  std::string name;
  std::vector<std::string> overrides;
};

struct MeshSizes {
  int64_t data, context, tensor, pipeline;
  int64_t expert = 1;  // data and context ranks that share experts
  int64_t shards() const { return data * context; }
};

class Enumeration {
 public:
  Enumeration(const ConfigDocument& document, int world_size, ContextSearch context)
      : document_(document), config_(document.config()), world_size_(world_size), context_(context) {}

  TuningSpace run() {
    note_kept();
    for (const MeshSizes& mesh : meshes()) {
      const auto rests = combinations(mesh);
      for (const int stage : stages(mesh))
        for (const KeyChoice& rest : rests)
          for (const int64_t micro : microbatches(mesh)) add(mesh, stage, micro, rest);
    }
    return std::move(space_);
  }

 private:
  const AutotuningConfig& tuning() const { return config_.autotuning; }

  void note_kept() {
    const auto note = [&](const std::string& path) {
      if (const GivenKey* given = config::find_given_or_alias(config_, path)) space_.kept.push_back(path + " " + given->value);
    };
    for (const char* path :
         {"parallel.context", "parallel.expert", "parallel.tensor", "parallel.pipeline", "zero_optimization.stage"})
      note(path);
    if (config_.reproducible == Reproducible::Layout) note("train_micro_batch_size_per_gpu");
    if (tuning().fast) return;
    for (const char* path : {"pipeline.schedule", "pipeline.chunks", "activation_checkpointing.mode",
                             "zero_optimization.overlap_comm", "parallel.sequence_parallel"})
      note(path);
  }

  // All context ranks of the document, or those that divide the ranks and can share the model's sequences.
  std::vector<int64_t> context_sizes() {
    if (is_kept(config_, "parallel.context")) return kept_context_size();
    const bool in_leaves = config_.reproducible == Reproducible::Layout;
    std::vector<int64_t> sizes;
    for (const int64_t size : divisors(world_size_))
      if (size == 1 || (!in_leaves && !config_.model.token_drop.enabled && config_.model.sequence_length % size == 0 &&
                        model::ulysses_problem(config_.model, size, 1).empty()))
        sizes.push_back(size);
    if (sizes.size() == 1) return sizes;
    const std::string tokens = fmt::format("sequences have {} tokens", config_.model.sequence_length);
    const bool is_long = config_.model.sequence_length >= kLongSequence;
    if (context_ == ContextSearch::Always) {
      space_.context = "ranks are tried, because no config without them is accepted and fits";
    } else if (is_long) {
      space_.context = fmt::format("ranks are tried, because {}", tokens);
    } else {
      space_.context = fmt::format("ranks are not tried, because {}, less than {}", tokens, kLongSequence);
      return {1};
    }
    return sizes;
  }
  std::vector<int64_t> kept_context_size() const {
    if (world_size_ % config_.parallel.context == 0) return {config_.parallel.context};
    config::refuse(config_, "parallel.context",
                   fmt::format("{} does not divide the {} ranks; use a divisor, or start a different number of ranks",
                               config_.parallel.context, world_size_));
  }

  // The ranks that may share experts, among so many data and context ranks.
  std::vector<int64_t> expert_sizes(int64_t ranks) const {
    if (is_kept(config_, "parallel.expert")) return {config_.parallel.expert};
    const int64_t experts = config_.model.experts.count;
    if (experts == 0 || config_.device != DeviceChoice::Cpu || !config::shared_experts_problem(config_).empty()) return {1};
    return divisors(std::gcd(experts, ranks));
  }

  // Meshes with most data ranks come first, as in DeepSpeed, whose tuner has no other axis.
  std::vector<MeshSizes> meshes() {
    std::vector<MeshSizes> all;
    for (const int64_t context : context_sizes())
      for (const int64_t tensor : divisors(world_size_ / context))
        for (const int64_t pipeline : divisors(world_size_ / context / tensor)) {
          if (is_kept(config_, "parallel.tensor") && tensor != config_.parallel.tensor) continue;
          if (is_kept(config_, "parallel.pipeline") && pipeline != config_.parallel.pipeline) continue;
          if (tuning().mp_size > 0 && tensor * pipeline != tuning().mp_size) continue;
          const MeshSizes mesh{world_size_ / context / tensor / pipeline, context, tensor, pipeline};
          for (const int64_t expert : expert_sizes(mesh.shards())) {
            all.push_back(mesh);
            all.back().expert = expert;
          }
        }
    if (all.empty())
      config::refuse(
          config_, "autotuning.mp_size",
          fmt::format("no mesh of {} ranks has tensor x pipeline {} and the axes that the config gives; remove "
                      "autotuning.mp_size, parallel.tensor or parallel.pipeline, or start a different number of ranks",
                      world_size_, tuning().mp_size > 0 ? std::to_string(tuning().mp_size) : "as given"));
    return all;
  }

  // A single rank with the same weights has nothing to shard.
  std::vector<int> stages(const MeshSizes& mesh) const {
    if (is_kept(config_, "zero_optimization.stage")) return {config_.zero.stage};
    if (mesh.shards() == 1) return {0};
    return {0, 1, 2, 3};
  }

  // The sizes of a microbatch in samples: with train_batch_size, every divisor of a data rank's share; otherwise doublings.
  std::vector<int64_t> microbatches(const MeshSizes& mesh) const {
    if (config_.reproducible == Reproducible::Layout) return {config_.batch.micro_batch_size};
    const int64_t least = tuning().min_micro_batch_size, most = tuning().max_micro_batch_size;
    std::vector<int64_t> all;
    if (const int64_t batch = config_.batch.train_batch_size; batch > 0) {
      if (batch % mesh.data != 0) return {least};  // the batch equation refuses it, with the numbers
      for (const int64_t size : divisors(batch / mesh.data))
        if (size >= least && size <= most) all.push_back(size);
      return all;
    }
    const int64_t steps = accumulation_without_batch();
    // make_plan refuses larger microbatches.
    for (int64_t size = least; size <= std::min(most, kMaxValues) && size <= kMaxBatch / steps / mesh.data; size *= 2) {
      const int64_t train_batch = size * steps * mesh.data;
      if (train_batch < tuning().min_train_batch_size) continue;
      if (tuning().max_train_batch_size > 0 && train_batch > tuning().max_train_batch_size) break;
      all.push_back(size);
    }
    return all;
  }

  int64_t accumulation_without_batch() const { return std::max<int64_t>(config_.batch.gradient_accumulation_steps, 1); }

  int64_t accumulation(const MeshSizes& mesh, int64_t micro) const {
    if (config_.batch.train_batch_size == 0) return accumulation_without_batch();
    return std::max<int64_t>(config_.batch.train_batch_size / mesh.data / micro, 1);
  }

  static std::vector<KeyChoice> crossed(const std::vector<KeyChoice>& a, const std::vector<KeyChoice>& b) {
    std::vector<KeyChoice> all;
    for (const KeyChoice& first : a)
      for (const KeyChoice& second : b) {
        KeyChoice both{first.name + second.name, first.overrides};
        both.overrides.insert(both.overrides.end(), second.overrides.begin(), second.overrides.end());
        all.push_back(std::move(both));
      }
    return all;
  }

  // All combinations of what is neither mesh nor stage nor microbatch.
  std::vector<KeyChoice> combinations(const MeshSizes& mesh) const {
    std::vector<KeyChoice> all{{}};
    if (tuning().fast) return all;
    if (mesh.pipeline > 1) all = crossed(all, schedules(mesh));
    if (!is_kept(config_, "activation_checkpointing.mode"))
      all = crossed(all, {{"", {"activation_checkpointing.mode=none"}},
                          {"_selective", {"activation_checkpointing.mode=selective"}},
                          {"_full", {"activation_checkpointing.mode=full"}}});
    if (mesh.shards() > 1 && !is_kept(config_, "zero_optimization.overlap_comm"))
      all =
          crossed(all, {{"", {"zero_optimization.overlap_comm=false"}}, {"_overlap", {"zero_optimization.overlap_comm=true"}}});
    if (mesh.tensor > 1 && !is_kept(config_, "parallel.sequence_parallel") && config_.reproducible == Reproducible::Run)
      all = crossed(all, {{"", {"parallel.sequence_parallel=false"}}, {"_sp", {"parallel.sequence_parallel=true"}}});
    return all;
  }

  std::vector<KeyChoice> schedules(const MeshSizes& mesh) const {
    const int64_t blocks = model::block_count(config_.model);
    std::vector<Pipelining> kinds;
    for (const ScheduleKind schedule : searched_schedules()) {
      if (mesh.expert > 1 && delays_weight_gradients(schedule)) continue;  // make_plan refuses it
      if (!traits_of(schedule).any_chunks) {
        kinds.push_back({schedule, 0});
        continue;
      }
      for (int64_t chunks = 2; chunks * mesh.pipeline <= blocks && chunks <= 4; ++chunks) kinds.push_back({schedule, chunks});
    }
    const bool keeps_schedule = is_kept(config_, "pipeline.schedule"), keeps_chunks = is_kept(config_, "pipeline.chunks");
    std::vector<KeyChoice> all;
    for (const Pipelining& kind : kinds) {
      KeyChoice choice;
      if (keeps_schedule && (!config_.pipeline.schedule_file.empty() || kind.schedule != config_.pipeline.schedule)) continue;
      if (keeps_chunks && kind.chunks > 0 && kind.chunks != config_.pipeline.chunks) continue;
      choice.name = fmt::format("_{}", name_of(kind.schedule));
      if (!keeps_schedule) choice.overrides.push_back(fmt::format("pipeline.schedule={}", name_of(kind.schedule)));
      if (kind.chunks > 0) choice.name += std::to_string(kind.chunks);
      if (kind.chunks > 0 && !keeps_chunks) choice.overrides.push_back(fmt::format("pipeline.chunks={}", kind.chunks));
      all.push_back(std::move(choice));
    }
    if (all.empty()) all.emplace_back();  // a schedule from a file, or GPipe
    return all;
  }

  void add(const MeshSizes& mesh, int stage, int64_t micro, const KeyChoice& rest) {
    const int64_t steps = accumulation(mesh, micro);
    TrialConfig trial{.name = fmt::format("z{}_gas{}_tmbspg{}", stage, steps, micro)};
    trial.overrides = {fmt::format("train_micro_batch_size_per_gpu={}", micro),
                       fmt::format("gradient_accumulation_steps={}", steps)};
    const auto choose = [&](const std::string& path, int64_t value) {
      if (!is_kept(config_, path)) trial.overrides.push_back(fmt::format("{}={}", path, value));
    };
    choose("zero_optimization.stage", stage);
    if (mesh.context > 1) choose("parallel.context", mesh.context);
    if (mesh.expert > 1) choose("parallel.expert", mesh.expert);
    choose("parallel.tensor", mesh.tensor);
    choose("parallel.pipeline", mesh.pipeline);
    if (mesh.context > 1) trial.name += fmt::format("_cp{}", mesh.context);
    if (mesh.expert > 1) trial.name += fmt::format("_ep{}", mesh.expert);
    if (mesh.tensor > 1) trial.name += fmt::format("_tp{}", mesh.tensor);
    if (mesh.pipeline > 1) trial.name += fmt::format("_pp{}", mesh.pipeline);
    trial.name += rest.name;
    trial.overrides.insert(trial.overrides.end(), rest.overrides.begin(), rest.overrides.end());
    try {
      trial.config = document_.config(trial.overrides);
    } catch (const ConfigError& error) {
      return space_.count_refused(error.what(), trial.name);
    }
    space_.trials.push_back(std::move(trial));
  }

  const ConfigDocument& document_;
  Config config_;
  int64_t world_size_;
  ContextSearch context_;
  TuningSpace space_;
};

}  // namespace

void check_autotuning(const Config& config) {
  const AutotuningConfig& tuning = config.autotuning;
  const auto refuse = [&](const char* key, const std::string& what) {
    config::refuse(config, std::string("autotuning.") + key, what);
  };
  if (is_given(config, "autotuning.enabled") && !tuning.enabled)
    refuse("enabled", "false contradicts `trivet tune`; remove it or use true");
  const GivenKey* metric_path = config::find_given(config, "autotuning.metric_path");
  if (metric_path && metric_path->value != "null")
    refuse("metric_path",
           fmt::format("{} is not accepted: trials are measured here, not by a script that writes a file; remove "
                       "it, each trial's metrics are in {}/NAME/metrics.json",
                       metric_path->value, tuning.results_dir));
  if (tuning.start_profile_step > tuning.end_profile_step)
    refuse("start_profile_step", fmt::format("{0} is later than end_profile_step {1}; use at most {1}",
                                             tuning.start_profile_step, tuning.end_profile_step));
  if (tuning.min_micro_batch_size > tuning.max_micro_batch_size)
    refuse("min_train_micro_batch_size_per_gpu",
           fmt::format("{0} is more than max_train_micro_batch_size_per_gpu {1}; use at most {1}", tuning.min_micro_batch_size,
                       tuning.max_micro_batch_size));
  if (tuning.max_train_batch_size > 0 && tuning.min_train_batch_size > tuning.max_train_batch_size)
    refuse("min_train_batch_size", fmt::format("{0} is more than max_train_batch_size {1}; use at most {1}",
                                               tuning.min_train_batch_size, tuning.max_train_batch_size));
  if (const int64_t batch = config.batch.train_batch_size; batch > 0) {
    if (batch < tuning.min_train_batch_size)
      refuse("min_train_batch_size",
             fmt::format("{} contradicts train_batch_size {}, which is kept; remove one", tuning.min_train_batch_size, batch));
    if (tuning.max_train_batch_size > 0 && batch > tuning.max_train_batch_size)
      refuse("max_train_batch_size",
             fmt::format("{} contradicts train_batch_size {}, which is kept; remove one", tuning.max_train_batch_size, batch));
  }
  if (tuning.results_dir.empty() || tuning.exps_dir.empty())
    refuse(tuning.results_dir.empty() ? "results_dir" : "exps_dir", "is empty; name a folder");
}

void TuningSpace::count_refused(const std::string& reason, const std::string& name) {
  const auto same = std::ranges::find(refused, reason, &RefusedConfigs::reason);
  if (same == refused.end()) return refused.push_back({reason, 1, name});
  ++same->configs;
}

TuningSpace enumerate(const ConfigDocument& document, int world_size, ContextSearch context) {
  return Enumeration(document, world_size, context).run();
}

}  // namespace trivet::autotune
