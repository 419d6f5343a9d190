// Chooses the default number of ranks of a host, and the GPUs of its slots.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trivet::cli {

// The GPUs among the entries of a folder of device files, /dev, that CUDA_VISIBLE_DEVICES lets a process see.
int count_gpus(const std::string& device_files, const std::optional<std::string>& visible_devices);

// The GPUs that this value of CUDA_VISIBLE_DEVICES shows, as it names them: "6", "GPU-1f3e0a", "MIG-7c21". As in CUDA, the list
// ends before the first entry that names none ("-1").
std::vector<std::string> visible_gpus(std::string_view list);
// The first entry of such a list that is neither a GPU nor a way to show none ("", "-1", "none", "NoDevFiles"); empty: there is
// none.
std::string entry_that_is_no_gpu(std::string_view list);

// One per GPU; on a host without GPUs, one per memory node, or as many as `include` names: 3 for "localhost:0,2".
int usual_slots(const std::string& include);

}  // namespace trivet::cli
