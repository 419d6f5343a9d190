// Writes the files of a step under a temporary name, and commits it with one rename (docs/checkpoint_format.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/lineage.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/piece.h"
#include "engine/checkpoint/store_directory.h"

namespace trivet::checkpoint {

struct SaveRequest {
  int64_t step = 0;
  std::span<const Piece> pieces;  // this rank's; all ranks together give each element of a tensor exactly once
  std::string state;              // to_text(RunState) of the same step; rank 0's is stored
  std::string config;             // the resolved config; rank 0's is stored
};

class StepWriter {
 public:
  explicit StepWriter(StoreDirectory& directory) : directory_(directory) {}

  std::string temporary_name(int64_t step) const;
  // Called by all ranks. Returns the shares of all of them. With replicas, the files are then on other hosts, too.
  std::vector<std::string> write_files(const SaveRequest& request, const std::string& temporary, const Participants& ranks);
  // These are called by leaders. The first returns the checksum of the manifest.
  std::string write_manifest(const SaveRequest& request, const Lineage& lineage, const std::string& temporary,
                             const std::vector<std::string>& shares, int64_t created) const;
  // is_broken: what has the name of the step is set aside for inspection.
  void commit(int64_t step, const std::string& temporary, bool is_broken);
  // Called by all ranks, if each host has a directory of its own.
  void finish_commits(const Participants& ranks);

 private:
  Manifest write_share(const SaveRequest& request, const std::string& temporary, int rank) const;

  StoreDirectory& directory_;
};

}  // namespace trivet::checkpoint
