// How many ranks a host runs where nobody says it.
#pragma once

#include <optional>
#include <string>

namespace trivet::cli {

// The GPUs among the entries of a folder of device files, /dev, that CUDA_VISIBLE_DEVICES lets a process see.
int count_gpus(const std::string& device_files, const std::optional<std::string>& visible_devices);

// One per GPU; on a host without GPUs, one per memory node, or as many as `include` names: 3 for "localhost:0,2".
int usual_slots(const std::string& include);

}  // namespace trivet::cli
