#include "interchange/foreign/zero_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "core/printable.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/strict_json.h"
#include "interchange/foreign/pt_file.h"
#include "interchange/foreign/unreadable_formats.h"

namespace trivet::foreign {

using checkpoint::corrupt;
namespace {

constexpr const char* kConfig = "config.json";
constexpr std::string_view kModelStates = "_model_states.pt", kOptimizerStates = "_optim_states.pt";
constexpr int64_t kConfigBytes = int64_t{1} << 20;
constexpr int64_t kTagBytes = 4096;
constexpr int64_t kMostRanks = 100'000;

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
                        kConfig, printable(path)));
}

// The number in "bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt"; nothing: the name is not made like this.
std::optional<int64_t> rank_of(std::string_view name, std::string_view ending) {
  constexpr std::string_view kRank = "zero_pp_rank_", kModelRank = "_mp_rank_00";
  const size_t at = name.find(kRank);
  if (at == std::string_view::npos || !name.ends_with(std::string(kModelRank) + std::string(ending))) return {};
  const std::string_view digits =
      name.substr(at + kRank.size(), name.size() - at - kRank.size() - kModelRank.size() - ending.size());
  int64_t rank = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (error != std::errc() || end != digits.data() + digits.size() || rank < 0 || rank > kMostRanks) return {};
  return rank;
}

// A vector of elements that lies in several files, in the order of the parts.
class Parts {
 public:
  void add(const PtTensor& tensor) {
    if (tensor.shape.elements() == 0) return;
    parts_.push_back({tensor, elements_});
    elements_ += tensor.shape.elements();
  }
  int64_t elements() const { return elements_; }
  // The runs of elements [first, first + count), which must be there, as elements from `to` on of a tensor.
  void append_runs(int64_t first, int64_t count, int64_t to, std::vector<Run>& runs) const {
    const auto ends_before = [&](const Part& part) { return part.begin + part.tensor.shape.elements() <= first; };
    for (auto at = std::ranges::partition_point(parts_, ends_before); at != parts_.end(); ++at) {
      const Part& part = *at;
      const int64_t from = std::max(first, part.begin),
                    end = std::min(first + count, part.begin + part.tensor.shape.elements());
      if (from >= end) break;
      Run run = part.tensor.run;
      run.offset_bytes += (from - part.begin) * size_of(part.tensor.dtype);
      run.first = to + from - first;
      run.elements = end - from;
      runs.push_back(run);
    }
  }
  // Returns the type of all parts; nothing: they differ, or there are none.
  std::optional<DType> dtype() const {
    for (const Part& part : parts_)
      if (part.tensor.dtype != parts_.front().tensor.dtype) return {};
    return parts_.empty() ? std::optional<DType>() : parts_.front().tensor.dtype;
  }

 private:
  struct Part {
    PtTensor tensor;
    int64_t begin;
  };
  std::vector<Part> parts_;
  int64_t elements_ = 0;
};

// The name and shape of a parameter, in the order of the file.
using Shapes = std::vector<std::pair<std::string, Shape>>;

Shapes shapes_of(const PtFile& file, const PickleValue& dict) {
  Shapes shapes;
  if (!dict.is(PickleKind::Dict)) file.refuse("the shapes of its parameters are no dict");
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    if (!dict.items[i]->is(PickleKind::Text)) file.refuse("a parameter has no name");
    shapes.emplace_back(dict.items[i]->text, file.shape(*dict.items[i + 1], dict.items[i]->text));
  }
  return shapes;
}

const std::vector<const PickleValue*>& list_of(const PtFile& file, const PickleValue& value, std::string_view what) {
  if (!value.is(PickleKind::List)) file.refuse(fmt::format("\"{}\" is no list", what));
  return value.items;
}

// The first of a list, or the value itself: older versions stored numbers, newer ones an enum or a number per group.
int64_t number_in(const PtFile& file, const PickleValue& value, std::string_view what) {
  const PickleValue* number = &value;
  if ((value.is(PickleKind::Object) || value.is(PickleKind::List)) && !value.items.empty()) number = value.items[0];
  return file.count(*number, what);
}

int64_t partition_size(int64_t elements, int64_t ranks) { return elements / ranks + (elements % ranks != 0); }

class ZeroCheckpoint {
 public:
  ZeroCheckpoint(FileSystem& files, std::string step, TensorFiles& to) : files_(files), step_(std::move(step)), to_(to) {
    refuse_other_axes();
  }

  // Returns the format, in words.
  std::string add_all() {
    const std::vector<std::string> parts_of_model = rank_files(kModelStates);
    const bool in_parts = !parts_of_model.empty();  // one of each rank, as at stage 3
    const std::string first_model = in_parts ? parts_of_model.front() : "mp_rank_00_model_states.pt";
    if (is_universal(files_, step_)) {
      const PtFile model = open(first_model);
      add_universal(model);
      add_rest(model, in_parts);
      return "DeepSpeed's universal checkpoint";
    }
    const std::vector<std::string> optimizer = rank_files(kOptimizerStates);
    if (optimizer.empty())
      refuse_model(step_,
                   "holds no zero_pp_rank_0_mp_rank_00_optim_states.pt; were the weights saved without ZeRO? "
                   "Save the model with save_pretrained() or as a state dict instead");
    read_parts(optimizer);
    if (in_parts != (stage_ == 3))
      corrupt(printable(step_),
              fmt::format("the optimizer is of ZeRO-{}, but the file of the model is \"{}\"", stage_, first_model));
    const PtFile model = open(first_model);
    stage_ == 3 ? add_stage_3(model) : add_groups(model);
    if (stage_ == 3) add_frozen_parts(model, parts_of_model);
    add_rest(model, in_parts);
    return fmt::format("DeepSpeed's ZeRO-{} of {} ranks", stage_, ranks_);
  }

 private:
  PtFile open(const std::string& name) { return PtFile(to_.keep(files_.open(step_ + "/" + name)), AcceptedNames::Any); }

  void refuse_other_axes() const {
    for (const DirectoryEntry& entry : files_.list(step_)) {
      const std::string& name = entry.name;
      if (!name.ends_with("model_states.pt") && !name.ends_with(kOptimizerStates)) continue;
      if (name.starts_with("layer_") || name.find("expp_rank_") != std::string::npos)
        refuse_model(step_,
                     fmt::format("\"{}\" is of a pipeline or of experts, which is not accepted; convert the checkpoint to a "
                                 "state dict with the program that wrote it",
                                 printable(name)));
      if (name.find("mp_rank_") != std::string::npos && name.find("mp_rank_00_") == std::string::npos)
        refuse_model(step_,
                     fmt::format("\"{}\" is of a second tensor-parallel rank, which is not accepted; convert the checkpoint: "
                                 "python -m deepspeed.checkpoint.ds_to_universal --input_folder {} --output_folder OUT",
                                 printable(name), printable(step_)));
    }
  }

  // The files of ranks 0, 1, 2 ..., all of which must be there.
  std::vector<std::string> rank_files(std::string_view ending) const {
    std::map<int64_t, std::string> found;
    for (const DirectoryEntry& entry : files_.list(step_))
      if (const std::optional<int64_t> rank = rank_of(entry.name, ending))
        if (!found.emplace(*rank, entry.name).second)
          corrupt(printable(step_),
                  fmt::format("has two files of rank {}: \"{}\" and \"{}\"", *rank, found.at(*rank), entry.name));
    std::vector<std::string> names;
    for (const auto& [rank, name] : found) {
      if (rank != static_cast<int64_t>(names.size()))
        corrupt(printable(step_), fmt::format("the {} file of rank {} is absent", ending.substr(1), names.size()));
      names.push_back(name);
    }
    return names;
  }

  void read_parts(const std::vector<std::string>& names) {
    ranks_ = static_cast<int64_t>(names.size());
    for (const std::string& name : names) {
      const PtFile file = open(name);
      const PickleValue& states = file.member(file.root(), "optimizer_state_dict");
      const int64_t stage = number_in(file, file.member(states, "zero_stage"), "zero_stage");
      if (stage < 1 || stage > 3) file.refuse(fmt::format("zero_stage {} is not accepted; use 1, 2 or 3", stage));
      const int64_t ranks = number_in(file, file.member(states, "partition_count"), "partition_count");
      if (ranks != ranks_)
        file.refuse(
            fmt::format("is of {} ranks, but there are {} such files; are some of another run, or absent?", ranks, ranks_));
      if (parts_.empty()) stage_ = stage;
      if (stage != stage_) file.refuse(fmt::format("is of ZeRO-{}, the file of rank 0 of ZeRO-{}", stage, stage_));
      const char* const key = stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
      const auto& groups = list_of(file, file.member(states, key), key);
      if (parts_.empty() && stage < 3) read_paddings(file, states);
      parts_.emplace_back();
      for (const PickleValue* group : groups) {
        parts_.back().push_back(file.tensor(*group, key));
        if (parts_.back().back().dtype != parts_.front().front().dtype) file.refuse("its groups have different types");
      }
      if (parts_.back().size() != parts_.front().size())
        file.refuse(
            fmt::format("has {} groups of parameters, the file of rank 0 {}", parts_.back().size(), parts_.front().size()));
    }
  }

  // Elements between the parameters of each group.
  void read_paddings(const PtFile& file, const PickleValue& states) {
    const char* const key = "param_alignment_paddings";
    const PickleValue* const found = find_member(states, key);
    if (!found || found->is(PickleKind::None)) return;
    for (const PickleValue* group : list_of(file, *found, key)) {
      paddings_.emplace_back();
      for (const PickleValue* padding : list_of(file, *group, key)) paddings_.back().push_back(file.count(*padding, key));
    }
  }

  void add(const PtFile& file, const std::string& name, const Shape& shape, const Parts& parts, std::vector<Run> runs) {
    const std::optional<DType> dtype = parts.dtype();
    if (!dtype) file.refuse(fmt::format("the parts of \"{}\" have different types", printable(name)));
    if (shape.elements() == 0) file.refuse(fmt::format("\"{}\" has no elements", printable(name)));
    to_.add(name, *dtype, shape, std::move(runs));
  }

  [[noreturn]] static void refuse_size(const PtFile& file, int64_t group, const std::string& name, int64_t needed,
                                       int64_t held) {
    file.refuse(
        fmt::format("group {}: \"{}\" ends at element {}, but the ranks hold {}", group, printable(name), needed, held));
  }

  void add_groups(const PtFile& model) {
    const auto& groups = list_of(model, model.member(model.root(), "param_shapes"), "param_shapes");
    if (groups.size() != parts_.front().size())
      model.refuse(
          fmt::format("has {} groups of parameters, the files of the optimizer {}", groups.size(), parts_.front().size()));
    for (size_t group = 0; group < groups.size(); ++group) {
      Parts whole;
      for (const std::vector<PtTensor>& rank : parts_) whole.add(rank[group]);
      const Shapes shapes = shapes_of(model, *groups[group]);
      if (!paddings_.empty() && (paddings_.size() <= group || paddings_[group].size() != shapes.size()))
        model.refuse(
            fmt::format("group {} has {} parameters, which does not fit param_alignment_paddings", group, shapes.size()));
      int64_t at = 0;
      for (size_t i = 0; i < shapes.size(); ++i) {
        const auto& [name, shape] = shapes[i];
        if (shape.elements() > whole.elements() - at)
          refuse_size(model, static_cast<int64_t>(group), name, at + shape.elements(), whole.elements());
        std::vector<Run> runs;
        whole.append_runs(at, shape.elements(), 0, runs);
        add(model, name, shape, whole, std::move(runs));
        at += shape.elements();
        if (!paddings_.empty()) at += std::min(paddings_[group][i], whole.elements() - at);
      }
      // Only the end of a group may be padding: less than two elements for each rank.
      if (const int64_t left = whole.elements() - at; left >= 2 * ranks_)
        model.refuse(fmt::format("group {} ends at element {}, but the ranks hold {}", group, at, whole.elements()));
    }
  }

  void add_stage_3(const PtFile& model) {
    std::vector<Parts> ranks(parts_.size());
    for (size_t rank = 0; rank < parts_.size(); ++rank)
      for (const PtTensor& group : parts_[rank]) ranks[rank].add(group);
    for (const Parts& rank : ranks)
      if (rank.elements() != ranks.front().elements()) model.refuse("the ranks hold different numbers of elements");
    int64_t at = 0;
    for (const PickleValue* group : list_of(model, model.member(model.root(), "param_shapes"), "param_shapes"))
      for (const auto& [name, shape] : shapes_of(model, *group)) {
        const int64_t part = partition_size(shape.elements(), ranks_);
        if (part > ranks.front().elements() - at) refuse_size(model, 0, name, at + part, ranks.front().elements());
        std::vector<Run> runs;
        for (int64_t rank = 0; rank < ranks_; ++rank) {
          const int64_t to = rank * part;
          ranks[static_cast<size_t>(rank)].append_runs(at, std::min(part, shape.elements() - to), to, runs);
        }
        add(model, name, shape, ranks.front(), std::move(runs));
        at += part;
      }
    if (at != ranks.front().elements())
      model.refuse(fmt::format("its parameters end at element {}, but each rank holds {}", at, ranks.front().elements()));
  }

  // Parameters that are not trained have no part in the optimizer: at stage 3, each rank's part is with the model.
  void add_frozen_parts(const PtFile& first, const std::vector<std::string>& names) {
    const PickleValue* const dict = find_member(first.root(), "frozen_param_shapes");
    if (!dict || !dict->is(PickleKind::Dict) || dict->items.empty()) return;
    const Shapes shapes = shapes_of(first, *dict);
    if (static_cast<int64_t>(names.size()) != ranks_)
      first.refuse(fmt::format("is one of {} files, but there are {} ranks", names.size(), ranks_));
    std::vector<Parts> wholes(shapes.size());
    for (const std::string& file_name : names) {
      const PtFile file = open(file_name);
      const PickleMembers fragments(file.member(file.root(), "frozen_param_fragments"));
      for (size_t i = 0; i < shapes.size(); ++i) {
        const auto& [name, shape] = shapes[i];
        const PickleValue* const found = fragments.find(name);
        if (!found) file.refuse(fmt::format("\"{}\" is absent", printable(name)));
        const PtTensor fragment = file.tensor(*found, name);
        if (fragment.shape.elements() != partition_size(shape.elements(), ranks_))
          file.refuse(fmt::format("its part of \"{}\" has {} elements, not {}", printable(name), fragment.shape.elements(),
                                  partition_size(shape.elements(), ranks_)));
        wholes[i].add(fragment);
      }
    }
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto& [name, shape] = shapes[i];
      std::vector<Run> runs;
      wholes[i].append_runs(0, shape.elements(), 0, runs);
      add(first, name, shape, wholes[i], std::move(runs));
    }
  }

  // A second name of a parameter may have a file, too, which the converter made from 16 bits: it is left out.
  void add_universal(const PtFile& model) {
    const PickleValue* const dict = find_member(model.root(), "shared_params");
    const PickleMembers shared(dict ? *dict : PickleValue{});
    for (const DirectoryEntry& entry : files_.list(step_ + "/zero")) {
      const std::string path = fmt::format("zero/{}/fp32.pt", entry.name);
      if (shared.find(entry.name)) continue;
      if (entry.kind != EntryKind::Directory || files_.kind(step_ + "/" + path) == EntryKind::Missing) continue;
      const PtFile file = open(path);
      const PtTensor tensor = file.tensor(file.member(file.root(), "param"), entry.name);
      to_.add(entry.name, tensor.dtype, tensor.shape, tensor.run);
    }
  }

  // Second names of a parameter, and, where the file has whole tensors, those that were not trained. In the module, a part of a
  // rank of stage 3 is empty.
  void add_rest(const PtFile& model, bool parts) {
    if (const PickleValue* const shared = find_member(model.root(), "shared_params"); shared && shared->is(PickleKind::Dict))
      for (size_t i = 0; i + 1 < shared->items.size(); i += 2) {
        const PickleValue &second = *shared->items[i], &first = *shared->items[i + 1];
        if (second.is(PickleKind::Text) && first.is(PickleKind::Text))
          to_.add_alias(std::string(second.text), std::string(first.text));
      }
    const PickleValue* const module = find_member(model.root(), "module");
    if (parts || !module || !module->is(PickleKind::Dict)) return;
    for (const auto& [name, tensor] : model.tensors(*module))
      if (!to_.find(name) && tensor.shape.elements() > 0) to_.add(name, tensor.dtype, tensor.shape, tensor.run);
  }

  FileSystem& files_;
  std::string step_;
  TensorFiles& to_;
  int64_t stage_ = 0, ranks_ = 0;
  std::vector<std::vector<PtTensor>> parts_;    // [rank][group]
  std::vector<std::vector<int64_t>> paddings_;  // [group][parameter]; empty: there are none
};

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
    source.format = ZeroCheckpoint(files, step, *source.tensors).add_all();
    return source;
  });
}

}  // namespace trivet::foreign
