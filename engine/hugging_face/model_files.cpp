#include "engine/hugging_face/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/printable.h"
#include "engine/checkpoint/common_elements.h"
#include "engine/checkpoint/stored_pieces.h"
#include "engine/checkpoint/strict_json.h"
#include "engine/data/hash.h"

namespace trivet::hugging_face {

using checkpoint::corrupt, checkpoint::Piece, checkpoint::TensorEntry, checkpoint::TensorInfo;
namespace {

constexpr int64_t kHeaderLimitBytes = 100'000'008;
constexpr int64_t kConvertedAtOnce = int64_t{1} << 18;  // elements

bool is_read_as_float(DType dtype) { return dtype == DType::Float32 || dtype == DType::BFloat16 || dtype == DType::Float16; }

template <typename Work>
auto reading_files(const std::string& directory, Work&& work) {
  try {
    return work();
  } catch (const FileError& error) {
    const bool link = error.error_number() == ELOOP;
    throw CheckpointError(ExitCode::Usage,
                          fmt::format("{}{}", error.what(),
                                      link ? "; links are not followed: give a folder that holds the files themselves, such as "
                                             "one made by huggingface-cli download --local-dir"
                                           : fmt::format("; is {} a model in Hugging Face's format?", printable(directory))));
  }
}

template <typename T>
void widen(const std::byte* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(static_cast<void*>(&value), from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    to[i] = static_cast<float>(value);
  }
}

void read_elements(const ReadableFile& file, int64_t offset, DType stored, int64_t count, std::byte* to, DType wanted) {
  const int64_t size = size_of(stored);
  if (stored == wanted) return file.read_exactly(offset, {to, static_cast<size_t>(count * size)});
  std::vector<std::byte> memory(std::min(count, kConvertedAtOnce) * size);
  for (int64_t done = 0; done < count; done += kConvertedAtOnce) {
    const int64_t some = std::min(kConvertedAtOnce, count - done);
    file.read_exactly(offset + done * size, {memory.data(), static_cast<size_t>(some * size)});
    float* const out = reinterpret_cast<float*>(to) + done;
    stored == DType::BFloat16 ? widen<bfloat16>(memory.data(), some, out) : widen<float16>(memory.data(), some, out);
  }
}

}  // namespace

struct ModelFiles::Shard {
  std::string name;
  std::unique_ptr<ReadableFile> file;
  checkpoint::SafetensorsHeader header;
};

std::map<std::string, std::string> parse_index(std::string_view text, const std::string& path) {
  const checkpoint::Json json = checkpoint::parse_strict(text, path);
  const checkpoint::Json& map = checkpoint::member(json, "weight_map", path);
  if (!map.is_object() || map.empty()) corrupt(path, "\"weight_map\" is not an object that names a file for each tensor");
  std::map<std::string, std::string> index;
  std::set<std::string> files;
  for (const auto& [tensor, value] : map.items()) {
    const std::string& file = checkpoint::to_text(value, path + ": weight_map");
    if (!checkpoint::is_safe_name(file) || !file.ends_with(".safetensors"))
      corrupt(path, fmt::format("tensor \"{}\" is in \"{}\"; use the name of a .safetensors file in the same folder",
                                printable(tensor), printable(file)));
    index[tensor] = file;
    files.insert(file);
  }
  if (files.size() > kMostShards) corrupt(path, fmt::format("{} files; at most {} are accepted", files.size(), kMostShards));
  return index;
}

ModelFiles::ModelFiles(FileSystem& files, std::string directory) : directory_(std::move(directory)) {
  reading_files(directory_, [&] {
    config_ = read_text(files, path(kConfigName), kConfigLimitBytes);
    open_all(files);
  });
}

ModelFiles::~ModelFiles() = default;

void ModelFiles::open_all(FileSystem& files) {
  data::StreamingHash hash;
  hash.add(config_);
  if (files.kind(path(kIndexName)) == EntryKind::Missing) {
    add_tensors(open_shard(files, kWeightsName));
  } else {
    const auto index = parse_index(read_text(files, path(kIndexName), kIndexLimitBytes), path(kIndexName));
    std::set<std::string> names;
    for (const auto& [tensor, file] : index) names.insert(file);
    for (const std::string& name : names) add_tensors(open_shard(files, name));
    check_index(index);
  }
  for (const auto& [name, place] : tensors_)
    hash.add(fmt::format("{} {} {} {} {};", place.shard->name, name, name_of(place.entry->dtype), to_string(place.entry->shape),
                         place.entry->begin));
  hash_ = hash.value();
}

const ModelFiles::Shard& ModelFiles::open_shard(FileSystem& files, const std::string& name) {
  auto shard = std::make_unique<Shard>(Shard{name, files.open(path(name)), {}});
  const int64_t size = shard->file->size();
  std::string start(static_cast<size_t>(std::min<int64_t>(size, 8)), '\0');
  shard->file->read_exactly(0, std::as_writable_bytes(std::span(start)));
  if (start.size() == 8) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, start.data(), 8);
    const int64_t wanted = bytes > static_cast<uint64_t>(kHeaderLimitBytes) ? 8 : static_cast<int64_t>(bytes) + 8;
    start.resize(static_cast<size_t>(std::min({size, wanted, kHeaderLimitBytes})));
    shard->file->read_exactly(8, std::as_writable_bytes(std::span(start)).subspan(8));
  }
  shard->header = checkpoint::parse_safetensors_header(start, size, path(name));
  return *shards_.emplace_back(std::move(shard));
}

void ModelFiles::add_tensors(const Shard& shard) {
  for (const TensorEntry& entry : shard.header.tensors) {
    const DType dtype = is_read_as_float(entry.dtype) ? DType::Float32 : entry.dtype;
    const auto [at, is_new] = tensors_.try_emplace(entry.name, Place{&shard, &entry, {dtype, entry.shape}});
    if (!is_new)
      corrupt(path(shard.name), fmt::format("tensor \"{}\" is in \"{}\", too", printable(entry.name), at->second.shard->name));
  }
}

void ModelFiles::check_index(const std::map<std::string, std::string>& index) const {
  for (const auto& [tensor, file] : index) {
    const auto found = tensors_.find(tensor);
    if (found == tensors_.end() || found->second.shard->name != file)
      corrupt(path(kIndexName), fmt::format("tensor \"{}\" is not in \"{}\"", printable(tensor), file));
  }
  for (const auto& [tensor, place] : tensors_)
    if (!index.contains(tensor))
      corrupt(path(place.shard->name), fmt::format("tensor \"{}\" is not in {}", printable(tensor), kIndexName));
}

std::string ModelFiles::digest() const { return fmt::format("xxh3 {}", data::hexadecimal(hash_)); }

std::vector<std::string> ModelFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : tensors_) names.push_back(name);
  return names;
}

const TensorInfo* ModelFiles::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.info;
}

void ModelFiles::read(std::span<const Piece> wanted) const {
  for (const Piece& piece : wanted) check_stored(*this, piece);
  reading_files(directory_, [&] {
    for (const Piece& piece : wanted) read_piece(tensors_.at(piece.name), piece);
  });
}

void ModelFiles::read_piece(const Place& place, const Piece& piece) const {
  const Piece whole =
      checkpoint::whole_box_piece(piece.name, piece.shape, 0, {nullptr, piece.data.dtype, {piece.shape.elements()}});
  const DType stored = place.entry->dtype;
  const int64_t start = place.shard->header.data_start + place.entry->begin;
  auto* const to = static_cast<std::byte*>(piece.data.data);
  for (const auto& part : checkpoint::common_elements(piece.shape, region_of(whole), region_of(piece)))
    read_elements(*place.shard->file, start + part.from * size_of(stored), stored, part.count,
                  to + part.to * size_of(piece.data.dtype), piece.data.dtype);
}

}  // namespace trivet::hugging_face
