#include "interchange/foreign/unreadable_formats.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::foreign {
namespace {

bool has(FileSystem& files, const std::string& path, const char* name) {
  return files.kind(path + "/" + name) != EntryKind::Missing;
}

bool is_of_megatron(const DirectoryEntry& entry) {
  return entry.kind == EntryKind::Directory && entry.name.starts_with("mp_rank_");
}

}  // namespace

void refuse_model(const std::string& path, const std::string& what) {
  throw CheckpointError(ExitCode::Usage, fmt::format("{}: {}", printable(path), what));
}

void refuse_unreadable_format(FileSystem& files, const std::string& path) {
  if (files.kind(path) == EntryKind::File) {
    for (const char* ending : {".safetensors", ".bin.index.json", ".safetensors.index.json", ".pt", ".pth", ".ckpt"})
      if (path.ends_with(ending))
        refuse_model(
            path,
            "is a file of weights alone, which does not say of which model they are; give the folder of the model, with "
            "config.json and model.safetensors or pytorch_model.bin");
    return;
  }
  if (files.kind(path) != EntryKind::Directory) return;
  if (has(files, path, "latest_checkpointed_iteration.txt") || has(files, path, "common.pt") ||
      std::ranges::any_of(files.list(path), is_of_megatron))
    refuse_model(path,
                 "is a checkpoint of Megatron-LM, which is not read: convert it to Hugging Face's format with Megatron Bridge, "
                 "AutoBridge.from_hf_pretrained(MODEL).export_ckpt(CHECKPOINT, FOLDER) in Python");
  if (has(files, path, ".metadata"))
    refuse_model(
        path, fmt::format("is a checkpoint of torch.distributed.checkpoint (.distcp files), which is not read: convert it with "
                          "\"python -m torch.distributed.checkpoint.format_utils dcp_to_torch {} pytorch_model.bin\" and put "
                          "the result next to the model's config.json",
                          printable(path)));
}

}  // namespace trivet::foreign
