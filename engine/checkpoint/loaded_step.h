// A committed checkpoint, open for reading. Any layout reads any other: a wanted piece is put together from all stored ones
// that it overlaps, by several threads, and the checksum of every block touched is compared.
//
// Opening checks the manifest and all of its fields, every file's size and header; verify() reads everything. Thread-safe.
// Errors are CheckpointError (CheckpointCorrupt) that name file, tensor and block.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/piece.h"
#include "engine/checkpoint/run_state.h"

namespace trivet::checkpoint {

class LoadedStep {
 public:
  LoadedStep(FileSystem& files, std::string directory);  // of the step: ".../step-00000200"
  LoadedStep(LoadedStep&&) noexcept;
  LoadedStep& operator=(LoadedStep&&) noexcept;
  ~LoadedStep();

  const std::string& directory() const { return directory_; }
  int64_t step() const { return manifest_.step; }
  const std::string& run_id() const { return manifest_.run_id; }
  const std::string& config() const { return manifest_.config; }
  const std::string& state() const { return manifest_.state; }
  const RunState& run_state() const { return run_state_; }
  const Manifest& manifest() const { return manifest_; }
  bool contains(const std::string& name) const { return manifest_.tensors.contains(name); }
  const TensorInfo& tensor(const std::string& name) const;  // CheckpointError when absent

  // Fills the data of every piece. Throws before any is touched when a tensor is absent or has another dtype or shape.
  void read(std::span<const Piece> wanted, int threads = 0) const;  // 0: as many as there are cores, at most 8
  // Reads the files whose index (by name) leaves `part` when divided by `parts`, and compares every checksum.
  void verify(int part = 0, int parts = 1, int threads = 0) const;

 private:
  struct Shard;
  struct Place {  // of a stored piece
    const Shard* shard;
    int64_t offset;  // of its first byte in the file
  };
  void check_name(const std::string& path) const;
  void open_shard(const std::string& name);
  void check_entries(Shard& shard);
  void check_wanted(const Piece& piece) const;
  void verify_shard(const Shard& shard) const;
  // Compares the checksum of a block that was read or computed.
  void check_block(size_t piece, size_t block, std::span<const std::byte> data) const;

  FileSystem* files_;
  std::string directory_;
  Manifest manifest_;
  RunState run_state_;
  std::vector<std::unique_ptr<Shard>> shards_;  // in the order of manifest_.files
  std::vector<Place> places_;                   // of manifest_.pieces
};

}  // namespace trivet::checkpoint
