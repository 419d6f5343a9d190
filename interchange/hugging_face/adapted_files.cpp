#include "interchange/hugging_face/adapted_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <vector>

#include "core/error.h"
#include "core/printable.h"
#include "core/regular_expression.h"
#include "interchange/hugging_face/config_file.h"
#include "interchange/hugging_face/low_rank.h"
#include "interchange/hugging_face/model_files.h"
#include "interchange/hugging_face/peft.h"
#include "interchange/hugging_face/peft_parameters.h"

namespace trivet::hugging_face {

using checkpoint::Piece, foreign::ModelSource;
namespace {

constexpr const char* kAdapterTorchName = "adapter_model.bin";
constexpr std::string_view kOfExperts = ".mlp.experts", kWrapped = ".base_layer";
constexpr std::string_view kPrefix = "base_model.model.", kA = ".lora_A.weight", kB = ".lora_B.weight", kOfLinear = ".weight";

bool has_file(FileSystem& files, const std::string& folder, const std::string& name) {
  return files.kind(folder + "/" + name) != EntryKind::Missing;
}

// "" if there are none. PEFT prefers safetensors, too.
std::string adapter_weights_in(FileSystem& files, const std::string& folder) {
  for (const char* name : {kAdapterWeightsName, kAdapterTorchName})
    if (has_file(files, folder, name)) return name;
  return "";
}

// "target_modules" or "exclude_modules": the ends of names, or an expression for whole names.
struct NamedModules {
  std::vector<std::string> ends;
  std::optional<RegularExpression> expression;

  bool hold(std::string_view module) const {
    const auto is_end = [&](const std::string& end) { return module == end || module.ends_with("." + end); };
    return std::ranges::any_of(ends, is_end) || (expression && expression->is_all_of(module));
  }
};

struct AdapterConfig {
  std::string base;
  double alpha = 0;
  bool rank_stabilized = false;
  int64_t rank = 0;                                          // where rank_pattern names none
  std::vector<std::pair<RegularExpression, int64_t>> ranks;  // by the ends of names
  std::optional<NamedModules> modules;                       // the modules that are adapted; none: every linear layer
  NamedModules excluded;
  NamedModules parameters;      // that are adapted as such: "mlp.experts.down_proj", "mlp.shared_expert.up_proj.weight"
  std::vector<int64_t> layers;  // numbers of the layers that are adapted; empty: all

  int64_t rank_of(std::string_view module) const {
    for (const auto& [end, of_end] : ranks)
      if (end.is_end_of(module)) return of_end;
    return rank;
  }
};

constexpr int64_t kUsualRank = 8;  // PEFT's

RegularExpression expression_of(const std::string& text, const char* key, const ConfigFile& file) {
  try {
    return RegularExpression(text);
  } catch (const std::invalid_argument& wrong) {
    file.require(false, key, fmt::format("it is not accepted as a regular expression: {}", wrong.what()));
    throw;
  }
}

std::optional<NamedModules> modules_in(const Json& json, const char* key, ConfigFile& file) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null() || *found == "all-linear") return {};
  if (found->is_array()) return NamedModules{.ends = file.texts(key), .expression = {}};
  file.require(found->is_string(), key, "use a list of names or a regular expression");
  return NamedModules{.ends = {}, .expression = expression_of(found->get<std::string>(), key, file)};
}

std::vector<std::pair<RegularExpression, int64_t>> ranks_in(const Json& json, const ConfigFile& file) {
  std::vector<std::pair<RegularExpression, int64_t>> ranks;
  const auto found = json.find("rank_pattern");
  if (found == json.end() || found->is_null()) return ranks;
  const char* const accepted = "use an object of names and ranks from 1 on, such as {\"q_proj\": 4}";
  file.require(found->is_object(), "rank_pattern", accepted);
  for (const auto& [name, rank] : found->items()) {
    file.require(rank.is_number_unsigned() && rank > 0, "rank_pattern", accepted);
    ranks.emplace_back(expression_of(name, "rank_pattern", file), rank.get<int64_t>());
  }
  return ranks;
}

// Beginnings after which the model's own weights are no longer those of its folder.
void check_beginning(const Json& json, const ConfigFile& file) {
  const auto found = json.find("init_lora_weights");
  if (found == json.end() || found->is_null() || found->is_boolean()) return;
  constexpr std::array<std::string_view, 3> kAccepted{"gaussian", "eva", "orthogonal"};
  file.require(found->is_string() && std::ranges::find(kAccepted, found->get<std::string>()) != kAccepted.end(),
               "init_lora_weights", "only adapters that leave the weights of the model as they are can be added to them");
}

// A number or a list of them.
std::vector<int64_t> layers_of(const Json& json, const ConfigFile& file) {
  const auto found = json.find("layers_to_transform");
  if (found == json.end() || found->is_null()) return {};
  std::vector<int64_t> layers;
  for (const Json& layer : found->is_array() ? *found : Json::array({*found})) {
    file.require(layer.is_number_unsigned(), "layers_to_transform", "use the number of a layer, or a list of them");
    layers.push_back(layer.get<int64_t>());
  }
  return layers;
}

// "model.layers.12.self_attn.q_proj" -> 12; -1: the name has no number.
int64_t layer_of(std::string_view module) {
  for (size_t at = 0; at < module.size();
       at = module.find('.', at) == std::string_view::npos ? module.size() : module.find('.', at) + 1) {
    int64_t number = 0;
    const std::string_view part = module.substr(at, module.find('.', at) - at);
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error == std::errc() && end == part.data() + part.size()) return number;
  }
  return -1;
}

AdapterConfig read_adapter_config(FileSystem& files, const std::string& folder) {
  const std::string path = folder + "/" + kAdapterConfigName;
  const Json json = checkpoint::parse_strict(read_text(files, path, kConfigLimitBytes), path);
  if (!json.is_object()) throw ConfigError(printable(path) + ": is not an object; give a folder that PEFT saved");
  ConfigFile file(json, path);
  file.require(file.text("peft_type") == "LORA", "peft_type", "use \"LORA\"; no other kind of adapter is read");
  AdapterConfig config{.base = file.text("base_model_name_or_path", ""),
                       .alpha = file.number("lora_alpha"),
                       .rank_stabilized = file.flag("use_rslora", false)};
  config.rank = file.count("r", kUsualRank);
  file.require(config.rank > 0, "r", "use a rank from 1 on");
  config.ranks = ranks_in(json, file);
  config.modules = modules_in(json, "target_modules", file);
  config.excluded = modules_in(json, "exclude_modules", file).value_or(NamedModules{});
  config.parameters = {file.texts("target_parameters"), {}};
  config.layers = layers_of(json, file);
  file.require(file.text("bias", "none") == "none", "bias", "use \"none\"; biases of adapters are not read");
  for (const char* key : {"use_dora", "lora_bias", "use_qalora", "modules_to_save", "alpha_pattern", "trainable_token_indices",
                          "layer_replication"})
    file.require(file.is_off(key), key, "this is not read; merge the adapter with PEFT's merge_and_unload");
  check_beginning(json, file);
  // Keys about the training, and those that follow from the tensors.
  file.ignore({"auto_mapping",
               "task_type",
               "inference_mode",
               "revision",
               "peft_version",
               "lora_dropout",
               "fan_in_fan_out",
               "r",
               "rank_pattern",
               "target_modules",
               "exclude_modules",
               "layers_to_transform",
               "layers_pattern",
               "init_lora_weights",
               "megatron_config",
               "megatron_core",
               "loftq_config",
               "eva_config",
               "corda_config",
               "lora_ga_config",
               "qalora_group_size",
               "ensure_weight_tying",
               "arrow_config",
               "runtime_config",
               "bias"});
  file.finish();
  return config;
}

struct Matrices {
  std::string a, b;  // names in the file of the adapter
  int64_t rank = 0;
  double scale = 0;
  // The parameter of experts that they adapt, if it is one, and the place among its parts.
  std::shared_ptr<const ParameterOfExperts> parameter = nullptr;
  size_t part = 0;
};

class AdaptedFiles final : public ModelFiles {
 public:
  AdaptedFiles(FileSystem& files, const std::string& base, const std::string& folder, const AdapterConfig& config)
      : ModelFiles(files, base), adapter_(folder) {
    foreign::reading_files("is it a folder that PEFT saved?", [&] {
      add_tensors_of(adapter_.keep(files.open(folder + "/" + adapter_weights_in(files, folder))), adapter_);
    });
    const std::string type = Json::parse(this->config()).value("model_type", "");
    transposed_ = type == "gpt2";
    experts_have_inputs_first_ = type == "gpt_oss";
    for (const std::string& name : adapter_.names()) add(name, config);
    if (matrices_.empty())
      throw CheckpointError(ExitCode::Usage, fmt::format("{}/{} holds no matrices; restore the file that PEFT saved",
                                                         printable(folder), adapter_weights_in(files, folder)));
    note_what_is_missing(config);
  }

  // Lists what the config names although no matrix adapts it.
  const std::vector<std::string>& adapter_notes() const { return adapter_notes_; }

  size_t matrices() const { return matrices_.size(); }

  void read(std::span<const Piece> wanted) const override {
    ModelFiles::read(wanted);
    for (const Piece& piece : wanted)
      if (const auto found = matrices_.find(piece.name); found != matrices_.end()) add_product(piece, found->second);
  }

  std::string origin(const std::string& name, int64_t row) const override {
    const std::string of_model = ModelFiles::origin(name, row);
    const auto found = matrices_.find(name);
    return found == matrices_.end() ? of_model
                                    : fmt::format("{}, to which {} and {} were added,", of_model,
                                                  adapter_.origin(found->second.a, 0), adapter_.origin(found->second.b, 0));
  }

  uint64_t digest() const override { return ModelFiles::digest() * 0x9E3779B97F4A7C15u + adapter_.digest(); }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& what) const {
    throw CheckpointError(ExitCode::Usage,
                          fmt::format("{}: tensor \"{}\" {}", adapter_.file_of(name)->path(), printable(name), what));
  }

  static std::string module_of(const std::string& a) { return a.substr(kPrefix.size(), a.size() - kPrefix.size() - kA.size()); }

  // The weight of the model that a matrix adapts. A file of the model without its head has names without their beginning.
  std::string weight_of(const std::string& name, std::string_view ending) const {
    const std::string module = name.substr(kPrefix.size(), name.size() - kPrefix.size() - ending.size());
    if (find(module + ".weight")) return module + ".weight";
    const std::string rest = module.substr(module.find('.') + 1) + ".weight";
    if (!find(rest)) refuse(name, fmt::format("adapts \"{}.weight\", which {} does not hold", printable(module), source()));
    return rest;
  }

  void add(const std::string& name, const AdapterConfig& config) {
    if (name.starts_with(kPrefix) && name.ends_with(kB)) {
      if (!adapter_.find(name.substr(0, name.size() - kB.size()) + std::string(kA)))
        refuse(name, "has no lora_A that belongs to it");
      return;
    }
    if (!name.starts_with(kPrefix) || !name.ends_with(kA))
      refuse(name, "is not read: it is no matrix of an adapter of a linear layer (base_model.model.MODULE.lora_A.weight)");
    if (const std::string module = module_of(name); module.ends_with(kOfExperts) || module.ends_with(kWrapped))
      return add_of_experts(name, config);
    const std::string b = name.substr(0, name.size() - kA.size()) + std::string(kB), weight = weight_of(name, kA);
    const checkpoint::TensorInfo *const first = adapter_.find(name), *const second = adapter_.find(b),
                                        *const whole = find(weight);
    if (!second) refuse(name, "has no lora_B that belongs to it");
    const bool narrow = first->shape.dims() == 2 && second->shape.dims() == 2 && whole->shape.dims() == 2;
    const bool fits = narrow && first->shape[0] == second->shape[1] && first->shape[0] > 0 &&
                      first->shape[1] == whole->shape[transposed_ ? 0 : 1] &&
                      second->shape[0] == whole->shape[transposed_ ? 1 : 0];
    if (!fits)
      refuse(name, fmt::format("{} and its lora_B {} do not fit the weight {}", to_string(first->shape),
                               to_string(second->shape), to_string(whole->shape)));
    const std::string module = module_of(name), parameter = module + std::string(kOfLinear);
    check_says_so(name, first->shape[0], config.parameters.hold(parameter) ? parameter : module, config);
    if (config.parameters.hold(parameter)) adapted_parameters_.insert(parameter);
    matrices_[weight] = {name, b, first->shape[0], scale_of(first->shape[0], config)};
  }

  static double scale_of(int64_t rank, const AdapterConfig& config) {
    const auto r = static_cast<double>(rank);
    return config.alpha / (config.rank_stabilized ? std::sqrt(r) : r);
  }

  // The parameter that a pair of matrices adapts: that of down_proj wraps that of gate_up_proj, if there are both.
  std::string parameter_of_experts(const std::string& name, const AdapterConfig& config) const {
    std::string experts = module_of(name);
    const bool wrapped = experts.ends_with(kWrapped);
    if (wrapped) experts.resize(experts.size() - kWrapped.size());
    const std::string gate_up = experts + ".gate_up_proj", down = experts + ".down_proj";
    const bool wraps = adapter_.find(fmt::format("{}{}{}{}", kPrefix, experts, kWrapped, kA)) != nullptr;
    if (wrapped) return gate_up;
    if (wraps) return down;
    if (config.parameters.hold(gate_up) && config.parameters.hold(down))
      refuse(name, "is one of two adapters of these experts, as \"target_parameters\" say; restore the file with both");
    return config.parameters.hold(gate_up) ? gate_up : down;
  }

  void add_of_experts(const std::string& name, const AdapterConfig& config) {
    const std::string parameter = parameter_of_experts(name, config);
    const std::string b = name.substr(0, name.size() - kA.size()) + std::string(kB);
    const auto found = find_parameter(*this, parameter, experts_have_inputs_first_);
    if (!found) refuse(name, fmt::format("adapts \"{}\", which {} does not hold", printable(parameter), source()));
    if (!adapter_.find(b)) refuse(name, "has no lora_B that belongs to it");
    const Shape first = adapter_.find(name)->shape, second = adapter_.find(b)->shape;
    const int64_t rank = first.dims() == 2 ? first[0] / found->experts : 0;
    const bool fits = rank > 0 && second.dims() == 2 && first == Shape{rank * found->experts, found->in} &&
                      second == Shape{found->out, rank * found->experts};
    if (!fits)
      refuse(name, fmt::format("{} and its lora_B {} do not fit {} experts of {} outputs and {} inputs", to_string(first),
                               to_string(second), found->experts, found->out, found->in));
    check_says_so(name, rank, parameter, config);
    adapted_parameters_.insert(parameter);
    const auto shared = std::make_shared<const ParameterOfExperts>(*found);
    for (size_t part = 0; part < found->parts.size(); ++part)
      matrices_[found->parts[part].tensor] = {name, b, rank, scale_of(rank, config), shared, part};
  }

  // PEFT makes its matrices from the config and would not load, or not use, others.
  void check_says_so(const std::string& name, int64_t rank, const std::string& module, const AdapterConfig& config) const {
    if (const int64_t said = config.rank_of(module); rank != said)
      refuse(name, fmt::format(
                       "has rank {}, but {} says {} (\"r\", \"rank_pattern\"); restore the file that belongs to these weights",
                       rank, kAdapterConfigName, said));
    if (const int64_t layer = layer_of(module);
        !config.layers.empty() && std::ranges::find(config.layers, layer) == config.layers.end())
      refuse(name,
             fmt::format("adapts layer {}, which \"layers_to_transform\" of {} does not name; restore the file that belongs "
                         "to these weights",
                         layer, kAdapterConfigName));
    const bool is_excluded = config.excluded.hold(module);
    if (config.parameters.hold(module)) return;
    if (is_excluded || (config.modules && !config.modules->hold(module)))
      refuse(name,
             fmt::format("adapts a module that \"{}_modules\" of {} {}; restore the file that belongs to these weights",
                         is_excluded ? "exclude" : "target", kAdapterConfigName, is_excluded ? "names" : "does not name"));
  }

  // PEFT would begin anew with the matrices that are missing.

  void note_what_is_missing(const AdapterConfig& config) {
    constexpr size_t kMostNames = 5;
    std::vector<std::string> missing;
    if (config.modules)
      for (const std::string& end : config.modules->ends)
        if (std::ranges::none_of(matrices_, [&](const auto& one) {
              return NamedModules{{end}, {}}.hold(module_of(one.second.a));
            }))
          missing.push_back("the module " + printable(end));
    for (const std::string& end : config.parameters.ends)
      if (std::ranges::none_of(adapted_parameters_, [&](const std::string& one) { return NamedModules{{end}, {}}.hold(one); }))
        missing.push_back("the parameter " + printable(end));
    for (const int64_t layer : config.layers)
      if (std::ranges::none_of(matrices_, [&](const auto& one) { return layer_of(module_of(one.second.a)) == layer; }))
        missing.push_back(fmt::format("layer {}", layer));
    const bool are_some_of_each = missing.empty();
    for (const std::string& name : names()) {
      if (!are_some_of_each || !config.modules || !name.ends_with(kOfLinear) || matrices_.contains(name)) continue;
      const std::string module = name.substr(0, name.size() - kOfLinear.size());
      const bool is_chosen = config.layers.empty() || std::ranges::find(config.layers, layer_of(module)) != config.layers.end();
      if (is_chosen && config.modules->hold(module) && !config.excluded.hold(module)) missing.push_back(printable(module));
    }
    if (missing.empty()) return;
    const size_t others = missing.size() > kMostNames ? missing.size() - kMostNames : 0;
    missing.resize(missing.size() - others);
    adapter_notes_.push_back(fmt::format("{} names {}{}, for which the adapter has no weights", kAdapterConfigName,
                                         fmt::join(missing, ", "), others > 0 ? fmt::format(" and {} more", others) : ""));
  }

  std::vector<float> read_matrix(const std::string& name, bool transposed) const {
    const Shape shape = adapter_.find(name)->shape;
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    const Piece piece = checkpoint::whole_box_piece(name, shape, 0, {values.data(), DType::Float32, {shape.elements()}});
    adapter_.read({&piece, 1});
    if (!transposed) return values;
    std::vector<float> other(values.size());
    const auto rows = static_cast<size_t>(shape[0]), columns = static_cast<size_t>(shape[1]);
    for (size_t row = 0; row < rows; ++row)
      for (size_t column = 0; column < columns; ++column) other[column * rows + row] = values[row * columns + column];
    return other;
  }

  // A weight that is stored [inputs, outputs] gets the transpose, A^T B^T.
  void add_product(const Piece& piece, const Matrices& matrices) const {
    if (matrices.parameter) return add_to_experts(piece, matrices);
    const std::vector<float> a = read_matrix(matrices.a, transposed_), b = read_matrix(matrices.b, transposed_);
    add_low_rank(piece, {.a = transposed_ ? b : a,
                         .b = transposed_ ? a : b,
                         .rank = matrices.rank,
                         .rows = piece.shape[0],
                         .scale = matrices.scale});
  }

  // The matrices of a parameter are kept for the next piece of it, of which there is one for each expert or more.
  void add_to_experts(const Piece& piece, const Matrices& matrices) const {
    const std::scoped_lock lock(mutex_);
    if (kept_ != matrices.a) {
      kept_.clear();  // also if a read fails
      a_ = read_matrix(matrices.a, false);
      b_ = read_matrix(matrices.b, false);
      kept_ = matrices.a;
      kept_part_.clear();
    }
    const PartOfExperts& part = matrices.parameter->parts[matrices.part];
    if (kept_part_ != part.tensor) {
      added_ = added_to(part, *matrices.parameter, a_, b_, matrices.rank);
      kept_part_ = part.tensor;
    }
    Piece flat = piece;  // as a matrix, of whose box of three dims TransposedExperts reads all
    if (piece.shape.dims() == 3) {
      if (piece.box_shape != piece.shape) throw std::logic_error("adapted files: a part of a tensor of three dims");
      flat.shape = flat.box_shape = {piece.shape[0] * piece.shape[1], piece.shape[2]};
      flat.box_start = {0, 0};
    }
    add_low_rank(flat, {.a = added_.a,
                        .b = added_.b,
                        .rank = matrices.rank,
                        .rows = added_.rows,
                        .scale = matrices.scale,
                        .matrices = added_.matrices});
  }

  foreign::TensorFiles adapter_;
  std::set<std::string> adapted_parameters_;
  mutable std::mutex mutex_;
  mutable std::string kept_, kept_part_;  // the names of what `a_` and `added_` belong to
  mutable std::vector<float> a_, b_;
  mutable AddedMatrices added_;
  std::vector<std::string> adapter_notes_;
  std::map<std::string, Matrices> matrices_;  // matrices of adapted weights
  bool transposed_ = false;                   // GPT-2's are
  bool experts_have_inputs_first_ = false;
};

[[noreturn]] void refuse_folder(const std::string& folder, const std::string& what) {
  throw CheckpointError(ExitCode::Usage, fmt::format("{}: {}", printable(folder), what));
}

bool holds_model(FileSystem& files, const std::string& folder) {
  return has_file(files, folder, kConfigName) && has_weights(files, folder);
}

std::string base_of(FileSystem& files, const std::string& folder, const std::string& named) {
  if (holds_model(files, folder)) return folder;
  const std::string path = folder + "/" + kAdapterConfigName;
  if (named.empty())
    refuse_folder(folder, fmt::format("holds an adapter of PEFT (LoRA) without its model, and {} does not name it; set "
                                      "base_model_name_or_path there to the folder of the model",
                                      printable(path)));
  if (!holds_model(files, named))
    refuse_folder(folder, fmt::format("holds an adapter of PEFT (LoRA) for the model \"{0}\", and there is no such folder with "
                                      "config.json and weights here; put the model there, or its folder into "
                                      "base_model_name_or_path of {1}",
                                      printable(named), printable(path)));
  if (holds_adapter(files, named))
    refuse_folder(folder, fmt::format("holds an adapter for \"{}\", which holds an adapter itself; merge that one first",
                                      printable(named)));
  return named;
}

}  // namespace

bool holds_adapter(FileSystem& files, const std::string& folder) {
  return has_file(files, folder, kAdapterConfigName) || !adapter_weights_in(files, folder).empty();
}

ModelSource open_adapted(FileSystem& files, const std::string& folder) {
  const std::string weights = adapter_weights_in(files, folder);
  if (!has_file(files, folder, kAdapterConfigName))
    refuse_folder(folder,
                  fmt::format("holds {} without {}, which says how it is added to the model; restore that file, or move "
                              "the adapter away",
                              weights, kAdapterConfigName));
  const AdapterConfig config =
      foreign::reading_files("is it a folder that PEFT saved?", [&] { return read_adapter_config(files, folder); });
  if (weights.empty())
    refuse_folder(folder, fmt::format("holds {} without {}; restore that file, or move the other away", kAdapterConfigName,
                                      kAdapterWeightsName));
  const std::string base = base_of(files, folder, config.base);
  auto tensors = std::make_unique<AdaptedFiles>(files, base, folder, config);
  ModelSource source{.config = tensors->config(), .config_path = base + "/" + kConfigName, .notes = tensors->notes()};
  source.notes.push_back(fmt::format("the adapter of PEFT in {} was added to {} of the model in {}", printable(folder),
                                     tensors->matrices() == 1 ? "1 weight" : fmt::format("{} weights", tensors->matrices()),
                                     base == folder ? "the same folder" : printable(base)));
  source.notes.insert(source.notes.end(), tensors->adapter_notes().begin(), tensors->adapter_notes().end());
  if (has_file(files, folder, "tokenizer.json") || has_file(files, folder, "tokenizer.model")) source.tokenizer_folder = folder;
  source.tensors = std::move(tensors);
  return source;
}

}  // namespace trivet::hugging_face
