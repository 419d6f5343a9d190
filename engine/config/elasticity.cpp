#include "engine/config/elasticity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "engine/config/config.h"
#include "engine/config/load.h"
#include "engine/config/refuse.h"

namespace trivet {
namespace {

// Numbers with more divisors than any smaller one, and some of those in between.
constexpr std::array<int64_t, 38> kManyDivisors{1,      2,      4,      6,      12,     24,     36,     48,    60,    120,
                                                180,    240,    360,    720,    840,    1260,   1680,   2520,  5040,  7560,
                                                10080,  15120,  20160,  25200,  27720,  45360,  50400,  55440, 83160, 110880,
                                                166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720};

struct Search {
  std::vector<int64_t> micro_batch_sizes;
  int64_t largest_batch = 0;
  int64_t fewest = 1, most = 0;  // data-parallel sizes, or hosts
  bool prefer_larger = true;
};

std::set<int64_t> candidates(const Search& search) {
  std::vector<int64_t> bases = search.micro_batch_sizes;
  int64_t multiple = 1;
  for (const int64_t micro : search.micro_batch_sizes)
    if (__builtin_mul_overflow(multiple / std::gcd(multiple, micro), micro, &multiple) || multiple > search.largest_batch) {
      multiple = 0;
      break;
    }
  bases.push_back(multiple);
  std::set<int64_t> found;
  for (const int64_t base : bases) {
    if (base == 0 || base > search.largest_batch) continue;
    found.insert(base * *(std::upper_bound(kManyDivisors.begin(), kManyDivisors.end(), search.largest_batch / base) - 1));
  }
  return found;
}

std::set<int64_t> sizes_for(int64_t batch, const Search& search) {
  std::set<int64_t> sizes;
  const auto add = [&](int64_t size) {
    if (size >= search.fewest && size <= search.most) sizes.insert(size);
  };
  for (const int64_t micro : search.micro_batch_sizes) {
    if (batch % micro != 0) continue;
    const int64_t microbatches = batch / micro;
    for (int64_t divisor = 1; divisor <= microbatches / divisor; ++divisor) {
      if (microbatches % divisor != 0) continue;
      add(divisor);
      add(microbatches / divisor);
    }
  }
  return sizes;
}

ElasticBatch best_of(const Search& search) {
  ElasticBatch best;
  for (const int64_t batch : candidates(search)) {  // ascending
    const std::set<int64_t> sizes = sizes_for(batch, search);
    const size_t before = best.data_parallel_sizes.size();
    if (sizes.empty() || sizes.size() < before || (sizes.size() == before && !search.prefer_larger)) continue;
    best = {batch, {sizes.begin(), sizes.end()}};
  }
  return best;
}

// Checks what elastic_batch needs.
void check_elasticity(const Config& config) {
  const ElasticityConfig& elasticity = config.elasticity;
  const int64_t of_one_model = config.parallel.tensor * config.parallel.pipeline * config.parallel.context;
  if (elasticity.max_train_batch_size == 0)
    config::refuse(config, "elasticity.max_train_batch_size", "is missing; give the largest number of samples per step");
  if (elasticity.micro_batch_sizes.empty())
    config::refuse(config, "elasticity.micro_batch_sizes", "is missing; give the microbatches to choose from, as in [2, 4]");
  for (const int64_t micro : elasticity.micro_batch_sizes)
    if (micro > elasticity.max_train_batch_size)
      config::refuse(config, "elasticity.micro_batch_sizes",
                     fmt::format("{} is more than elasticity.max_train_batch_size {}", micro, elasticity.max_train_batch_size));
  if (elasticity.min_gpus > elasticity.max_gpus)
    config::refuse(config, "elasticity.min_gpus",
                   fmt::format("{} is more than elasticity.max_gpus {}", elasticity.min_gpus, elasticity.max_gpus));
  if (elasticity.model_parallel_size != of_one_model)
    config::refuse(config, "elasticity.model_parallel_size",
                   fmt::format("{} is not parallel.tensor {} x parallel.pipeline {} x parallel.context {}; use {}",
                               elasticity.model_parallel_size, config.parallel.tensor, config.parallel.pipeline,
                               config.parallel.context, of_one_model));
  if (elasticity.version == 0.1 && of_one_model > 1)
    config::refuse(config, "elasticity.version", "0.1 only knows data parallelism; use 0.2");
  if (elasticity.version == 0.2 && elasticity.num_gpus_per_node % elasticity.model_parallel_size != 0)
    config::refuse(config, "elasticity.num_gpus_per_node",
                   fmt::format("{} is not a multiple of elasticity.model_parallel_size {}", elasticity.num_gpus_per_node,
                               elasticity.model_parallel_size));
}

// A config may repeat what elasticity says, but not contradict it.
void check_given(const Config& config, const BatchConfig& elastic) {
  const auto refuse_other = [&](const std::string& key, int64_t given, int64_t chosen) {
    if (config.elasticity.ignore_non_elastic_batch_info || given == 0 || given == chosen) return;
    config::refuse(config, key,
                   fmt::format("{} is not accepted with elasticity, which chooses the batch{}; remove it, or set "
                               "elasticity.ignore_non_elastic_batch_info",
                               given, chosen > 0 ? fmt::format(" ({})", chosen) : ""));
  };
  refuse_other("train_batch_size", config.batch.train_batch_size, elastic.train_batch_size);
  refuse_other("train_micro_batch_size_per_gpu", config.batch.micro_batch_size, elastic.micro_batch_size);
  refuse_other("gradient_accumulation_steps", config.batch.gradient_accumulation_steps, 0);
}

}  // namespace

ElasticBatch elastic_batch(const ElasticityConfig& elasticity) {
  const bool by_hosts = elasticity.version > 0.1;
  const int64_t of_host = by_hosts ? elasticity.num_gpus_per_node / elasticity.model_parallel_size : 1;
  const int64_t ranks = by_hosts ? elasticity.num_gpus_per_node : 1;
  Search search{.micro_batch_sizes = elasticity.micro_batch_sizes,
                .largest_batch = elasticity.max_train_batch_size / of_host,
                .fewest = std::max<int64_t>(1, elasticity.min_gpus / ranks),
                .most = elasticity.max_gpus / ranks,
                .prefer_larger = elasticity.prefer_larger_batch};
  ElasticBatch best = best_of(search);
  best.train_batch_size *= of_host;
  for (int64_t& size : best.data_parallel_sizes) size *= of_host;
  return best;
}

void complete_batch(Config& config) {
  const ElasticityConfig& elasticity = config.elasticity;
  if (!elasticity.enabled) return;
  check_elasticity(config);
  ElasticBatch chosen = elastic_batch(elasticity);
  if (chosen.train_batch_size == 0)
    config::refuse(config, "elasticity.max_train_batch_size",
                   fmt::format("{} allows no batch for {} to {} ranks with microbatches of {}; raise it, or "
                               "change elasticity.min_gpus and max_gpus",
                               elasticity.max_train_batch_size, elasticity.min_gpus, elasticity.max_gpus,
                               fmt::join(elasticity.micro_batch_sizes, ", ")));
  // The batch stays that of DeepSpeed.
  std::erase_if(chosen.data_parallel_sizes,
                [&](int64_t size) { return size * config.parallel.context % config.parallel.expert != 0; });
  if (chosen.data_parallel_sizes.empty())
    config::refuse(config, "parallel.expert",
                   fmt::format("{} divides no number of data and context ranks that can train the batch of {} samples, which "
                               "elasticity chooses; use 1, or other elasticity.micro_batch_sizes",
                               config.parallel.expert, chosen.train_batch_size));
  BatchConfig batch{.train_batch_size = chosen.train_batch_size};
  batch.data_parallel_sizes = std::move(chosen.data_parallel_sizes);
  if (elasticity.micro_batch_sizes.size() == 1)
    batch.micro_batch_size = elasticity.micro_batch_sizes[0];
  else
    batch.micro_batch_sizes = elasticity.micro_batch_sizes;
  check_given(config, batch);
  config.batch = std::move(batch);
}

}  // namespace trivet
