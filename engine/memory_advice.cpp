#include "engine/memory_advice.h"

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "engine/make_plan.h"

namespace trivet {
namespace {

// A change of any config; a superseded one is a part of the next. `apply` returns whether it has changed something.
struct Change {
  std::string text;
  std::function<bool(Config&)> apply;
  bool superseded = false;
};

std::string gibibytes(int64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (int64_t{1} << 30)); }

// Keeps the global batch, in microbatches of half the size.
bool halve_microbatch(const Plan& plan, Config& config) {
  const int64_t micro = config.batch.micro_batch_size > 0 ? config.batch.micro_batch_size : plan.batch.micro_batch_size;
  if (micro % 2 != 0) return false;
  config.batch = {.train_batch_size = plan.batch.train_batch_size, .micro_batch_size = micro / 2};
  return true;
}

std::string microbatch_text(const Config& config) {
  return fmt::format("train_micro_batch_size_per_gpu {}", config.batch.micro_batch_size);
}

Change set_stage(int stage) {
  return {.text = fmt::format("zero_optimization.stage {}", stage),
          .apply = [stage](Config& config) { return std::exchange(config.zero.stage, stage) < stage; },
          .superseded = stage < 3};
}

bool recompute_all(Config& config) { return std::exchange(config.recompute, Recompute::Full) != Recompute::Full; }

// A slice of as many tokens as the hidden size has elements is large enough for fast products.
Change cut_mlps(int64_t tokens) {
  return {.text = fmt::format("activation_checkpointing.mlp_slice_tokens {}", tokens), .apply = [tokens](Config& config) {
            if (config.mlp_slice_tokens != 0) return false;
            config.mlp_slice_tokens = tokens;
            return true;
          }};
}

// All but smaller microbatches.
std::vector<Change> candidates(const Plan& plan) {
  std::vector<Change> changes;
  const Config& config = plan.config;
  if (plan.shards(Sharing::Dense) > 1)
    for (int stage = config.zero.stage + 1; stage <= 3; ++stage) changes.push_back(set_stage(stage));
  if (plan.sharding().replicas > 1 || plan.sharding().secondary > 1)
    changes.push_back({"zero_optimization.mics_shard_size -1 and zero_hpz_partition_size 1", [](Config& changed) {
                         changed.zero.mics_shard_size = -1;
                         changed.zero.zero_hpz_partition_size = 1;
                         return true;
                       }});
  if (config.model.sequence_length / plan.mesh.size(Axis::Context) >= 4 * config.model.hidden_size)
    changes.push_back(cut_mlps(config.model.hidden_size));
  const bool moves_inputs = config.compute_device() == Device::Cuda;
  changes.push_back({"activation_checkpointing.mode \"full\"", recompute_all, moves_inputs});
  if (moves_inputs)
    changes.push_back({"activation_checkpointing.mode \"full\" and cpu_checkpointing true", [](Config& changed) {
                         const bool moved_before = std::exchange(changed.cpu_checkpointing, true);
                         return recompute_all(changed) || !moved_before;
                       }});
  return changes;
}

class Advice {
 public:
  Advice(const Plan& plan, const model::Model& model, int64_t bytes)
      : plan_(plan), model_(model), bytes_(bytes), least_(plan.heaviest().memory.total()) {}

  void consider(const std::string& text, const Config& config) {
    const std::optional<int64_t> needs = needs_of(config);
    if (!needs) return;
    if (*needs <= bytes_) fits_ += fmt::format("{}{} ({})", fits_.empty() ? "" : "; or ", text, gibibytes(*needs));
    if (*needs < least_) least_ = *needs, smallest_ = text;
  }

  // Considers together all changes that save something when those before them are made, with the smallest microbatch.
  void consider_together(const std::vector<Change>& changes) {
    Config all = plan_.config;
    int64_t least = plan_.heaviest().memory.total();
    std::string text;
    const auto also = [&](const std::string& change) { text += (text.empty() ? "" : ", ") + change; };
    for (const Change& change : changes) {
      Config more = all;
      if (change.superseded || !change.apply(more)) continue;
      const std::optional<int64_t> needs = needs_of(more);
      if (!needs || *needs >= least) continue;
      all = more, least = *needs;
      also(change.text);
    }
    while (halve_microbatch(plan_, all)) {
    }
    if (all.batch.micro_batch_size > 0) also(microbatch_text(all));
    if (!text.empty()) consider(text, all);
  }

  std::string text() const {
    if (!fits_.empty()) return "what would fit: " + fits_;
    const std::string more = "use more ranks, a smaller model or offload";
    if (smallest_.empty()) return more;
    return fmt::format("the smallest config that was found needs {} with {}; {}", gibibytes(least_), smallest_, more);
  }

 private:
  // Nothing if the config is refused.
  std::optional<int64_t> needs_of(const Config& config) const {
    try {
      return make_plan(config, model_, plan_.mesh.size()).heaviest().memory.total();
    } catch (const ConfigError&) {
      return {};
    }
  }

  const Plan& plan_;
  const model::Model& model_;
  int64_t bytes_, least_;
  std::string fits_, smallest_;
};

}  // namespace

std::string to_words(const MemoryBytes& memory) {
  std::string text;
  for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
    text +=
        fmt::format("{}{} {:.2f}", text.empty() ? "" : " + ", name, static_cast<double>(memory[category]) / (int64_t{1} << 30));
  return text + " = " + gibibytes(memory.total());
}

std::string what_would_fit(const Plan& plan, const model::Model& model, int64_t bytes) {
  Advice advice(plan, model, bytes);
  const std::vector<Change> changes = candidates(plan);
  for (const Change& change : changes)
    if (Config config = plan.config; change.apply(config)) advice.consider(change.text, config);
  for (Config config = plan.config; halve_microbatch(plan, config);) advice.consider(microbatch_text(config), config);
  advice.consider_together(changes);
  return advice.text();
}

void check_fits(const Plan& plan, const model::Model& model, int rank, int64_t free_bytes, const std::string& device) {
  const MemoryBytes& memory = plan.rank(rank).memory;
  if (memory.total() <= free_bytes) return;
  throw OutOfMemoryError(fmt::format("rank {}: the plan does not fit into {}, of which {} are free: {}; {}", rank, device,
                                     gibibytes(free_bytes), to_words(memory), what_would_fit(plan, model, free_bytes)));
}

}  // namespace trivet
