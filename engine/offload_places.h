// Holds the places where a rank keeps what is offloaded: its files and, next to a device that has its own memory, the memory of
// the host.
#pragma once

#include <memory>

#include "core/file_system.h"
#include "engine/backend/backend.h"
#include "engine/rank_plan.h"
#include "zero/host_side.h"
#include "zero/offload/file_store.h"
#include "zero/parameter_group.h"

namespace trivet {

struct Config;

// The objects that make the places of a run; all of them must outlive the places.
struct OffloadOptions {
  const RankPlan& planned;
  int world_rank = 0;  // names the files
  FileSystem& files;
  Backend& backend;
  kernels::Kernels& kernels;  // the device's
  int host_threads = 1;       // for the kernels that update what is in host memory
};

class OffloadPlaces {
 public:
  OffloadPlaces(const Config& config, const OffloadOptions& options);
  // Makes places for the planner: they count, and move nothing.
  explicit OffloadPlaces(const Config& config);

  // Places that the config does not use are null. It has no ring for gathers: Parameters makes it.
  zero::OffloadResources resources() const;
  // Transferred and reserved so far.
  FilePlan weight_file() const { return counted(weight_files_.get()); }
  FilePlan state_file() const { return counted(state_files_.get()); }
  // The peak of host memory, and of two arenas, which are no part of it for the planner; nothing without a host's side.
  MemoryBytes host_memory() const { return host_side_ ? host_side_->meter().peak() : MemoryBytes{}; }
  int64_t host_staging_bytes() const { return host_side_ ? host_side_->staging().peak_bytes() : 0; }
  int64_t host_activation_bytes() const { return host_side_ ? host_side_->activations().peak_bytes() : 0; }

 private:
  static FilePlan counted(const zero::offload::FileStore* files);

  zero::StagingOptions staging_;
  std::unique_ptr<zero::offload::FileStore> weight_files_, state_files_;
  std::unique_ptr<kernels::Kernels> host_kernels_;  // update what is in host memory
  std::unique_ptr<zero::HostSide> host_side_;
  bool keeps_shards_ = false, keeps_activations_ = false;  // there
};

}  // namespace trivet
