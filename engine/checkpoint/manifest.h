// The contents of a checkpoint: manifest.json of docs/checkpoint_format.md.
//
//   tensors (global name, dtype, shape)  <-- pieces (box, range, checksums) --> files (one or more per rank)
//
// The pieces of a tensor are a partition of it: each element is stored exactly once. A rank's share of a manifest has the same
// type; merge() joins the shares of all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_view.h"

namespace trivet::checkpoint {

inline constexpr int64_t kBlockBytes = int64_t{1} << 20;  // a checksum covers at most this much of one piece
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr int64_t kManifestLimitBytes = int64_t{256} << 20;

struct TensorInfo {
  DType dtype = DType::Float32;
  Shape shape;
};

struct StoredPiece {
  std::string tensor;
  std::string file, entry;  // a safetensors file, and the tensor in it
  Shape box_start, box_shape;
  int64_t first = 0, count = 0;        // elements of the flattened box
  std::vector<uint32_t> block_crc32c;  // one per kBlockBytes of the piece
};

struct StoredFile {
  int64_t bytes = 0, header_bytes = 0;
  uint32_t header_crc32c = 0;
  uint64_t xxh3 = 0;  // hash of the complete file
};

// The files of a step that a host was given, if each host has a directory of its own (checkpoint.replicas).
struct HostFiles {
  std::string host;
  std::vector<std::string> files;
};

struct Manifest {
  std::string run_id;
  int64_t step = 0;
  int64_t created = 0;  // seconds since 1970, for people
  int64_t ranks = 1;    // number that wrote it
  std::map<std::string, TensorInfo> tensors;
  std::map<std::string, StoredFile> files;
  std::vector<StoredPiece> pieces;
  std::string config, state;
  std::vector<HostFiles> hosts;  // empty: the directory was the same for all ranks
  std::string origin;            // the run_id of the first start of the job; empty: not stored
  int64_t start = 0;             // number of this start of the job on what it found, from 1; 0: not stored, as origin
  std::string xxh3;              // hash of the text that it was read from; empty if it was not read

  int64_t bytes() const;  // all files except the manifest
  // The hosts that were given this file: "node1, node2"; empty if there is no such list.
  std::string hosts_of(const std::string& file) const;
};

std::string to_text(const Manifest& manifest);
// Checks everything that can be checked without the other files; throws CheckpointError (CheckpointCorrupt) naming `path` and
// what is wrong.
Manifest parse_manifest(std::string_view text, const std::string& path);
// The same for one rank's share, whose pieces need not be a partition.
Manifest parse_share(std::string_view text, const std::string& path);

// Throws CheckpointError (CheckpointCorrupt) unless `config` is empty or the text of a JSON object.
void check_config(const std::string& config, const std::string& path);

// Adds a rank's tensors, files and pieces. Throws CheckpointError naming the tensor if ranks disagree about one.
void merge(Manifest& whole, Manifest share);
// Throws CheckpointError (CheckpointCorrupt) unless the pieces of every tensor are a partition of it.
void check_partition(const Manifest& manifest, const std::string& path);

// [A-Za-z0-9._-], 1 to 128 characters, not "." or "..": cannot leave its directory.
bool is_safe_name(std::string_view name);
bool is_safe_run_id(std::string_view run_id);  // the same, at most 64 characters
std::string step_directory_name(int64_t step);

}  // namespace trivet::checkpoint
