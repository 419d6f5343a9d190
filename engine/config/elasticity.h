// DeepSpeed's section "elasticity": a batch that many numbers of ranks can train, so that a job can lose or gain hosts and keep
// its batch. The batch is a small number of microbatches times a highly composite number, as in DeepSpeed 0.16
// (deepspeed/elasticity/elasticity.py).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/config/parallel_config.h"

namespace trivet {

struct Config;

struct ElasticBatch {
  int64_t train_batch_size = 0;              // 0: there is none
  std::vector<int64_t> data_parallel_sizes;  // sizes that can train it with one of the microbatches, ascending
};

// Returns the batch up to max_train_batch_size that the most data-parallel sizes can train; of equal ones the larger
// (prefer_larger_batch) or the smaller one. Version 0.2 counts whole hosts of num_gpus_per_node ranks.
ElasticBatch elastic_batch(const ElasticityConfig& elasticity);

// Sets config.batch if elasticity is enabled. Throws ConfigError that names the key.
void complete_batch(Config& config);

}  // namespace trivet
