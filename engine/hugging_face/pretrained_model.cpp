#include "engine/hugging_face/pretrained_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/printable.h"
#include "engine/config/load.h"
#include "engine/hugging_face/model_files.h"
#include "model/model.h"

namespace trivet::hugging_face {

using checkpoint::MappedSource, checkpoint::TheirRows;
namespace {

// Keys of every model that change no results of training: names, tokens that only generation needs, and its options.
void ignore_common_keys(ConfigFile& file) {
  file.ignore({"_name_or_path",
               "architectures",
               "model_type",
               "torch_dtype",
               "dtype",
               "transformers_version",
               "use_cache",
               "bos_token_id",
               "eos_token_id",
               "pad_token_id",
               "unk_token_id",
               "sep_token_id",
               "cls_token_id",
               "mask_token_id",
               "decoder_start_token_id",
               "task_specific_params",
               "attn_implementation",
               "_attn_implementation",
               "return_dict",
               "output_attentions",
               "output_hidden_states",
               "id2label",
               "label2id",
               "problem_type",
               "max_length",
               "min_length",
               "do_sample",
               "temperature",
               "top_k",
               "top_p",
               "num_beams",
               "repetition_penalty",
               "chunk_size_feed_forward"});
}

// Tensors that old files hold although they follow from the config: masks and frequencies.
bool follows_from_config(const std::string& name) {
  constexpr std::array<std::string_view, 3> kEndings{".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
  return std::ranges::any_of(kEndings, [&](std::string_view ending) { return name.ends_with(ending); });
}

// A file of the model without its head has names without the prefix.
void remove_absent_prefix(const foreign::TensorFiles& files, std::string_view prefix, MappedSource::Table& table) {
  if (std::ranges::any_of(files.names(), [&](const std::string& name) { return name.starts_with(prefix); })) return;
  for (auto& [ours, all] : table)
    for (TheirRows& rows : all)
      if (rows.tensor.starts_with(prefix)) rows.tensor.erase(0, prefix.size());
}

}  // namespace

DescribedModel describe_model(std::string_view config_json, const std::string& path) {
  const Json json = checkpoint::parse_strict(config_json, path);
  if (!json.is_object()) throw ConfigError(printable(path) + ": is not an object; give a model's config.json");
  ConfigFile file(json, path);
  DescribedModel described;
  described.architecture = &architecture_of(file.text("model_type"), path);
  ignore_common_keys(file);
  const OrderedJson section = described.architecture->read(file);
  for (const std::string& key : file.finish())
    described.notes.push_back(fmt::format("{} is off and was ignored", printable(key)));
  described.config = parse_config(OrderedJson{{"model", section}}.dump(), path);
  described.config.model = model::with_defaults(described.config.model);
  return described;
}

PretrainedModel::PretrainedModel(foreign::ModelSource source)
    : source_(std::move(source)), described_(describe_model(source_.config, source_.config_path)) {
  const foreign::TensorFiles& tensors = *source_.tensors;
  described_.notes.insert(described_.notes.end(), source_.notes.begin(), source_.notes.end());
  if (description().layers > static_cast<int64_t>(tensors.names().size()))
    throw CheckpointError(ExitCode::Usage,
                          fmt::format("{}: describes {} layers, but the files hold only {} tensors",
                                      printable(source_.config_path), description().layers, tensors.names().size()));
  MappedSource::Table table = architecture().weights(description());
  remove_absent_prefix(tensors, architecture().prefix, table);
  if (source_.outputs_first)
    for (auto& [ours, all] : table)
      for (TheirRows& rows : all) rows.transposed = false;
  check_all_used(table);
  weights_ = std::make_unique<MappedSource>(tensors, std::move(table));
  check_shapes();
}

std::string PretrainedModel::kind() const {
  const std::string type(architecture().model_type);
  return source_.format.empty() ? type : fmt::format("{}, {}", type, source_.format);
}

std::string PretrainedModel::folder() const {
  const size_t slash = source_.config_path.rfind('/');
  return slash == std::string::npos ? "." : source_.config_path.substr(0, std::max<size_t>(1, slash));
}

void PretrainedModel::check_all_used(const MappedSource::Table& table) {
  std::set<std::string> used;
  for (const auto& [ours, all] : table)
    for (const TheirRows& rows : all) used.insert(rows.tensor);
  for (const std::string& name : source_.tensors->names()) {
    if (used.contains(name)) continue;
    const bool is_tied = description().tied_embedding && name == "lm_head.weight";
    if (!is_tied && !follows_from_config(name))
      throw CheckpointError(
          ExitCode::Usage,
          fmt::format("{}: tensor \"{}\" is no part of a model of the type \"{}\" with this {}; is it of another "
                      "model?",
                      source_.tensors->source(), printable(name), architecture().model_type, kConfigName));
    described_.notes.push_back(fmt::format("tensor \"{}\" was ignored: {}", printable(name),
                                           is_tied ? "tie_word_embeddings is true" : "its values follow from the config"));
  }
}

void PretrainedModel::check_shapes() const {
  const model::Model model = model::build(description());
  for (size_t layer = 0; layer < model.layers.size(); ++layer)
    for (size_t i = 0; i < model.layers[layer]->parameters().size(); ++i) {
      const ParameterSpec& spec = model.layers[layer]->parameters()[i];
      if (!spec.tied_to.empty()) continue;
      checkpoint::check_stored(*weights_, checkpoint::whole_box_piece(parameter_name(model, layer, i), spec.shape, 0,
                                                                      {nullptr, DType::Float32, {0}}));
    }
}

}  // namespace trivet::hugging_face
