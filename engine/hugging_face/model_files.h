// The files of a model in Hugging Face's format: a folder with config.json and the weights, in one safetensors file or in
// several that an index lists (docs/hugging_face.md).
//
//   config.json
//   model.safetensors      or      model.safetensors.index.json, model-00001-of-00002.safetensors, ...
//
// Only files of the folder itself are opened: an index that names another place is refused, and so are links. Opening checks
// the headers of all files; read() reads only the elements that are asked for. float32, bfloat16 and float16 are read as
// float32. Thread-safe. Throws CheckpointError naming the file.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/tensor_source.h"

namespace trivet::hugging_face {

inline constexpr const char* kConfigName = "config.json";
inline constexpr const char* kWeightsName = "model.safetensors";
inline constexpr const char* kIndexName = "model.safetensors.index.json";
inline constexpr int64_t kConfigLimitBytes = int64_t{1} << 20;
inline constexpr int64_t kIndexLimitBytes = int64_t{64} << 20;
inline constexpr size_t kMostShards = 10'000;

// The file of each tensor, from the text of an index. Throws CheckpointError (CheckpointCorrupt).
std::map<std::string, std::string> parse_index(std::string_view text, const std::string& path);

class ModelFiles final : public checkpoint::TensorSource {
 public:
  ModelFiles(FileSystem& files, std::string directory);
  ~ModelFiles() override;

  const std::string& config() const { return config_; }  // the text of config.json
  std::string digest() const;                            // of config.json and of the headers of all files
  std::vector<std::string> names() const;                // of all tensors

  std::string source() const override { return directory_; }
  const checkpoint::TensorInfo* find(const std::string& name) const override;
  void read(std::span<const checkpoint::Piece> wanted) const override;

 private:
  struct Shard;
  struct Place {
    const Shard* shard;
    const checkpoint::TensorEntry* entry;
    checkpoint::TensorInfo info;
  };
  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  void open_all(FileSystem& files);
  const Shard& open_shard(FileSystem& files, const std::string& name);
  void add_tensors(const Shard& shard);
  void check_index(const std::map<std::string, std::string>& index) const;
  void read_piece(const Place& place, const checkpoint::Piece& piece) const;

  std::string directory_, config_;
  uint64_t hash_ = 0;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::map<std::string, Place> tensors_;
};

}  // namespace trivet::hugging_face
