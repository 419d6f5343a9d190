// A committed checkpoint, open for reading. Any layout can read what any other layout wrote: several threads assemble a wanted
// piece from all stored pieces that it overlaps, and compare the checksum of every block that they touch.
//
// Opening checks the manifest with all of its fields, and the size and header of every file; verify() reads everything.
// Thread-safe. Throws CheckpointError (CheckpointCorrupt) naming the file, tensor and block.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/piece.h"
#include "engine/checkpoint/run_state.h"
#include "engine/checkpoint/tensor_source.h"

namespace trivet::checkpoint {

// The run_id of what a trainer with a model of its own saves (embed/).
inline constexpr const char* kEmbeddedRunId = "embedded";

// The files of a step that must be there. With checkpoint.replicas, a host's directory has only some of them.
enum class StepFiles : uint8_t { All, ThoseHere };

class LoadedStep final : public TensorSource {
 public:
  // `directory` is that of a step: ".../step-00000200". With ThoseHere, reading what is not here throws.
  LoadedStep(FileSystem& files, std::string directory, StepFiles which = StepFiles::All);
  LoadedStep(LoadedStep&&) noexcept;
  LoadedStep& operator=(LoadedStep&&) noexcept;
  ~LoadedStep() override;

  const std::string& directory() const { return directory_; }
  int64_t step() const { return manifest_.step; }
  const std::string& run_id() const { return manifest_.run_id; }
  const std::string& config() const { return manifest_.config; }
  const std::string& state() const { return manifest_.state; }
  const RunState& run_state() const { return run_state_; }
  const Manifest& manifest() const { return manifest_; }
  // Files that are only on other hosts, with the names of these hosts.
  const std::map<std::string, std::string>& elsewhere() const { return elsewhere_; }
  std::string source() const override { return directory_; }
  const TensorInfo* find(const std::string& name) const override;

  void read(std::span<const Piece> wanted) const override { read(wanted, 0); }
  void read(std::span<const Piece> wanted, int threads) const;  // 0: as many as there are cores, at most 8
  // Reads the files whose index (in the order of their names) is `part` modulo `parts`, and compares every checksum.
  void verify(int part = 0, int parts = 1, int threads = 0) const;

 private:
  struct Shard;
  struct PiecePosition {  // where a stored piece is
    const Shard* shard;   // null: on another host
    int64_t offset;       // position of its first byte
  };
  void check_name(const std::string& path) const;
  void open_shard(const std::string& name, StepFiles which);
  [[noreturn]] void refuse_elsewhere(const std::string& name, const std::string& hosts) const;
  void check_entries(Shard& shard);
  void check_wanted(const Piece& piece) const;
  void verify_shard(const Shard& shard) const;
  // Throws if the checksum of a block differs from the one in the manifest.
  void check_block(size_t piece, size_t block, std::span<const std::byte> data) const;

  FileSystem* files_;
  std::string directory_;
  Manifest manifest_;
  RunState run_state_;
  std::map<std::string, std::string> elsewhere_;
  std::vector<std::unique_ptr<Shard>> shards_;  // in the order of manifest_.files
  std::vector<PiecePosition> places_;           // [index in manifest_.pieces]
};

// Throws ConfigError if a trainer with a model of its own saved the step: nobody else can compute with its weights. `key` has
// named the step.
void refuse_embedded(const LoadedStep& step, const std::string& key);

}  // namespace trivet::checkpoint
