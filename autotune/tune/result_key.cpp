#include "autotune/tune/result_key.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "comm/sha256.h"
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
  const comm::Digest digest = comm::sha256(text);
  std::string key;
  for (size_t i = 0; i < 8; ++i) key += fmt::format("{:02x}", digest[i]);
  return key;
}

}  // namespace trivet::autotune
