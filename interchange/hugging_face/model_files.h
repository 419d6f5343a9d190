// The files of a model in Hugging Face's format: a folder with config.json and the weights, in one file or in several that an
// index lists (docs/hugging_face.md). Where a folder holds weights more than once, the first of these is read, as transformers
// does it:
//
//   model.safetensors
//   model.safetensors.index.json, model-00001-of-00002.safetensors, ...
//   pytorch_model.bin
//   pytorch_model.bin.index.json, pytorch_model-00001-of-00002.bin, ...
//
// Only files of the folder itself are opened: an index that names another place is refused, and so are links. Opening checks
// the headers of all files; read() reads only the elements that are asked for. float32, bfloat16 and float16 are read as
// float32. Thread-safe. Throws CheckpointError naming the file.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_system.h"
#include "interchange/foreign/tensor_files.h"

namespace trivet::hugging_face {

inline constexpr const char* kConfigName = "config.json";
inline constexpr const char* kWeightsName = "model.safetensors";
inline constexpr const char* kIndexName = "model.safetensors.index.json";
inline constexpr int64_t kConfigLimitBytes = int64_t{1} << 20;
inline constexpr int64_t kIndexLimitBytes = int64_t{64} << 20;
inline constexpr size_t kMostShards = 10'000;

// The names of files of weights of one kind.
struct WeightNames {
  const char *weights, *index;
  std::string_view ending;
};
inline constexpr WeightNames kSafetensors{kWeightsName, kIndexName, ".safetensors"};
inline constexpr WeightNames kTorchFiles{"pytorch_model.bin", "pytorch_model.bin.index.json", ".bin"};

// The file of each tensor, from the text of an index of files whose names end with `ending`. Throws CheckpointError
// (CheckpointCorrupt).
std::map<std::string, std::string> parse_index(std::string_view text, const std::string& path,
                                               std::string_view ending = kSafetensors.ending);

// The files and indices in this folder, in the order of preference: the first one is read. Empty: it holds no weights.
std::vector<std::string> weights_in(FileSystem& files, const std::string& directory);
inline bool has_weights(FileSystem& files, const std::string& directory) { return !weights_in(files, directory).empty(); }

// Adds the tensors of one such file, of safetensors or of torch.save.
void add_tensors_of(const ReadableFile& file, foreign::TensorFiles& to);

class ModelFiles : public foreign::TensorFiles {
 public:
  ModelFiles(FileSystem& files, const std::string& directory);

  const std::string& config() const { return config_; }             // the text of config.json
  const std::vector<std::string>& notes() const { return notes_; }  // weights that were not read

 private:
  std::string path(const std::string& name) const { return source() + "/" + name; }
  void open_all(FileSystem& files);
  void open_shard(FileSystem& files, const std::string& name);
  void note_others(FileSystem& files, const std::vector<std::string>& found, const std::set<std::string>& read);
  void check_index(const std::map<std::string, std::string>& index, const WeightNames& names) const;

  std::string config_;
  std::vector<std::string> notes_;
};

}  // namespace trivet::hugging_face
