#include "interchange/hugging_face/pretrained_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/printable.h"
#include "engine/config/load.h"
#include "interchange/hugging_face/fused_experts.h"
#include "interchange/hugging_face/model_files.h"
#include "interchange/hugging_face/same_model.h"
#include "interchange/hugging_face/transposed_experts.h"
#include "model/model.h"

namespace trivet::hugging_face {

using checkpoint::MappedSource, checkpoint::TensorSource, checkpoint::TheirRows;
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

constexpr const char* kHead = "lm_head.weight";
constexpr int64_t kComparedAtOnce = int64_t{1} << 20;  // elements

// The newest transformers whose classes were read to see which keys they use.
constexpr std::pair<int, int> kExaminedVersion{5, 24};

bool is_of_newer_transformers(const Json& config) {
  const auto version = config.find("transformers_version");
  if (version == config.end() || !version->is_string()) return false;
  int major = 0, minor = 0;
  if (std::sscanf(version->get_ref<const std::string&>().c_str(), "%d.%d", &major, &minor) < 1) return false;
  return std::pair(major, minor) > kExaminedVersion;
}

// Keys that no class of a model reads, but the loading of every model: other weights or none.
constexpr const char* kQuantization = "quantization_config";
constexpr std::array<std::string_view, 5> kKeysOfLoading{kQuantization, "quantization", "compression_config", "pruned_heads",
                                                         "transformers_weights"};

// Checks whether the file says that weights are in MXFP4. The types that can be so read no other key of quantization; which
// tensors it is, the files say.
bool states_mxfp4(ConfigFile& file, const Architecture& architecture) {
  if (!architecture.may_be_mxfp4) return false;
  std::optional<ConfigFile> quantization = file.object(kQuantization);
  if (!quantization || quantization->text("quant_method", "") != "mxfp4") return false;
  quantization->ignore({"modules_to_not_convert", "dequantize"});
  quantization->finish();
  return true;
}

// The architectures read each key that transformers' class of the model reads; no other changes a result.
void add_unread_keys(const Json& json, const ConfigFile& file, const Architecture& architecture, bool mxfp4,
                     std::vector<std::string>& notes) {
  if (json.contains("is_causal") && json["is_causal"] == false)  // read where masks of all classes are made
    file.refuse("is_causal", "the models that are read here see the tokens before each alone; use true");
  for (const std::string_view key : kKeysOfLoading)
    if (!file.is_off(std::string(key)) && !(mxfp4 && key == kQuantization))
      file.refuse(std::string(key), architecture.may_be_mxfp4
                                        ? "only weights in float32, bfloat16 or float16 are read, and those of experts in MXFP4"
                                        : "only weights in float32, bfloat16 or float16 are read, all of them");
  std::vector<std::string> unread = file.unread();
  if (is_of_newer_transformers(json))
    for (const std::string& key : unread)
      if (json.contains(key) && !file.is_off(key))
        file.refuse(key, fmt::format("this key of the model is not known here, and the file is of a transformers newer than "
                                     "{}.{}; if it changes no results, remove it",
                                     kExaminedVersion.first, kExaminedVersion.second));
  std::erase_if(unread, [](const std::string& key) { return std::ranges::find(kKeysOfLoading, key) != kKeysOfLoading.end(); });
  for (std::string& key : unread) key = printable(key);
  if (!unread.empty())
    notes.push_back(fmt::format("{} no result of transformers' {} and {} ignored: {}",
                                unread.size() == 1 ? "1 key changes" : fmt::format("{} keys change", unread.size()),
                                architecture.class_name, unread.size() == 1 ? "was" : "were", fmt::join(unread, ", ")));
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

// The section "model" that a config.json means. It has no places in that file, so messages name its keys alone.
Config config_of(const OrderedJson& section, const std::string& path) {
  const std::string source = "model of config.json", text = OrderedJson{{"model", section}}.dump();
  try {
    Config config = parse_config(text, source);
    config.source = path;
    return config;
  } catch (const ConfigError& error) {
    std::string message = error.what();
    for (size_t at = message.find(source + ":"); at != std::string::npos; at = message.find(source + ":", at)) {
      const size_t end = message.find_first_not_of("0123456789:", at + source.size());
      message.erase(at, std::min(message.find_first_not_of(' ', end), message.size()) - at);
    }
    throw ConfigError(fmt::format("{}: describes a model that is not accepted: {}", printable(path), message));
  }
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
  described.notes = file.notes();
  described.mxfp4 = states_mxfp4(file, *described.architecture);
  add_unread_keys(json, file, *described.architecture, described.mxfp4, described.notes);
  described.config = config_of(section, path);
  described.config.model = model::with_defaults(described.config.model);
  return described;
}

PretrainedModel::PretrainedModel(foreign::ModelSource source)
    : source_(std::move(source)), described_(describe_model(source_.config, source_.config_path)) {
  const foreign::TensorFiles& tensors = *source_.tensors;
  described_.notes.insert(described_.notes.end(), source_.notes.begin(), source_.notes.end());
  const bool fused = architecture().fused_weights && holds_fused_experts(tensors);
  const std::set<std::string> packed = settle_mxfp4();
  check_enough_tensors(fused || architecture().transposed_experts);
  if (fused) settle_fused_experts(*source_.tensors, description());
  MappedSource::Table table = fused ? architecture().fused_weights(description()) : architecture().weights(description());
  remove_absent_prefix(tensors, architecture().prefix, table);
  if (source_.outputs_first)
    for (auto& [ours, all] : table)
      for (TheirRows& rows : all) rows.transposed = false;
  settle_tied_head(table);
  check_all_used(table);
  if (architecture().transposed_experts)
    experts_ =
        std::make_unique<TransposedExperts>(tensors, tensors.names(), description(), TransposedExperts::To::Ours, packed);
  weights_ = std::make_unique<MappedSource>(experts_ ? *experts_ : static_cast<const TensorSource&>(tensors), std::move(table));
  check_shapes(*weights_, description());
}

PretrainedModel PretrainedModel::described_alone(FileSystem& files, const std::string& config_path) {
  PretrainedModel model;
  model.source_.config = read_text(files, config_path, kConfigLimitBytes);
  model.source_.config_path = config_path;
  model.described_ = describe_model(model.source_.config, config_path);
  return model;
}

std::string PretrainedModel::kind() const {
  const std::string type(architecture().model_type);
  return source_.format.empty() ? type : fmt::format("{}, {}", type, source_.format);
}

std::string PretrainedModel::stated_type() const {
  const Json config = Json::parse(source_.config, nullptr, false);
  for (const char* key : {"dtype", "torch_dtype"})
    if (config.is_object() && config.contains(key) && config.at(key).is_string()) return config.at(key).get<std::string>();
  return "";
}

std::string PretrainedModel::folder() const {
  if (!source_.tokenizer_folder.empty()) return source_.tokenizer_folder;
  const size_t slash = source_.config_path.rfind('/');
  return slash == std::string::npos ? "." : source_.config_path.substr(0, std::max<size_t>(1, slash));
}

std::set<std::string> PretrainedModel::settle_mxfp4() {
  if (!architecture().may_be_mxfp4) return {};
  std::set<std::string> packed = source_.tensors->join_mxfp4();
  if (packed.empty() == !described_.mxfp4) return packed;
  throw CheckpointError(
      ExitCode::Usage,
      fmt::format("{}: {}: {}", source_.tensors->source(), kQuantization,
                  packed.empty() ? "says that experts are in MXFP4, but no tensor is; remove the key"
                                 : "is absent, but experts are in MXFP4; is the config.json of another model?"));
}

// Keeps tables small that a config.json asks for. Their errors name the tensor if only some are absent.
void PretrainedModel::check_enough_tensors(bool fused) const {
  const model::Description& d = description();
  const auto held = static_cast<int64_t>(source_.tensors->names().size());
  const auto dense = static_cast<int64_t>(d.experts.dense_blocks.size());
  const bool apart = d.experts.enabled() && !fused;
  if (d.layers <= held && (!apart || d.experts.count * (d.layers - dense) <= held)) return;
  throw CheckpointError(ExitCode::Usage, fmt::format("{}: describes {} layers{}, but the files hold only {} tensors",
                                                     printable(source_.config_path), d.layers,
                                                     apart ? fmt::format(" of {} experts", d.experts.count) : "", held));
}

void PretrainedModel::check_all_used(const MappedSource::Table& table) {
  std::set<std::string> used;
  for (const auto& [ours, all] : table)
    for (const TheirRows& rows : all) used.insert(rows.tensor);
  std::vector<std::string> ignored;
  std::map<std::string, int> left_out;  // how many tensors for each reason
  for (const std::string& name : source_.tensors->names()) {
    if (used.contains(name)) continue;
    const std::string why =
        architecture().why_left_out ? architecture().why_left_out(*source_.tensors, description(), name) : "";
    if (!why.empty()) {
      ++left_out[why];
      continue;
    }
    const bool is_tied = description().tied_embedding && name == kHead;
    if (!is_tied && !follows_from_config(name))
      throw CheckpointError(
          ExitCode::Usage,
          fmt::format("{}: tensor \"{}\" is no part of a model of the type \"{}\" with this {}; is it of another "
                      "model?",
                      source_.tensors->source(), printable(name), architecture().model_type, kConfigName));
    if (!is_tied) ignored.push_back(printable(name));
  }
  for (const auto& [why, count] : left_out)
    described_.notes.push_back(
        fmt::format("{} left out: {}", count == 1 ? "1 tensor was" : fmt::format("{} tensors were", count), why));
  if (!ignored.empty())
    described_.notes.push_back(fmt::format(
        "{} ignored, as the config says the same: {}",
        ignored.size() == 1 ? "1 tensor was" : fmt::format("{} tensors were", ignored.size()), fmt::join(ignored, ", ")));
}

// A tied head may be stored twice, or alone. If both differ, transformers 5 keeps them apart, and versions before it tie them
// to the embedding: the folder contradicts itself.
void PretrainedModel::settle_tied_head(MappedSource::Table& table) {
  const foreign::TensorFiles& tensors = *source_.tensors;
  if (!description().tied_embedding || !tensors.find(kHead)) return;
  TheirRows& embedding = table.at("embedding.tokens.weight").at(0);
  if (!tensors.find(embedding.tensor))
    embedding.tensor = kHead;
  else if (!are_equal(embedding.tensor, kHead))
    throw CheckpointError(
        ExitCode::Usage,
        fmt::format(
            "{}: tensors \"{}\" and \"{}\" differ, but {} says that they are one (tie_word_embeddings: true); set it to "
            "false to train both, as transformers 5 reads them, or remove the second one, as older versions do",
            tensors.source(), embedding.tensor, kHead, printable(source_.config_path)));
}

bool PretrainedModel::are_equal(const std::string& one, const std::string& other) const {
  const foreign::TensorFiles& tensors = *source_.tensors;
  if (tensors.share_elements(one, other)) return true;
  const Shape shape = tensors.find(one)->shape;
  if (shape != tensors.find(other)->shape || tensors.find(one)->dtype != tensors.find(other)->dtype) return false;
  if (tensors.find(one)->dtype != DType::Float32) return false;
  std::vector<float> a, b;
  for (int64_t done = 0; done < shape.elements(); done += kComparedAtOnce) {
    const int64_t count = std::min(kComparedAtOnce, shape.elements() - done);
    for (const auto& [name, values] : {std::pair(&one, &a), std::pair(&other, &b)}) {
      values->resize(static_cast<size_t>(count));
      const checkpoint::Piece piece =
          checkpoint::whole_box_piece(*name, shape, done, {values->data(), DType::Float32, {count}});
      tensors.read({&piece, 1});
    }
    if (std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace trivet::hugging_face
