// Checks that are made before a run allocates anything.
#pragma once

#include <string>

#include "comm/world.h"
#include "engine/config/config.h"
#include "trainer/trainer.h"

namespace trivet::trainer {

// Throws ConfigError unless `given`; the message says that the key is not given, and what to do.
void require(bool given, const Config& config, const std::string& key, const std::string& advice);
// A config that can be planned may still lack what only training needs: data, and an end.
void check_complete(const Config& config);
// Collective. Ranks that run different configs would meet in collectives of different sizes or, worse, of equal sizes.
void check_same_config(const Config& config, comm::World& world, const TrainOptions& options);

}  // namespace trivet::trainer
