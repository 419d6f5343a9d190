#include "interchange/hugging_face/model_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "core/error.h"
#include "core/printable.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/strict_json.h"
#include "interchange/foreign/other_content.h"
#include "interchange/foreign/pt_file.h"

namespace trivet::hugging_face {

using checkpoint::corrupt;
namespace {

constexpr int64_t kHeaderLimitBytes = 100'000'008;

void add_safetensors(const ReadableFile& file, foreign::TensorFiles& to) {
  const int64_t size = file.size();
  std::string start(static_cast<size_t>(std::min<int64_t>(size, 8)), '\0');
  file.read_exactly(0, std::as_writable_bytes(std::span(start)));
  if (start.size() == 8) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, start.data(), 8);
    const int64_t wanted = bytes > static_cast<uint64_t>(kHeaderLimitBytes) ? 8 : static_cast<int64_t>(bytes) + 8;
    if (wanted == 8 || wanted > size) foreign::refuse_other_content(file, "a file of safetensors");
    start.resize(static_cast<size_t>(std::min({size, wanted, kHeaderLimitBytes})));
    file.read_exactly(8, std::as_writable_bytes(std::span(start)).subspan(8));
  }
  const checkpoint::SafetensorsHeader header = checkpoint::parse_safetensors_header(start, size, file.path());
  for (const checkpoint::TensorEntry& entry : header.tensors)
    to.add(entry.name, entry.dtype, entry.shape, {&file, header.data_start + entry.begin});
}

std::string name_of_file(const ReadableFile& file) { return file.path().substr(file.path().rfind('/') + 1); }

}  // namespace

std::map<std::string, std::string> parse_index(std::string_view text, const std::string& path, std::string_view ending) {
  const checkpoint::Json json = checkpoint::parse_strict(text, path);
  const checkpoint::Json& map = checkpoint::member(json, "weight_map", path);
  if (!map.is_object() || map.empty()) corrupt(path, "\"weight_map\" is not an object that names a file for each tensor");
  std::map<std::string, std::string> index;
  std::set<std::string> files;
  for (const auto& [tensor, value] : map.items()) {
    const std::string& file = checkpoint::to_text(value, path + ": weight_map");
    if (!checkpoint::is_safe_name(file) || !file.ends_with(ending))
      corrupt(path, fmt::format("tensor \"{}\" is in \"{}\"; use the name of a {} file in the same folder", printable(tensor),
                                printable(file), ending));
    index[tensor] = file;
    files.insert(file);
  }
  if (files.size() > kMostShards) corrupt(path, fmt::format("{} files; at most {} are accepted", files.size(), kMostShards));
  return index;
}

std::vector<std::string> weights_in(FileSystem& files, const std::string& directory) {
  std::vector<std::string> found;
  for (const char* name : {kSafetensors.weights, kSafetensors.index, kTorchFiles.weights, kTorchFiles.index})
    if (files.kind(directory + "/" + name) != EntryKind::Missing) found.emplace_back(name);
  return found;
}

// Lists the files of the folder that look like weights.
std::vector<std::string> others_like_weights(FileSystem& files, const std::string& directory) {
  std::vector<std::string> found;
  for (const DirectoryEntry& entry : files.list(directory)) {
    const auto ends = [&](std::string_view ending) { return entry.name.ends_with(ending); };
    const bool is_of_training = entry.name == "training_args.bin" || entry.name.starts_with("adapter_model.");
    if ((ends(".safetensors") || ends(".bin") || ends(".pth") || ends(".gguf") || ends(".h5") || ends(".msgpack")) &&
        !is_of_training)
      found.push_back(printable(entry.name));
  }
  std::ranges::sort(found);
  return found;
}

[[noreturn]] void refuse_without_weights(FileSystem& files, const std::string& directory) {
  const std::vector<std::string> others = others_like_weights(files, directory);
  const bool shards =
      std::ranges::any_of(others, [](const std::string& name) { return name.find("-of-") != std::string::npos; });
  std::string what =
      "the folder has a config.json, but neither model.safetensors nor pytorch_model.bin, nor an index of shards";
  if (!others.empty()) what += fmt::format("; it has {}", fmt::join(others, ", "));
  const bool are_readable = std::ranges::any_of(others, [](const std::string& name) {
    return name.ends_with(".safetensors") || name.ends_with(".bin") || name.ends_with(".pth");
  });
  what += shards           ? "; restore the index that belongs to the shards, such as model.safetensors.index.json"
          : others.empty() ? "; put the weights there (`trivet plan` and `trivet estimate` need none)"
          : are_readable   ? "; if these are its weights, give them one of these names"
                           : ", which is not read; write the model with save_pretrained of transformers, which makes "
                             "model.safetensors";
  throw CheckpointError(ExitCode::Usage, fmt::format("{}: {}", printable(directory), what));
}

void add_tensors_of(const ReadableFile& file, foreign::TensorFiles& to) {
  if (file.path().ends_with(kSafetensors.ending)) return add_safetensors(file, to);
  foreign::add_state_dict(foreign::PtFile(file), to);
}

ModelFiles::ModelFiles(FileSystem& files, const std::string& directory) : TensorFiles(directory) {
  foreign::reading_files(fmt::format("is {} a model in Hugging Face's format?", printable(directory)), [&] {
    config_ = read_text(files, path(kConfigName), kConfigLimitBytes);
    static_cast<void>(checkpoint::parse_strict(config_, path(kConfigName)));
    open_all(files);
    remove_wrapper();
  });
}

void ModelFiles::open_all(FileSystem& files) {
  const std::vector<std::string> found = weights_in(files, source());
  if (found.empty()) refuse_without_weights(files, source());
  const std::string& chosen = found[0];
  const WeightNames& names = chosen.starts_with(kSafetensors.weights) ? kSafetensors : kTorchFiles;
  if (chosen == names.weights) {
    note_others(files, found, {chosen});
    return open_shard(files, names.weights);
  }
  const auto index = parse_index(read_text(files, path(names.index), kIndexLimitBytes), path(names.index), names.ending);
  std::set<std::string> shards;
  for (const auto& [tensor, file] : index) shards.insert(file);
  note_others(files, found, shards);
  for (const std::string& shard : shards) {
    if (files.kind(path(shard)) == EntryKind::Missing)
      throw CheckpointError(ExitCode::Usage, fmt::format("{}: names {}, which is not in the folder; get that file, too",
                                                         path(names.index), shard));
    open_shard(files, shard);
  }
  check_index(index, names);
}

// `found`: weights by their names; the first one was chosen, and `read` are its files.
void ModelFiles::note_others(FileSystem& files, const std::vector<std::string>& found, const std::set<std::string>& read) {
  std::vector<std::string> others(found.begin() + 1, found.end());
  for (const std::string& name : others_like_weights(files, source()))
    if (!read.contains(name) && std::ranges::find(found, name) == found.end()) others.push_back(name);
  if (others.empty()) return;
  notes_.push_back(fmt::format("{} was read, as transformers does it; {} in the same folder {} not", found[0],
                               fmt::join(others, ", "), others.size() == 1 ? "was" : "were"));
}

void ModelFiles::open_shard(FileSystem& files, const std::string& name) { add_tensors_of(keep(files.open(path(name))), *this); }

void ModelFiles::check_index(const std::map<std::string, std::string>& index, const WeightNames& names) const {
  for (const auto& [tensor, file] : index)
    if (const ReadableFile* const found = file_of(tensor); !found || name_of_file(*found) != file)
      corrupt(path(names.index), fmt::format("tensor \"{}\" is not in \"{}\"", printable(tensor), file));
  for (const std::string& tensor : this->names())
    if (!index.contains(tensor))
      corrupt(path(name_of_file(*file_of(tensor))), fmt::format("tensor \"{}\" is not in {}", printable(tensor), names.index));
}

}  // namespace trivet::hugging_face
