#include "engine/memory_advice.h"

#include <fmt/format.h>

#include <vector>

#include "core/error.h"
#include "engine/make_plan.h"

namespace trivet {
namespace {

struct Change {
  std::string text;
  Config config;
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

std::vector<Change> candidates(const Plan& plan) {
  std::vector<Change> changes;
  Config all = plan.config;
  std::string all_text;
  const auto also = [&](const std::string& text) { all_text += (all_text.empty() ? "" : ", ") + text; };
  if (plan.config.zero.stage < 3 && plan.shards(Sharing::Dense) > 1)
    for (int stage = plan.config.zero.stage + 1; stage <= 3; ++stage) {
      Config config = plan.config;
      config.zero.stage = stage;
      changes.push_back({fmt::format("zero_optimization.stage {}", stage), config});
      all.zero.stage = stage;
      if (stage == 3) also(changes.back().text);
    }
  if (plan.sharding().replicas > 1 || plan.sharding().secondary > 1) {
    Config config = plan.config;
    all.zero.mics_shard_size = config.zero.mics_shard_size = -1;
    all.zero.zero_hpz_partition_size = config.zero.zero_hpz_partition_size = 1;
    changes.push_back({"zero_optimization.mics_shard_size -1 and zero_hpz_partition_size 1", config});
    also(changes.back().text);
  }
  if (plan.config.recompute != Recompute::Full) {
    Config config = plan.config;
    config.recompute = Recompute::Full;
    changes.push_back({"activation_checkpointing.mode \"full\"", config});
    all.recompute = Recompute::Full;
    also(changes.back().text);
  }
  for (Config config = plan.config; halve_microbatch(plan, config);) changes.push_back({microbatch_text(config), config});
  while (halve_microbatch(plan, all)) {
  }
  if (all.batch.micro_batch_size > 0) also(microbatch_text(all));
  changes.push_back({all_text, all});
  return changes;
}

}  // namespace

std::string to_words(const MemoryBytes& memory) {
  std::string text;
  for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
    text +=
        fmt::format("{}{} {:.2f}", text.empty() ? "" : " + ", name, static_cast<double>(memory[category]) / (int64_t{1} << 30));
  return text + " = " + gibibytes(memory.total());
}

std::string what_would_fit(const Plan& plan, const model::Model& model, int64_t bytes) {
  std::string fits, smallest;
  int64_t least = plan.heaviest().memory.total();
  for (const Change& change : candidates(plan)) {
    if (change.text.empty()) continue;
    int64_t needs = 0;
    try {
      needs = make_plan(change.config, model, plan.mesh.size()).heaviest().memory.total();
    } catch (const ConfigError&) {  // not possible with the rest of this config
      continue;
    }
    if (needs <= bytes) fits += fmt::format("{}{} ({})", fits.empty() ? "" : "; or ", change.text, gibibytes(needs));
    if (needs < least) least = needs, smallest = change.text;
  }
  if (!fits.empty()) return "what would fit: " + fits;
  const std::string more = "use more ranks, a smaller model or offload";
  if (smallest.empty()) return more;
  return fmt::format("the smallest config that was found needs {} with {}; {}", gibibytes(least), smallest, more);
}

void check_fits(const Plan& plan, const model::Model& model, int rank, int64_t free_bytes, const std::string& device) {
  const MemoryBytes& memory = plan.rank(rank).memory;
  if (memory.total() <= free_bytes) return;
  throw OutOfMemoryError(fmt::format("rank {}: the plan does not fit into {}, of which {} are free: {}; {}", rank, device,
                                     gibibytes(free_bytes), to_words(memory), what_would_fit(plan, model, free_bytes)));
}

}  // namespace trivet
