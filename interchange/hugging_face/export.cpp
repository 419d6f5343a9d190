#include "interchange/hugging_face/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "core/bounded_json.h"
#include "core/error.h"
#include "core/folder_claim.h"
#include "core/open_files.h"
#include "core/printable.h"
#include "data/chat_template.h"
#include "data/tokenizer.h"
#include "engine/checkpoint/converted_source.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/steps.h"
#include "engine/config/explain.h"
#include "engine/config/load.h"
#include "interchange/hugging_face/adapted_files.h"
#include "interchange/hugging_face/merged_source.h"
#include "interchange/hugging_face/model_files.h"
#include "interchange/hugging_face/peft.h"
#include "interchange/hugging_face/peft_experts.h"
#include "interchange/hugging_face/pretrained_model.h"
#include "interchange/hugging_face/same_model.h"
#include "interchange/hugging_face/text_files.h"
#include "interchange/hugging_face/transposed_experts.h"

namespace trivet::hugging_face {

using checkpoint::ConvertedSource, checkpoint::LoadedStep, checkpoint::MappedSource, checkpoint::TensorEntry,
    checkpoint::TensorSource, checkpoint::TheirRows;
namespace {

constexpr int64_t kElementsAtOnce = int64_t{1} << 22;

// Files that go with a model and that training does not change.
constexpr std::array<std::string_view, 9> kCompanions{"generation_config.json",
                                                      "tokenizer.json",
                                                      "tokenizer_config.json",
                                                      "special_tokens_map.json",
                                                      "added_tokens.json",
                                                      "vocab.json",
                                                      "merges.txt",
                                                      "tokenizer.model",
                                                      "chat_template.jinja"};
constexpr int64_t kCompanionLimitBytes = int64_t{256} << 20;

model::Description description_of(const LoadedStep& step, const std::string& path) {
  refuse_embedded(step, "checkpoint export");
  const Config config = parse_config(step.config(), step.directory() + "/manifest.json");
  const checkpoint::TensorInfo* const table = step.find("embedding.tokens.weight");
  if (!table || table->shape.dims() != 2)
    throw ConfigError(fmt::format("{}: its model of type \"{}\" cannot be exported; only models of text can", printable(path),
                                  name_of(config.model.type)));
  return model::with_defaults(model::with_vocabulary(config.model, table->shape[0]));
}

const Architecture& choose_architecture(const model::Description& description, const std::string& model_type,
                                        const std::string& path) {
  std::string reasons, known;
  for (const Architecture& architecture : architectures()) {
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", architecture.model_type);
    if (!model_type.empty() && architecture.model_type != model_type) continue;
    const std::string obstacle = architecture.obstacle(description);
    if (obstacle.empty()) return architecture;
    reasons += fmt::format("{}\"{}\": {}", reasons.empty() ? "" : "; ", architecture.model_type, obstacle);
  }
  if (reasons.empty())
    throw ConfigError(fmt::format("--architecture {}: is not known; use one of {}", printable(model_type), known));
  throw ConfigError(fmt::format("{}: no architecture of Hugging Face can store this model: {}", printable(path), reasons));
}

// The tables of weights say which rows of theirs make a tensor of ours. This says which rows of ours make a tensor of theirs.
MappedSource::Table inverted(const MappedSource::Table& table, const LoadedStep& ours) {
  std::map<std::string, std::map<int64_t, TheirRows>> by_row;  // [tensor of theirs][its row] rows of ours from there on
  for (const auto& [name, all] : table) {
    const checkpoint::TensorInfo* const stored = ours.find(name);
    int64_t first = 0;
    for (const TheirRows& rows : all) {
      if (rows.transposed) {  // the whole tensor
        by_row[rows.tensor][0] = {.tensor = name, .transposed = true, .plus = -rows.plus};
        continue;
      }
      const int64_t count = rows.count > 0 || !stored ? rows.count : stored->shape[0] - first;
      by_row[rows.tensor][rows.first] = {.tensor = name, .first = first, .count = count, .plus = -rows.plus};
      first += count;
    }
  }
  MappedSource::Table inverse;
  for (auto& [name, all] : by_row)
    for (auto& [row, rows] : all) inverse[name].push_back(std::move(rows));
  return inverse;
}

std::vector<std::string> names_of(const MappedSource::Table& table) {
  std::vector<std::string> names;
  for (const auto& [name, rows] : table) names.push_back(name);
  return names;
}

// The type of each tensor in the files.
struct TensorTypes {
  DType of_most = DType::Float32;
  std::set<std::string> float32;

  DType of(const std::string& name) const { return float32.contains(name) ? DType::Float32 : of_most; }
};

// The tensors of each file.
std::vector<std::vector<std::string>> divide(const MappedSource::Table& table, const TensorSource& source,
                                             const TensorTypes& types, const ExportOptions& options) {
  std::vector<std::vector<std::string>> shards;
  int64_t bytes = 0;
  for (const auto& [name, rows] : table) {
    const int64_t of_tensor = source.find(name)->shape.elements() * size_of(types.of(name));
    if (shards.empty() || (bytes > 0 && bytes + of_tensor > options.shard_bytes)) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(name);
    bytes += of_tensor;
  }
  return shards;
}

std::string types_that_hold(float value) {
  if (!std::isfinite(value)) return "the weights cannot be used";
  const bool fits = std::isfinite(static_cast<float>(static_cast<bfloat16>(value)));
  return fits ? "use --dtype bfloat16 or --dtype float32" : "use --dtype float32";
}

// Throws ConfigError for a value that the type cannot hold: programs that read the tensor would find an infinite one.
// `chosen_by`: what named the type.
template <typename T>
void narrow(std::span<const float> from, std::byte* to, const std::string& tensor, DType dtype, const std::string& chosen_by) {
  for (size_t i = 0; i < from.size(); ++i) {
    const T value = static_cast<T>(from[i]);
    if (!std::isfinite(static_cast<float>(value)))
      throw ConfigError(fmt::format("{} {}: tensor \"{}\" has the value {}, which is too large for this type; {}", chosen_by,
                                    name_of(dtype), printable(tensor), from[i], types_that_hold(from[i])));
    std::memcpy(to + i * sizeof(T), static_cast<const void*>(&value), sizeof(T));
  }
}

// Writes the files of one export.
class Writer {
 public:
  Writer(FileSystem& files, const TensorSource& source, TensorTypes types, const ExportOptions& options)
      : files_(files), source_(source), types_(std::move(types)), options_(options) {}

  void write_text_file(const std::string& name, std::string_view text) {
    write_text(files_, path(name + ".tmp"), text);
    finish(name);
  }

  void write_tensors(const std::string& name, const std::vector<std::string>& tensors) {
    checkpoint::SafetensorsHeader header;
    for (const std::string& tensor : tensors)
      header.tensors.push_back({tensor, types_.of(tensor), source_.find(tensor)->shape, 0, 0});
    const std::string start = checkpoint::layout_safetensors(header);
    const auto file = files_.create(path(name + ".tmp"), header.data_start + header.tensors.back().end);
    file->write(start);
    for (const TensorEntry& entry : header.tensors) write_tensor(*file, entry);
    file->sync();
    file->close();
    finish(name);
  }

 private:
  std::string path(const std::string& name) const { return options_.output + "/" + name; }
  void finish(const std::string& name) { files_.rename(path(name + ".tmp"), path(name)); }

  void write_tensor(WritableFile& file, const TensorEntry& entry) {
    const int64_t elements = entry.shape.elements();
    for (int64_t done = 0; done < elements; done += kElementsAtOnce) {
      const int64_t count = std::min(kElementsAtOnce, elements - done);
      values_.resize(count);
      const checkpoint::Piece piece =
          checkpoint::whole_box_piece(entry.name, entry.shape, done, {values_.data(), DType::Float32, {count}});
      source_.read({&piece, 1});
      bytes_.resize(count * size_of(entry.dtype));
      switch (entry.dtype) {
        case DType::BFloat16: narrow<bfloat16>(values_, bytes_.data(), entry.name, entry.dtype, options_.dtype_from); break;
        case DType::Float16: narrow<float16>(values_, bytes_.data(), entry.name, entry.dtype, options_.dtype_from); break;
        default: narrow<float>(values_, bytes_.data(), entry.name, entry.dtype, options_.dtype_from);
      }
      file.write(bytes_);
    }
  }

  FileSystem& files_;
  const TensorSource& source_;
  TensorTypes types_;
  const ExportOptions& options_;
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
};

std::string config_text(const Architecture& architecture, const model::Description& description, const TextTokens& tokens,
                        DType dtype) {
  OrderedJson json{{"architectures", {architecture.class_name}}, {"model_type", architecture.model_type}};
  architecture.write(description, json);
  write_token_ids(tokens, json);
  json["torch_dtype"] = name_of(dtype);
  json["use_cache"] = true;
  return json.dump(2) + "\n";
}

// The text of the original's config.json with another dtype, which transformers calls torch_dtype or dtype, and without what
// says that weights are quantized.
std::string config_text_like(const std::string& original, DType dtype) {
  OrderedJson json = OrderedJson::parse(original);
  json[json.contains("dtype") ? "dtype" : "torch_dtype"] = name_of(dtype);
  json.erase("quantization_config");
  return json.dump(2) + "\n";
}

std::string index_text(const std::vector<std::string>& files, const std::vector<std::vector<std::string>>& shards,
                       int64_t bytes) {
  OrderedJson map = OrderedJson::object();
  for (size_t i = 0; i < shards.size(); ++i)
    for (const std::string& tensor : shards[i]) map[tensor] = files[i];
  return OrderedJson{{"metadata", {{"total_size", bytes}}}, {"weight_map", map}}.dump(2) + "\n";
}

// The first file of an export, and the last that it removes.
constexpr const char* kUnfinished = ".trivet-export-unfinished";

bool is_of_export(std::string_view name) {
  if (name.ends_with(".tmp")) name.remove_suffix(4);
  if (name.starts_with("model") && name.ends_with(kSafetensors.ending)) return true;
  return std::ranges::find(kCompanions, name) != kCompanions.end() || name == kIndexName || name == kConfigName ||
         name == kAdapterConfigName || name == kAdapterWeightsName || name == kUnfinished;
}

// Returns what an interrupted export has left. Throws ConfigError if there is anything else.
std::vector<DirectoryEntry> leavings(FileSystem& files, const std::string& output) {
  std::vector<DirectoryEntry> entries = files.list(output);
  std::erase_if(entries, [](const DirectoryEntry& entry) { return entry.name == kClaimName; });
  const bool continues = files.kind(output + "/" + kUnfinished) == EntryKind::File &&
                         std::ranges::all_of(entries, [](const DirectoryEntry& entry) {
                           return entry.kind == EntryKind::File && is_of_export(entry.name);
                         });
  if (!entries.empty() && !continues)
    throw ConfigError(fmt::format("--output {}: is not empty; choose another directory", printable(output)));
  return entries;
}

// Removes what an interrupted export has left, but nothing that somebody has added to it. The folder belongs to this export
// while the result lives.
std::unique_ptr<FolderClaim> begin_directory(FileSystem& files, const std::string& output) {
  create_directories(files, output);
  leavings(files, output);  // before anything is written to a folder of somebody else
  auto claim = std::make_unique<FolderClaim>(files, output);
  if (!claim->other().empty())
    throw ConfigError(fmt::format("--output {}: {} is exporting to it; wait until it has ended, or choose another directory",
                                  printable(output), printable(claim->other())));
  for (const DirectoryEntry& entry : leavings(files, output))
    if (entry.name != kUnfinished) files.remove(output + "/" + entry.name);
  write_text(files, output + "/" + kUnfinished, "");
  return claim;
}

void end_directory(FileSystem& files, const std::string& output) {
  files.sync_directory(output);
  files.remove(output + "/" + kUnfinished);
}

// The files that go with the weights: taken from `like`, or made here.
struct Companions {
  const Architecture* architecture = nullptr;
  std::string config;
  std::map<std::string, std::string> files;
  std::vector<std::string> notes;
};

ChatTemplate chat_template_of(const LoadedStep& step, const ExportOptions& options) {
  if (options.chat_template != ChatTemplate::None) return options.chat_template;
  return parse_config(step.config(), step.directory() + "/manifest.json").data.chat_template;
}

// Returns the text. Facts about tokens in a file of the original may change here, so a broken one is refused.
std::string checked_companion(std::string text, const std::string& path) {
  const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
  const bool is_small =
      name == "generation_config.json" || name == "tokenizer_config.json" || name == "special_tokens_map.json";
  const auto is_object = [&] {
    return json_excess(text, {.levels = 64}).empty() && nlohmann::json::parse(text, nullptr, false).is_object();
  };
  if (is_small && !is_object())
    throw ConfigError(fmt::format("--like: {} is no JSON object; restore or remove it", printable(path)));
  return text;
}

// The tokenizer that goes with the weights is that of the checkpoint, if it holds one.
void settle_tokenizer(const std::string& stored, const std::string& like, Companions& companions) {
  if (stored.empty()) return;
  const auto ours = data::tokenizer_file_of(stored);
  const auto refuse = [&](const std::string& file) {
    throw ConfigError(
        fmt::format("--like {}: its {} is not the tokenizer of the checkpoint, whose tokens the weights have "
                    "learned; name the folder of the model that training began with, or leave --like out",
                    printable(like), file));
  };
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const auto theirs = companions.files.find(name);
    if (theirs == companions.files.end() || (ours && ours->name != name)) continue;
    if (!ours || !data::encode_alike(ours->content, theirs->second)) refuse(name);
    return;
  }
  if (!ours) return;
  companions.files.emplace(ours->name, ours->content);
  companions.notes.push_back(
      fmt::format("--like {} has no {}, so that of the checkpoint was written", printable(like), ours->name));
}

Companions companions_like(FileSystem& models, const LoadedStep& step, const model::Description& description,
                           const ExportOptions& options) {
  const std::string path = options.like + "/" + kConfigName;
  if (models.kind(path) != EntryKind::File)
    throw ConfigError(fmt::format(
        "--like {}: there is no file {} in it; name the folder of the model that training began with{}",
        printable(options.like), kConfigName, holds_adapter(models, options.like) ? ", not that of its adapter" : ""));
  const std::string original = read_text(models, path, kConfigLimitBytes);
  const DescribedModel described = describe_model(original, path);
  if (const std::string difference = model_difference(description, described.config.model); !difference.empty())
    throw ConfigError(
        fmt::format("--like {}: describes another model: in the checkpoint, {}", printable(options.like), difference));
  if (!options.model_type.empty() && options.model_type != described.architecture->model_type)
    throw ConfigError(fmt::format("--architecture {}: --like {} is of the type \"{}\"; leave one of both out",
                                  printable(options.model_type), printable(options.like), described.architecture->model_type));
  Companions companions{described.architecture, config_text_like(original, *options.dtype), {}, {}};
  for (const std::string_view name : kCompanions) {
    const std::string file = options.like + "/" + std::string(name);
    const EntryKind kind = models.kind(file);
    if (kind == EntryKind::File)
      companions.files.emplace(name, checked_companion(read_text(models, file, kCompanionLimitBytes), file));
    else if (kind != EntryKind::Missing)
      companions.notes.push_back(
          fmt::format("{} was not copied, because it is a folder, a pipe or a device; put the "
                      "file itself there",
                      printable(file)));
  }
  settle_tokenizer(step.run_state().tokenizer, options.like, companions);
  const ChatTemplate chat_template = chat_template_of(step, options);
  const TemplateOfOriginal kept = options.keep_template                         ? TemplateOfOriginal::Stays
                                  : options.chat_template != ChatTemplate::None ? TemplateOfOriginal::ReplacedByFlag
                                                                                : TemplateOfOriginal::Replaced;
  std::string tokenizer = step.run_state().tokenizer;
  if (const auto found = companions.files.find("tokenizer.json"); tokenizer.empty() && found != companions.files.end())
    tokenizer = found->second;
  for (std::string& change :
       adapt_to_template(text_tokens_of(tokenizer, chat_template), chat_template, kept, companions.config, companions.files))
    companions.notes.push_back(std::move(change));
  return companions;
}

// Adds notes on tokens that a program that generates text would miss.
void add_notes_on_tokens(const TextTokens& tokens, const std::string& tokenizer, ChatTemplate chat_template,
                         std::vector<std::string>& notes) {
  if (chat_template != ChatTemplate::None) {
    if (std::string lack = lacks_end_of_answer(tokens, chat_template); !lack.empty()) notes.push_back(std::move(lack));
  } else if (const ChatTemplate likely = template_with_tokens_of(tokenizer); likely != ChatTemplate::None) {
    notes.push_back(fmt::format(
        "the config of the run names no data.chat_template, so none was written; --chat-template {} does it", name_of(likely)));
  }
  if (tokens.end_ids.empty())
    notes.emplace_back("the tokenizer has no token that ends a text, so generation stops only at its limit of tokens");
}

// transformers 5 takes a class of tokenizers by the type of the model where it is "qwen2", and that class brings its own rule
// for where words end. Empty: the tokenizer has that rule.
std::string other_words_in_transformers(std::string_view model_type, const std::string& tokenizer) {
  constexpr std::string_view kRuleOfQwen = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^)";
  if (model_type != "qwen2" || tokenizer.find(kRuleOfQwen) != std::string::npos) return "";
  return "transformers reads the tokenizer of a model of type \"qwen2\" as Qwen2Tokenizer, whatever the folder says, which "
         "divides "
         "text into other words than the training did; load it with PreTrainedTokenizerFast.from_pretrained";
}

Companions make_companions(const LoadedStep& step, const model::Description& description, const std::string& checkpoint,
                           const ExportOptions& options) {
  const Architecture& architecture = choose_architecture(description, options.model_type, checkpoint);
  const std::string& text = step.run_state().tokenizer;
  const auto tokenizer = data::tokenizer_file_of(text);
  if (!tokenizer) return {&architecture, config_text(architecture, description, {}, *options.dtype), {}, {}};
  const ChatTemplate chat_template = chat_template_of(step, options);
  const TextTokens tokens = text_tokens_of(text, chat_template);
  Companions companions{&architecture, config_text(architecture, description, tokens, *options.dtype), {}, {}};
  companions.files = {
      {tokenizer->name, tokenizer->content},
      {"generation_config.json", generation_config_text(tokens)},
      {"tokenizer_config.json", tokenizer_config_text(tokens, tokenizer->name, chat_template, description.sequence_length)}};
  add_notes_on_tokens(tokens, text, chat_template, companions.notes);
  if (std::string other = other_words_in_transformers(architecture.model_type, tokenizer->content); !other.empty())
    companions.notes.push_back(std::move(other));
  return companions;
}

void check_lora(const model::Description& description, const ExportOptions& options, const std::string& checkpoint) {
  if (description.lora.enabled() && options.lora == LoraExport::None)
    throw ConfigError(fmt::format(
        "{}: its model has low-rank adapters (model.lora); give --lora merged for a model of its own, in which they are added "
        "to the weights, or --lora peft for the adapters alone",
        printable(checkpoint)));
  if (!description.lora.enabled() && options.lora != LoraExport::None)
    throw ConfigError(
        fmt::format("--lora: the model of {} has no low-rank adapters (model.lora); leave --lora out", printable(checkpoint)));
  if (options.lora == LoraExport::Peft && (options.keep_template || options.chat_template != ChatTemplate::None))
    throw ConfigError(
        "--chat-template has no effect with --lora peft, which writes adapters alone: the template belongs to the model "
        "that they are added to; leave it out, or use --lora merged");
}

// Writes adapter_model.safetensors and adapter_config.json.
bool states_quantization(FileSystem& models, const std::string& folder) {
  const std::string path = folder + "/" + kConfigName;
  if (models.kind(path) != EntryKind::File) return false;
  const Json config = Json::parse(read_text(models, path, kConfigLimitBytes), nullptr, false);
  return config.is_object() && config.contains("quantization_config") && !config.at("quantization_config").is_null();
}

Exported write_adapters(FileSystem& files, const TensorSource& weights, const model::Description& description,
                        const Architecture& architecture, const ExportOptions& options) {
  const PeftAdapters adapters = peft_adapters(architecture, description, options.like);
  const PeftExperts with_experts(weights, description, architecture.transposed_experts);
  const MappedSource source(with_experts, adapters.tensors);
  const auto claim = begin_directory(files, options.output);
  Exported exported{.model_type = std::string(architecture.model_type)};
  Writer writer(files, source, {*options.dtype, {}}, options);
  std::vector<std::string> names;
  for (const auto& [name, rows] : adapters.tensors) {
    names.push_back(name);
    exported.bytes += source.find(name)->shape.elements() * size_of(*options.dtype);
  }
  writer.write_tensors(kAdapterWeightsName, names);
  writer.write_text_file(kAdapterConfigName, adapters.config);  // last: without it, no program takes the folder for adapters
  end_directory(files, options.output);
  exported.files = {kAdapterWeightsName, kAdapterConfigName};
  if (options.like.empty())
    exported.notes.emplace_back(
        "adapter_config.json names no base model; name the folder of the original model with --like to store its path");
  else if (adapters.of_parameters && states_quantization(options.models ? *options.models : files, options.like))
    exported.notes.emplace_back(
        "the weights of --like are quantized, and PEFT finds no parameters of experts if transformers keeps them so: load the "
        "model with quantization_config=Mxfp4Config(dequantize=True)");
  return exported;
}

// A step is removed with all that lies in it, and holds nothing but its own files.
void check_output_is_elsewhere(const LoadedStep& step, const std::string& output) {
  std::error_code none;
  const auto folder = std::filesystem::weakly_canonical(step.directory(), none),
             place = std::filesystem::weakly_canonical(output, none);
  if (std::mismatch(folder.begin(), folder.end(), place.begin(), place.end()).first != folder.end()) return;
  throw ConfigError(fmt::format("--output {}: lies in the step that is exported, {}; name a place outside of it",
                                printable(output), printable(step.directory())));
}

Exported write_step(FileSystem& files, const LoadedStep& step, const std::string& checkpoint, const ExportOptions& options) {
  check_output_is_elsewhere(step, options.output);
  const model::Description description = description_of(step, checkpoint);
  check_lora(description, options, checkpoint);
  const ConvertedSource as_float32(step, DType::Float32);  // frozen weights are stored in the dtype of the run
  check_shapes(as_float32, description);
  const Companions companions = options.like.empty()
                                    ? make_companions(step, description, checkpoint, options)
                                    : companions_like(options.models ? *options.models : files, step, description, options);
  const Architecture& architecture = *companions.architecture;
  if (options.lora == LoraExport::Peft) return write_adapters(files, as_float32, description, architecture, options);
  const MappedSource::Table table = inverted(architecture.weights(description), step);
  const std::unique_ptr<MergedSource> merged =
      description.lora.enabled() ? std::make_unique<MergedSource>(as_float32, description) : nullptr;
  const TensorSource& weights = merged ? static_cast<const TensorSource&>(*merged) : as_float32;
  const MappedSource mapped(weights, table);
  const std::unique_ptr<TransposedExperts> transposed =
      architecture.transposed_experts
          ? std::make_unique<TransposedExperts>(mapped, names_of(table), description, TransposedExperts::To::Theirs)
          : nullptr;
  const TensorSource& source = transposed ? static_cast<const TensorSource&>(*transposed) : mapped;
  const TensorTypes types{*options.dtype, float32_tensors(architecture, description)};
  const auto shards = divide(table, source, types, options);
  const auto claim = begin_directory(files, options.output);
  Exported exported{.model_type = std::string(architecture.model_type)};
  Writer writer(files, source, types, options);
  std::vector<std::string> names;
  for (size_t i = 0; i < shards.size(); ++i) {
    names.push_back(shards.size() == 1 ? kWeightsName : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
    writer.write_tensors(names.back(), shards[i]);
    for (const std::string& tensor : shards[i])
      exported.bytes += source.find(tensor)->shape.elements() * size_of(types.of(tensor));
  }
  exported.files = names;
  const auto add = [&](const std::string& name, const std::string& text) {
    writer.write_text_file(name, text);
    exported.files.push_back(name);
  };
  if (shards.size() > 1) add(kIndexName, index_text(names, shards, exported.bytes));
  for (const auto& [name, text] : companions.files) add(name, text);
  add(kConfigName, companions.config);  // last: without it, no program takes the folder for a model
  end_directory(files, options.output);
  exported.notes.insert(exported.notes.end(), companions.notes.begin(), companions.notes.end());
  if (!companions.files.contains("tokenizer.json") && !companions.files.contains("tokenizer.model"))
    exported.notes.emplace_back("the folder has no tokenizer; name the folder of the original model with --like to copy its");
  return exported;
}

// Checks whether the config.json of a folder names bfloat16.
bool states_bfloat16(FileSystem& models, const std::string& folder) {
  const std::string path = folder + "/" + kConfigName;
  if (folder.empty() || models.kind(path) != EntryKind::File) return false;
  const Json config = Json::parse(read_text(models, path, kConfigLimitBytes), nullptr, false);
  return std::ranges::any_of(std::array{"dtype", "torch_dtype"}, [&](const char* key) {
    return config.is_object() && config.contains(key) && config.at(key) == name_of(DType::BFloat16);
  });
}

// As programs that train in 16 bits save: in the type of the original, or of the model that the run began with if that is still
// there, or else of the layers of the run. Adapters are small. Returns a sentence if that is narrower than what was trained.
std::string choose_usual_dtype(FileSystem& models, const LoadedStep& step, ExportOptions& options) {
  const auto choose = [&](DType dtype, std::string from) {
    options.dtype = dtype;
    options.dtype_from = std::move(from);
    return "";
  };
  if (options.lora == LoraExport::Peft) return choose(DType::Float32, "the type of adapters");
  if (const std::string path = options.like + "/" + kConfigName;
      !options.like.empty() && models.kind(path) == EntryKind::File) {
    const Json original = Json::parse(read_text(models, path, kConfigLimitBytes), nullptr, false);
    for (const char* key : {"dtype", "torch_dtype"})
      if (original.is_object() && original.contains(key) && original.at(key).is_string())
        for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16})
          if (original.at(key).get<std::string>() == name_of(dtype))
            return choose(dtype, fmt::format("{} of {},", key, printable(path)));
    return choose(DType::Float32, fmt::format("the default type of {},", printable(path)));
  }
  const Config run = parse_config(step.config(), step.directory() + "/manifest.json");
  // float16 cannot hold all weights
  if (run.model_dtype() != DType::Float32 || !states_bfloat16(models, run.model_from))
    return choose(run.model_dtype() == DType::BFloat16 ? DType::BFloat16 : DType::Float32, "the type of the run,");
  choose(DType::BFloat16, fmt::format("the type of {},", printable(run.model_from)));
  return fmt::format("the run trained in float32, and the weights are in bfloat16, as those of {}; --dtype float32 keeps them",
                     printable(run.model_from));
}

Exported write_all(FileSystem& files, const std::string& checkpoint, ExportOptions options) {
  std::vector<std::string> passed_over;
  const LoadedStep step =
      checkpoint::open_path(files, checkpoint::follow_name(files, checkpoint), checkpoint::StepFiles::All, &passed_over);
  FileSystem& models = options.models ? *options.models : files;
  const std::string note = options.dtype ? "" : choose_usual_dtype(models, step, options);
  Exported exported = write_step(files, step, checkpoint, options);
  if (!note.empty()) exported.notes.push_back(note);
  exported.dtype = *options.dtype;
  exported.notes.insert(exported.notes.begin(), passed_over.begin(), passed_over.end());
  return exported;
}

}  // namespace

Exported export_model(FileSystem& files, const std::string& checkpoint, const ExportOptions& options) {
  try {
    return write_all(files, checkpoint, options);
  } catch (const FileError& error) {
    check_open_files(options.output, error.error_number());
    throw CheckpointError(ExitCode::CheckpointNotWritten, fmt::format("the model was not exported: {}", error.what()));
  }
}

}  // namespace trivet::hugging_face
