#include "autotune/tune/result_key.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "data/hash.h"
#include "engine/backend/cuda_module.h"
#include "engine/config/explain.h"

namespace trivet::autotune {

std::string result_key(const Config& config, int64_t vocabulary_size, const std::string& hardware, int world_size) {
  auto json = nlohmann::ordered_json::parse(explain_as_json(config));
  for (const char* section : {"autotuning", "training", "data", "scheduler", "steps_per_print", "csv_monitor", "timeline"})
    json.erase(section);
  const std::string text = fmt::format("{}\n{} to {}\n{}\n{}\n{}\n{}", json.dump(), config.autotuning.start_profile_step,
                                       config.autotuning.end_profile_step, vocabulary_size, hardware, world_size,
                                       kCudaInterface);  // the version of program and module
  return data::hexadecimal(data::hash_bytes(text));
}

}  // namespace trivet::autotune
