// The batch equation: train = micro x accumulation x data-parallel size.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "engine/config/config.h"
#include "engine/config/load.h"
#include "engine/config/refuse.h"

namespace trivet {
namespace {

struct Unsolved {
  const BatchConfig& batch;
  int64_t data_parallel_size;
  const std::string& source;

  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(fmt::format("{}: {}", source.empty() ? "config" : source, what));
  }
};

// "24 or 32", "8": the positive multiples of `unit` on either side of `value`.
std::string nearest_multiples(int64_t value, int64_t unit) {
  const int64_t below = value / unit * unit;
  if (below == 0) return fmt::format("{}", unit);
  if (below > std::numeric_limits<int64_t>::max() - unit) return fmt::format("{}", below);
  return fmt::format("{} or {}", below, below + unit);
}

// Solves train = known x data-parallel size x ? for the missing factor. `name` is the known key.
int64_t divide(const Unsolved& u, const char* name, int64_t known) {
  const int64_t unit = known * u.data_parallel_size;
  if (u.batch.train_batch_size % unit != 0)
    u.refuse(fmt::format("train_batch_size {} is not a multiple of {} {} x data-parallel size {} = {}; use train_batch_size {}",
                         u.batch.train_batch_size, name, known, u.data_parallel_size, unit,
                         nearest_multiples(u.batch.train_batch_size, unit)));
  return u.batch.train_batch_size / unit;
}

int64_t divide_by_ranks(const Unsolved& u) {
  const int64_t ranks = u.data_parallel_size;
  if (u.batch.train_batch_size % ranks != 0)
    u.refuse(fmt::format("train_batch_size {} is not a multiple of the data-parallel size {}; use train_batch_size {}",
                         u.batch.train_batch_size, ranks, nearest_multiples(u.batch.train_batch_size, ranks)));
  return u.batch.train_batch_size / ranks;
}

// The largest of elasticity's microbatches with which this number of ranks trains the batch.
int64_t choose_microbatch(const Unsolved& u) {
  const int64_t of_rank = divide_by_ranks(u);
  int64_t largest = 0;
  for (const int64_t micro : u.batch.micro_batch_sizes)
    if (of_rank % micro == 0) largest = std::max(largest, micro);
  if (largest == 0)
    u.refuse(fmt::format("none of elasticity.micro_batch_sizes {} divides the {} samples of a rank",
                         fmt::join(u.batch.micro_batch_sizes, ", "), of_rank));
  return largest;
}

void check_elastic_size(const Unsolved& u) {
  const auto& sizes = u.batch.data_parallel_sizes;
  if (sizes.empty() || std::find(sizes.begin(), sizes.end(), u.data_parallel_size) != sizes.end()) return;
  u.refuse(
      fmt::format("elasticity: the data-parallel size {} cannot train the batch of {} samples; use one of {}, or other "
                  "elasticity.micro_batch_sizes",
                  u.data_parallel_size, u.batch.train_batch_size, fmt::join(sizes, ", ")));
}

void check_product(const Unsolved& u, const ResolvedBatch& b) {
  const int64_t unit = b.micro_batch_size * u.data_parallel_size;
  const int64_t product = unit * b.gradient_accumulation_steps;
  if (product == b.train_batch_size) return;
  std::string advice = fmt::format("use train_batch_size {}", product);
  if (b.train_batch_size % unit == 0) advice += fmt::format(" or gradient_accumulation_steps {}", b.train_batch_size / unit);
  u.refuse(fmt::format(
      "train_batch_size {} is not train_micro_batch_size_per_gpu {} x gradient_accumulation_steps {} x "
      "data-parallel size {} = {}; {}",
      b.train_batch_size, b.micro_batch_size, b.gradient_accumulation_steps, u.data_parallel_size, product, advice));
}

// The samples that each rank contributes to a step, as far as the config says, and the keys that say it.
struct SamplesPerRank {
  int64_t count = 1;
  std::string keys;  // "train_micro_batch_size_per_gpu 2 x gradient_accumulation_steps 2 = 4"
};

SamplesPerRank samples_per_rank(const Config& config) {
  const BatchConfig& batch = config.batch;
  const std::string micro = fmt::format("train_micro_batch_size_per_gpu {}", batch.micro_batch_size);
  const std::string steps = fmt::format("gradient_accumulation_steps {}", batch.gradient_accumulation_steps);
  if (batch.gradient_accumulation_steps == 0) return {std::max<int64_t>(1, batch.micro_batch_size), micro};
  if (batch.micro_batch_size == 0) return {batch.gradient_accumulation_steps, steps};
  SamplesPerRank samples;
  if (__builtin_mul_overflow(batch.micro_batch_size, batch.gradient_accumulation_steps, &samples.count))
    config::refuse(
        config, "train_micro_batch_size_per_gpu",
        fmt::format("{} x {} is too large; use smaller numbers, whose product is below 2^63", batch.micro_batch_size, steps));
  samples.keys = fmt::format("{} x {} = {}", micro, steps, samples.count);
  return samples;
}

// `trivet tune` chooses the batch of a config that does not give one.
bool is_for_tuning(const Config& config) {
  return is_given(config, "autotuning") && (config.autotuning.enabled || !is_given(config, "autotuning.enabled"));
}

// The product of the given factors must fit in 64 bits, so that nothing below overflows.
void check_range(const Unsolved& u) {
  const int64_t micro = std::max<int64_t>(1, u.batch.micro_batch_size);
  const int64_t steps = std::max<int64_t>(1, u.batch.gradient_accumulation_steps);
  int64_t product = 0;
  if (__builtin_mul_overflow(micro, steps, &product) || __builtin_mul_overflow(product, u.data_parallel_size, &product) ||
      __builtin_mul_overflow(product, int64_t{2}, &product))
    u.refuse(
        fmt::format("the batch of a step, {} x {} x data-parallel size {}, is too large", micro, steps, u.data_parallel_size));
}

}  // namespace

void check_batch(const Config& config) {
  const int64_t train = config.batch.train_batch_size;
  const SamplesPerRank samples = samples_per_rank(config);
  if (train == 0 && config.batch.micro_batch_size == 0 && !is_for_tuning(config))
    config::refuse(config, "train_batch_size",
                   "is missing, and so is train_micro_batch_size_per_gpu; give at least one of them, an integer from 1");
  if (train % samples.count != 0)
    config::refuse(config, "train_batch_size",
                   fmt::format("{} is not a multiple of {}, so no number of data-parallel ranks can train it; use {}", train,
                               samples.keys, nearest_multiples(train, samples.count)));
}

ResolvedBatch resolve_batch(const BatchConfig& batch, int64_t data_parallel_size, const std::string& source) {
  const Unsolved u{batch, data_parallel_size, source};
  ResolvedBatch b{batch.train_batch_size, batch.micro_batch_size, batch.gradient_accumulation_steps};
  if (data_parallel_size < 1) throw std::logic_error("resolve_batch: data-parallel size below 1");
  if (b.train_batch_size < 0 || b.micro_batch_size < 0 || b.gradient_accumulation_steps < 0)
    u.refuse("batch sizes and accumulation steps must be at least 1");
  if (b.train_batch_size == 0 && b.micro_batch_size == 0)
    u.refuse("train_batch_size or train_micro_batch_size_per_gpu is needed; give one of them");
  check_range(u);
  check_elastic_size(u);
  if (b.micro_batch_size == 0 && !batch.micro_batch_sizes.empty()) b.micro_batch_size = choose_microbatch(u);
  if (b.train_batch_size == 0) {
    if (b.gradient_accumulation_steps == 0) b.gradient_accumulation_steps = 1;
    b.train_batch_size = b.micro_batch_size * b.gradient_accumulation_steps * data_parallel_size;
  } else if (b.micro_batch_size == 0 && b.gradient_accumulation_steps == 0) {
    b.gradient_accumulation_steps = 1;
    b.micro_batch_size = divide_by_ranks(u);
  } else if (b.micro_batch_size == 0) {
    b.micro_batch_size = divide(u, "gradient_accumulation_steps", b.gradient_accumulation_steps);
  } else if (b.gradient_accumulation_steps == 0) {
    b.gradient_accumulation_steps = divide(u, "train_micro_batch_size_per_gpu", b.micro_batch_size);
  }
  check_product(u, b);
  return b;
}

}  // namespace trivet
