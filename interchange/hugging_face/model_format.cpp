#include "interchange/hugging_face/model_format.h"

#include <algorithm>
#include <stdexcept>

#include "interchange/foreign/llama2_c.h"
#include "interchange/foreign/llm_c.h"
#include "interchange/foreign/unreadable_formats.h"
#include "interchange/foreign/zero_checkpoint.h"
#include "interchange/hugging_face/adapted_files.h"
#include "interchange/hugging_face/meta_llama.h"
#include "interchange/hugging_face/model_files.h"

namespace trivet::hugging_face {

using foreign::ModelSource;
namespace {

// Steps of checkpoints, next to which the config of their run may lie.
bool holds_steps(FileSystem& files, const std::string& path) {
  return std::ranges::any_of(files.list(path), [](const DirectoryEntry& entry) { return entry.name.starts_with("step-"); });
}

bool is_folder_of_hugging_face(FileSystem& files, const std::string& path) {
  if (holds_adapter(files, path)) return true;
  return files.kind(path + "/" + kConfigName) != EntryKind::Missing && (has_weights(files, path) || !holds_steps(files, path));
}

// A folder that transformers wrote after training with DeepSpeed may hold both: then its model.safetensors is the model, or its
// adapter.
bool is_deepspeed_alone(FileSystem& files, const std::string& path) {
  return !has_weights(files, path) && !holds_adapter(files, path) && foreign::is_zero_checkpoint(files, path);
}

ModelSource open_hugging_face(FileSystem& files, const std::string& path, const std::string&) {
  if (holds_adapter(files, path)) return open_adapted(files, path);
  if (!has_weights(files, path)) foreign::refuse_unreadable_format(files, path);
  auto tensors = std::make_unique<ModelFiles>(files, path);
  ModelSource source{.config = tensors->config(), .config_path = path + "/" + kConfigName, .notes = tensors->notes()};
  source.tensors = std::move(tensors);
  return source;
}

template <bool (*is_format)(const ReadableFile&)>
bool is_file(FileSystem& files, const std::string& path) {
  return files.kind(path) == EntryKind::File &&
         foreign::reading_files("can it be read?", [&] { return is_format(*files.open(path)); });
}

template <ModelSource (*open)(FileSystem&, const std::string&)>
ModelSource open_file(FileSystem& files, const std::string& path, const std::string&) {
  return foreign::reading_files("give the file of a model", [&] { return open(files, path); });
}

}  // namespace

std::span<const ModelFormat> model_formats() {
  static const ModelFormat all[] = {
      {.name = "deepspeed",
       .what = "a checkpoint of DeepSpeed (ZeRO or universal)",
       .path = "Directory that holds \"latest\", or one of its steps (global_step200)",
       .example = "output/checkpoint-200 --config config.json",
       .is_format = is_deepspeed_alone,
       .open = foreign::open_zero_checkpoint,
       .takes_config = true},
      {.name = "hf",
       .what = "a folder in Hugging Face's format",
       .path = "Folder with config.json and the weights: model.safetensors or pytorch_model.bin, or an index and shards",
       .example = "gpt2",
       .is_format = is_folder_of_hugging_face,
       .open = open_hugging_face},
      {.name = "llm.c",
       .what = "a GPT-2 of llm.c",
       .path = "File of the model, version 3 (float32) or 5 (bfloat16)",
       .example = "gpt2_124M.bin",
       .is_format = is_file<foreign::is_llm_c>,
       .open = open_file<foreign::open_llm_c>},
      {.name = "llama2.c",
       .what = "a Llama of llama2.c",
       .path = "File of the model, of the first format or of version 1, in float32",
       .example = "stories15M.bin",
       .is_format = is_file<foreign::is_llama2_c>,
       .open = open_file<foreign::open_llama2_c>},
      {.name = "meta",
       .what = "a Llama as Meta publishes it",
       .path = "Folder with params.json and consolidated.00.pth, or one such file for each tensor-parallel rank",
       .example = "Llama-2-7b",
       .is_format = is_meta_llama,
       .open = open_meta_llama},
  };
  return all;
}

const ModelFormat* format_of(FileSystem& files, const std::string& path) {
  const auto found =
      std::ranges::find_if(model_formats(), [&](const ModelFormat& format) { return format.is_format(files, path); });
  if (found != model_formats().end()) return &*found;
  foreign::refuse_unreadable_format(files, path);
  return nullptr;
}

ModelSource open_model(FileSystem& files, const std::string& path, std::string_view name, const std::string& config) {
  const ModelFormat* format = name.empty() ? format_of(files, path) : nullptr;
  if (!format) {
    const auto found = std::ranges::find(model_formats(), name.empty() ? "hf" : name, &ModelFormat::name);
    if (found == model_formats().end()) throw std::logic_error("open_model: no such format");
    format = &*found;
  }
  return format->open(files, path, config);
}

}  // namespace trivet::hugging_face
