// A small model and its plan.
#pragma once

#include "engine/make_plan.h"

namespace trivet {

inline Config small_config() {
  Config config;
  config.source = "small.json";
  config.model.layers = 3;
  config.model.hidden_size = 64;
  config.model.heads = 4;
  config.model.sequence_length = 32;
  config.batch.train_batch_size = 12;
  config.batch.micro_batch_size = 1;
  config.zero.stage3_param_persistence_threshold = 100;
  config.zero.stage3_max_reuse_distance = 0;
  config.zero.stage3_prefetch_bucket_size = 60'000;
  return config;
}

inline model::Model model_of(const Config& config) { return model::build(model::with_vocabulary(config.model, 97)); }
inline Plan plan_of(const Config& config, int ranks) { return make_plan(config, model_of(config), ranks); }

}  // namespace trivet
