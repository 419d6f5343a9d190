#include "interchange/foreign/zero_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/printable.h"
#include "core/shell_words.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/strict_json.h"
#include "interchange/foreign/pt_file.h"
#include "interchange/foreign/unreadable_formats.h"
#include "interchange/foreign/zero_step.h"

namespace trivet::foreign {

using checkpoint::corrupt;
namespace {

constexpr const char* kConfig = "config.json";
constexpr int64_t kConfigBytes = int64_t{1} << 20;
constexpr int64_t kTagBytes = 4096;

bool is_directory(FileSystem& files, const std::string& path) { return files.kind(path) == EntryKind::Directory; }

bool is_universal(FileSystem& files, const std::string& step) {
  const std::string folder = step + "/zero";
  return is_directory(files, folder) && std::ranges::any_of(files.list(folder), [&](const DirectoryEntry& entry) {
           return files.kind(folder + "/" + entry.name + "/fp32.pt") == EntryKind::File;
         });
}

bool is_step(FileSystem& files, const std::string& path) {
  if (!is_directory(files, path)) return false;
  const auto is_state = [](const DirectoryEntry& entry) {
    return entry.name.ends_with(kModelStates) || entry.name.ends_with(kOptimizerStates);
  };
  return std::ranges::any_of(files.list(path), is_state) || is_universal(files, path);
}

// Trivet, too, calls a file of a directory of checkpoints "latest".
bool holds_own_steps(FileSystem& files, const std::string& path) {
  return std::ranges::any_of(files.list(path), [&](const DirectoryEntry& entry) {
    return files.kind(path + "/" + entry.name + "/" + checkpoint::kManifestName) == EntryKind::File;
  });
}

// The directory of a step: the path itself, or what it names as the latest. Empty: there is none.
std::string step_directory(FileSystem& files, const std::string& path) {
  if (is_step(files, path)) return path;
  for (const char* name : {"latest_universal", "latest"}) {
    if (files.kind(path + "/" + name) != EntryKind::File || holds_own_steps(files, path)) continue;
    std::string tag = read_text(files, path + "/" + name, kTagBytes);
    tag.erase(tag.find_last_not_of(" \r\n") + 1);
    if (checkpoint::is_safe_name(tag) && is_step(files, path + "/" + tag)) return path + "/" + tag;
  }
  return "";
}

std::string find_config(FileSystem& files, const std::string& path, const std::string& step) {
  for (const std::string& folder : {step, path, step + "/.."})
    if (const std::string config = folder + "/" + kConfig; files.kind(config) == EntryKind::File) return config;
  refuse_model(
      path, fmt::format("a checkpoint of DeepSpeed does not say of which model it is, and the section \"model\" of a config "
                        "does not say what its tensors are called: copy the {} of the model, as transformers writes it, into "
                        "this directory; or name it: trivet checkpoint import deepspeed {} --config FILE --output "
                        "CHECKPOINTS, and begin with --init-from CHECKPOINTS",
                        kConfig, quoted(path)));
}

void refuse_other_axes(const ZeroStep& step) {
  for (const DirectoryEntry& entry : step.files.list(step.path)) {
    const std::string& name = entry.name;
    if (!name.ends_with("model_states.pt") && !name.ends_with(kOptimizerStates)) continue;
    if (name.starts_with("layer_") || name.find("expp_rank_") != std::string::npos)
      refuse_model(step.path,
                   fmt::format("\"{}\" is of a pipeline or of experts, which is not accepted; convert the checkpoint to a "
                               "state dict with the program that wrote it",
                               printable(name)));
    if (name.find("mp_rank_") != std::string::npos && name.find("mp_rank_00_") == std::string::npos)
      refuse_model(step.path,
                   fmt::format("\"{}\" is of a second tensor-parallel rank, which is not accepted; convert the checkpoint: "
                               "python -m deepspeed.checkpoint.ds_to_universal --input_folder {} --output_folder OUT",
                               printable(name), printable(step.path)));
  }
}

// A second name of a parameter may have a file, too, which the converter made from 16 bits: it is left out.
void add_universal(const ZeroStep& step, const PtFile& model) {
  const PickleValue* const dict = find_member(model.root(), "shared_params");
  const PickleMembers shared(dict ? *dict : PickleValue{});
  for (const DirectoryEntry& entry : step.files.list(step.path + "/zero")) {
    const std::string path = fmt::format("zero/{}/fp32.pt", entry.name);
    if (shared.find(entry.name)) continue;
    if (entry.kind != EntryKind::Directory || step.files.kind(step.path + "/" + path) == EntryKind::Missing) continue;
    const PtFile file = step.open(path);
    const PtTensor tensor = file.tensor(file.member(file.root(), "param"), entry.name);
    step.to.add(entry.name, tensor.dtype, tensor.shape, tensor.run);
  }
}

// Second names of a parameter, and, where the file has whole tensors, those that were not trained. In the module, a part of a
// rank of stage 3 is empty.
void add_rest(const ZeroStep& step, const PtFile& model, bool parts) {
  if (const PickleValue* const shared = find_member(model.root(), "shared_params"); shared && shared->is(PickleKind::Dict))
    for (size_t i = 0; i + 1 < shared->items.size(); i += 2) {
      const PickleValue &second = *shared->items[i], &first = *shared->items[i + 1];
      if (second.is(PickleKind::Text) && first.is(PickleKind::Text))
        step.to.add_alias(std::string(second.text), std::string(first.text));
    }
  const PickleValue* const module = find_member(model.root(), "module");
  if (parts || !module || !module->is(PickleKind::Dict)) return;
  for (const auto& [name, tensor] : model.tensors(*module))
    if (!step.to.find(name) && tensor.shape.elements() > 0) step.to.add(name, tensor.dtype, tensor.shape, tensor.run);
}

// Returns the format, in words.
std::string add_all(ZeroStep& step) {
  const std::vector<std::string> parts_of_model = step.rank_files(kModelStates);
  const bool in_parts = !parts_of_model.empty();  // one of each rank, as at stage 3
  const std::string first_model = in_parts ? parts_of_model.front() : "mp_rank_00_model_states.pt";
  if (is_universal(step.files, step.path)) {
    const PtFile model = step.open(first_model);
    add_universal(step, model);
    add_rest(step, model, in_parts);
    return "DeepSpeed's universal checkpoint";
  }
  const std::vector<std::string> optimizer = step.rank_files(kOptimizerStates);
  if (optimizer.empty())
    refuse_model(step.path,
                 "holds no zero_pp_rank_0_mp_rank_00_optim_states.pt; were the weights saved without ZeRO? "
                 "Save the model with save_pretrained() or as a state dict instead");
  step.read_parts(optimizer);
  if (in_parts != (step.stage == 3))
    corrupt(printable(step.path),
            fmt::format("the optimizer is of ZeRO-{}, but the file of the model is \"{}\"", step.stage, first_model));
  const PtFile model = step.open(first_model);
  step.stage == 3 ? add_stage_3(step, model) : add_groups(step, model);
  if (step.stage == 3) add_frozen_parts(step, model, parts_of_model);
  add_rest(step, model, in_parts);
  return fmt::format("DeepSpeed's ZeRO-{} of {} ranks", step.stage, step.ranks);
}

}  // namespace

bool is_zero_checkpoint(FileSystem& files, const std::string& path) {
  return reading_files("can the directory be read?", [&] { return !step_directory(files, path).empty(); });
}

ModelSource open_zero_checkpoint(FileSystem& files, const std::string& path, const std::string& config) {
  return reading_files("is the checkpoint complete?", [&] {
    const std::string step = step_directory(files, path);
    if (step.empty())
      refuse_model(path,
                   "is no checkpoint of DeepSpeed; give the directory that holds \"latest\", or that of a step, which holds "
                   "mp_rank_00_model_states.pt or zero_pp_rank_0_mp_rank_00_model_states.pt");
    ModelSource source{.tensors = std::make_unique<TensorFiles>(step)};
    source.config_path = config.empty() ? find_config(files, path, step) : config;
    source.config = read_text(files, source.config_path, kConfigBytes);
    ZeroStep whole{.files = files, .path = step, .to = *source.tensors};
    refuse_other_axes(whole);
    source.format = add_all(whole);
    return source;
  });
}

}  // namespace trivet::foreign
