#include "engine/config/other_programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/printable.h"
#include "engine/config/key_table.h"

namespace trivet::config {
namespace {

using Names = std::vector<std::string_view>;

struct Meaning {
  std::string_view path;             // Trivet's key
  Names names;                       // its names in Hugging Face's Trainer, Megatron, Lightning and others
  std::string_view difference = {};  // meaning of Trivet's value, where the same number would be wrong
};

const std::vector<Meaning>& meanings() {
  static const std::vector<Meaning> list{
      {"gradient_clipping",
       {"max_grad_norm", "max_gradient_norm", "max_norm", "grad_clip", "clip_grad", "clip_grad_norm", "grad_clip_norm",
        "gradient_clip", "gradient_clip_val", "gradient_clip_norm", "clip_norm", "grad_norm_clip", "grad_clipping",
        "clip_gradients", "gradient_clip_value"}},
      {"optimizer.params.lr", {"learning_rate", "base_lr", "initial_lr", "init_lr", "peak_lr", "lr_rate"}},
      {"optimizer.params.eps", {"epsilon", "adam_epsilon", "adam_eps"}},
      {"optimizer.params.betas", {"beta1", "beta2", "beta_1", "beta_2", "adam_beta1", "adam_beta2", "adam_betas"}},
      {"optimizer.params.weight_decay", {"wd", "decay", "l2", "adam_weight_decay"}},
      {"optimizer.params.adam_w_mode", {"decoupled_weight_decay"}},
      {"scheduler.params.warmup_num_steps",
       {"warmup_steps", "num_warmup_steps", "warmup_iters", "warmup_iterations", "warmup_step", "lr_warmup_steps",
        "lr_warmup_iters"}},
      {"scheduler.params.warmup_num_steps",
       {"warmup_ratio", "warmup_proportion", "lr_warmup_fraction"},
       "steps, not a share of the run"},
      {"scheduler.params.total_num_steps",
       {"total_steps", "num_training_steps", "total_training_steps", "total_iters", "decay_steps", "lr_decay_iters",
        "num_total_steps"}},
      {"scheduler.params.cos_min_ratio",
       {"min_lr", "lr_min", "min_lr_factor"},
       "the rate at the end as a share of lr, for WarmupCosineLR; Cosine and Linear have end_ratio"},
      {"scheduler.params.warmup_max_lr", {"max_lr", "lr_max"}},
      {"train_micro_batch_size_per_gpu",
       {"batch_size", "micro_batch_size", "micro_batch_size_per_gpu", "per_device_train_batch_size", "train_micro_batch_size",
        "batch_size_per_gpu", "per_gpu_train_batch_size", "device_batch_size", "microbatch_size", "local_batch_size"}},
      {"train_batch_size", {"global_batch_size", "total_batch_size", "effective_batch_size", "global_train_batch_size"}},
      {"gradient_accumulation_steps",
       {"accumulate_grad_batches", "gradient_accumulation", "grad_accum_steps", "grad_accumulation_steps",
        "accumulation_steps"}},
      {"zero_optimization.stage", {"zero_stage", "zero_level"}},
      {"scheduler.type", {"lr_scheduler_type", "lr_scheduler", "lr_decay_style", "decay_type"}},
      {"zero_optimization.offload_optimizer.device", {"offload_optimizer_device"}},
      {"zero_optimization.offload_param.device", {"offload_param_device"}},
      {"training.epochs", {"num_epochs", "n_epochs", "n_epoches", "num_epoches", "num_train_epochs", "max_epochs", "nepochs"}},
      {"training.steps", {"max_steps", "train_iters", "max_iters", "num_train_steps", "max_train_steps", "train_steps"}},
      {"model.sequence_length",
       {"max_seq_len", "max_seq_length", "max_sequence_length", "seq_length", "seq_len", "max_length", "model_max_length",
        "cutoff_len", "context_length", "max_len", "maxlen"}},
      {"model.layers", {"num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_transformer_layers", "depth"}},
      {"model.hidden_size", {"n_embd", "n_embed", "d_model", "hidden_dim", "embed_dim", "embedding_size", "hidden_width"}},
      {"model.heads", {"num_attention_heads", "num_heads", "n_head", "n_heads", "attention_heads", "nhead"}},
      {"model.key_value_heads",
       {"num_key_value_heads", "kv_heads", "n_kv_heads", "n_kv_head", "num_kv_heads", "num_query_groups", "kv_head"}},
      {"model.head_size", {"head_dim", "kv_channels", "d_head", "d_kv"}},
      {"model.latent_attention.query_rank", {"q_lora_rank"}},
      {"model.latent_attention.key_value_rank", {"kv_lora_rank"}},
      {"model.latent_attention.rotary_size", {"qk_rope_head_dim", "qk_pos_emb_head_dim"}},
      {"model.latent_attention.value_size", {"v_head_dim"}},
      {"model.feed_forward_size",
       {"intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", "d_ff", "mlp_size", "mlp_dim", "feed_forward_dim"}},
      {"model.sequence_length", {"max_position_embeddings", "n_positions", "n_ctx", "block_size"}},
      {"model.vocabulary",
       {"vocab_size", "vocab", "tokenizer", "tokenizer_name", "tokenizer_path", "tokenizer_model", "padded_vocab_size"}},
      {"model.vocabulary_rows",
       {"make_vocab_size_divisible_by", "pad_vocab_size_multiple"},
       "the number of rows itself, such as 50304"},
      {"model.type", {"model_type", "architecture", "arch"}},
      {"model.norm_epsilon", {"rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "layernorm_epsilon", "norm_eps"}},
      {"model.rotary_base", {"rope_theta", "rotary_emb_base", "rope_base"}},
      {"model.rotary_scaling", {"rope_scaling"}},
      {"model.attention_window", {"sliding_window", "window_size"}},
      {"model.tied_embedding", {"tie_word_embeddings", "tie_embeddings", "tied_embeddings"}},
      {"model.gate_activation", {"hidden_act", "activation_function", "hidden_activation"}},
      {"model.dropout",
       {"hidden_dropout", "attention_dropout", "resid_pdrop", "attn_pdrop", "embd_pdrop", "hidden_dropout_prob"}},
      {"model.lora.rank", {"r", "lora_r", "lora_rank"}},
      {"model.lora.alpha", {"lora_alpha"}},
      {"model.lora.targets", {"target_modules", "lora_target_modules", "target_parameters"}},
      {"model.lora.dropout", {"lora_dropout"}},
      {"model.tied_embedding", {"untie_embeddings_and_output_weights"}, "the opposite: true shares the weights"},
      {"model.initializer_range", {"init_method_std", "initializer_std"}},
      {"model.qk_norm", {"qk_layernorm"}},
      {"model.qkv_bias", {"add_qkv_bias"}},
      {"model.out_bias", {"attention_out_bias"}},
      {"model.embedding_scale", {"embedding_multiplier"}},
      {"model.residual_scale", {"residual_multiplier"}},
      {"model.no_rotary_every", {"no_rope_layer_interval"}},
      {"model.bias", {"add_bias_linear"}},
      {"model.bias", {"disable_bias_linear"}, "the opposite: false leaves biases out"},
      {"model.rotary_share", {"rotary_percent", "partial_rotary_factor"}, "a share from 0 to 1"},
      {"training.seed", {"random_seed", "manual_seed", "data_seed"}},
      {"steps_per_print", {"logging_steps", "log_interval", "log_steps", "print_interval", "log_freq"}},
      {"checkpoint.every_steps", {"save_steps", "save_interval"}},
      {"checkpoint.every_steps", {"save_strategy"}, "a number of steps; checkpoint.every_epochs counts epochs"},
      {"checkpoint.keep", {"save_total_limit", "keep_latest_k"}},
      {"checkpoint.keep_best", {"load_best_model_at_end"}},
      {"checkpoint.keep_best", {"metric_for_best_model"}, "true or false; the best has the lowest loss of an evaluation"},
      {"checkpoint.asynchronous", {"async_mode", "async_save"}, "true or false"},
      {"activation_checkpointing.mode",
       {"recompute_granularity", "recompute_method", "recompute_activations"},
       "\"full\", \"selective\" or \"none\""},
      {"activation_checkpointing.every", {"recompute_num_layers"}, "one of so many layers is recomputed"},
      {"pipeline.chunks",
       {"virtual_pipeline_model_parallel_size", "num_layers_per_virtual_pipeline_stage",
        "num_virtual_stages_per_pipeline_rank"},
       "stages per rank"},
      {"data.train", {"train_file", "data_path", "train_data_path", "dataset_path"}},
      {"data.validation", {"validation_file", "valid_data_path"}},
      {"tensorboard.enabled", {"report_to", "enable_tensorboard"}, "true or false; csv_monitor.enabled writes tables"},
      {"tensorboard.output_path", {"logging_dir", "tensorboard_dir"}},
      {"tensorboard.job_name", {"run_name", "wandb_project"}},
      {"run.directory", {"dump_folder"}},
      {"timeline.step", {"profile_freq"}, "the first step that is recorded"},
      {"device", {"use_cpu", "no_cuda"}, "\"cpu\" or \"cuda\""},
      {"data.loss_on", {"completion_only_loss", "assistant_only_loss", "train_on_inputs"}, "\"completions\" or \"all\""},
      {"model.from",
       {"model_name_or_path", "model_name", "pretrained_model_name_or_path", "base_model", "base_model_name_or_path",
        "hf_assets_path"}},
      {"checkpoint.directory", {"output_dir", "save_dir"}},
      {"training.evaluate_every", {"eval_steps", "eval_interval"}},
      {"training.evaluate_every",
       {"eval_strategy", "evaluation_strategy"},
       "a number of steps; training.evaluate_every_epochs counts epochs"},
      {"parallel.tensor",
       {"tp", "tp_size", "tp_degree", "tensor_parallel_size", "tensor_parallel_degree", "tensor_model_parallel_size", "mp_size",
        "model_parallel_size"}},
      {"parallel.pipeline",
       {"pp", "pp_size", "pp_degree", "pipeline_parallel_size", "pipeline_parallel_degree", "pipeline_model_parallel_size"}},
      {"fp16.initial_scale_power", {"initial_loss_scale"}, "the power of two"},
      {"fp16.enabled", {"use_fp16"}},
      {"bf16.enabled", {"use_bf16"}},
  };
  return list;
}

const Meaning* meaning_of(const std::string& name) {
  static const std::unordered_map<std::string_view, const Meaning*> by_name = [] {
    std::unordered_map<std::string_view, const Meaning*> all;
    for (const Meaning& meaning : meanings())
      for (const std::string_view other : meaning.names) all.emplace(other, &meaning);
    return all;
  }();
  const auto found = by_name.find(lower_words(name));
  return found == by_name.end() ? nullptr : found->second;
}

bool has(const Names& names, std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); }

std::string joined(const Names& names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

// ---- files of other programs

// Arguments that only Hugging Face's Trainer has under these names.
const Names kTrainerArguments{"output_dir",
                              "overwrite_output_dir",
                              "per_device_train_batch_size",
                              "num_train_epochs",
                              "per_device_eval_batch_size",
                              "logging_steps",
                              "logging_dir",
                              "save_steps",
                              "save_strategy",
                              "evaluation_strategy",
                              "eval_strategy",
                              "lr_scheduler_type",
                              "save_total_limit",
                              "remove_unused_columns",
                              "gradient_checkpointing",
                              "report_to",
                              "dataloader_num_workers",
                              "model_name_or_path",
                              "do_train",
                              "do_eval",
                              "eval_steps",
                              "logging_strategy",
                              "per_gpu_train_batch_size",
                              "ddp_find_unused_parameters",
                              "load_best_model_at_end"};
// Keys of a model's config.json: those of Llama and its kin, and those of GPT-2.
const Names kSizesOfModels{
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size", "n_embd", "n_layer",
    "n_head",      "n_positions"};
// Keys of Accelerate's configs.
const Names kAccelerate{"compute_environment",    "distributed_type", "deepspeed_config", "machine_rank", "main_process_port",
                        "main_training_function", "num_machines",     "rdzv_backend",     "same_network", "downcast_bf16"};
const Names kSectionsOfConfigs{
    "zero_optimization", "optimizer", "scheduler", "fp16", "bf16", "train_batch_size", "train_micro_batch_size_per_gpu"};
const Names kNamesOfConfigs{"deepspeed", "deepspeed_config", "ds_config", "deepspeed_config_file", "deepspeed_plugin"};

Names given_of(const JsonNode& object, const Names& names) {
  Names given;
  for (const JsonMember& member : object.members)
    if (has(names, member.key)) given.push_back(member.key);
  return given;
}

// "per_device_train_batch_size is train_micro_batch_size_per_gpu, learning_rate is optimizer.params.lr": of the keys given.
std::string translations(const JsonNode& object) {
  std::string text;
  for (const JsonMember& member : object.members)
    if (const std::string path = key_meant_by(member.key); !path.empty())
      text += fmt::format("{}{} is {}", text.empty() ? "" : ", ", member.key, path);
  return text.empty() ? "" : "; here " + text;
}

// The file or object that holds the config of DeepSpeed, as advice.
std::string where_the_config_is(const JsonNode& object) {
  for (const JsonMember& member : object.members) {
    if (!has(kNamesOfConfigs, member.key)) continue;
    if (member.value.kind == JsonKind::String && !member.value.text.empty())
      return fmt::format("; its config of DeepSpeed is {}: give that file", quoted(printable(member.value.text)));
    const JsonNode* file = member.value.find("deepspeed_config_file");
    if (file && file->kind == JsonKind::String)
      return fmt::format("; its config of DeepSpeed is {}: give that file", quoted(printable(file->text)));
    if (member.value.kind == JsonKind::Object && !given_of(member.value, kSectionsOfConfigs).empty())
      return fmt::format("; give the object \"{}\" as a file of its own", member.key);
  }
  return "";
}

std::string of_model(const JsonNode& root) {
  if (!describes_model_of_hugging_face(root)) return "";
  return "this is the config.json of a model in Hugging Face's format, not a config of a run; give a config, and name the "
         "folder of this file with --init-from FOLDER or \"model\": {\"from\": \"FOLDER\"} (docs/hugging_face.md)";
}

// Accelerate's plugin of DeepSpeed has a few keys of its own: {"zero_stage": 2, "gradient_accumulation_steps": 1}.
bool is_accelerates(const JsonNode& object) {
  return object.find("compute_environment") || object.find("distributed_type") || given_of(object, kAccelerate).size() >= 3;
}

std::string of_trainer(const JsonNode& root) {
  const Names given = given_of(root, kTrainerArguments);
  if (given.size() < 3 || root.find("zero_optimization")) return "";
  return fmt::format("these are arguments of Hugging Face's Trainer ({}), not a config of DeepSpeed or Trivet{}{}",
                     joined({given.begin(), given.begin() + 3}), where_the_config_is(root), translations(root));
}

std::string of_accelerate(const JsonNode& root) {
  if (!is_accelerates(root)) return "";
  const JsonNode* plugin = root.find("deepspeed_config");
  const std::string advice =
      where_the_config_is(root) + translations(plugin && plugin->kind == JsonKind::Object ? *plugin : root);
  return fmt::format("this is a config of Accelerate ({}), not of DeepSpeed or Trivet{}", joined(given_of(root, kAccelerate)),
                     advice.empty() ? "; name the config of DeepSpeed, or write one (docs/deepspeed.md)" : advice);
}

std::string of_wrapper(const JsonNode& root) {
  for (const JsonMember& member : root.members) {
    const bool names_a_config = has(kNamesOfConfigs, lower_words(member.key));
    if (names_a_config && member.value.kind == JsonKind::String && member.value.text.ends_with(".json"))
      return fmt::format(
          "\"{}\" names another file, {}, which is not read from here; give that file, or put its keys at the "
          "top level of this one",
          printable(member.key), quoted(printable(member.value.text)));
    const bool is_section = key_table().is_section(member.key);  // its brace may be missing
    if (member.value.kind != JsonKind::Object || is_section) continue;
    const Names inside = given_of(member.value, kSectionsOfConfigs);
    if (inside.size() >= (names_a_config ? 1u : 2u))
      return fmt::format("the config is inside \"{}\" ({}), where it is not read; move the keys of \"{}\" to the top level",
                         printable(member.key), joined(inside), printable(member.key));
  }
  return "";
}

// ---- YAML

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// The lines "name: value" of a text, without the spaces around both.
std::vector<std::pair<std::string, std::string>> yaml_lines(std::string_view text) {
  const auto trimmed = [](std::string_view part) {
    while (!part.empty() && is_space(part.front())) part.remove_prefix(1);
    while (!part.empty() && is_space(part.back())) part.remove_suffix(1);
    return std::string(part);
  };
  std::vector<std::pair<std::string, std::string>> lines;
  while (!text.empty() && lines.size() < 200) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t colon = line.find(':');
    const std::string name = trimmed(line.substr(0, colon));
    const bool plain = !name.empty() && std::all_of(name.begin(), name.end(),
                                                    [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; });
    if (colon != std::string_view::npos && plain) lines.emplace_back(name, trimmed(line.substr(colon + 1)));
  }
  return lines;
}

JsonNode as_object(const std::vector<std::pair<std::string, std::string>>& lines) {
  JsonNode object;
  object.kind = JsonKind::Object;
  for (const auto& [name, value] : lines) {
    JsonMember& member = object.members.emplace_back();
    member.key = name;
    member.value.kind = JsonKind::String;
    member.value.text = value;
  }
  return object;
}

// "fp16_enabled" of fp16.enabled, "optimizer_lr" of optimizer.params.lr.
std::string flattened(std::string path, bool without_params) {
  const size_t params = path.find(".params.");
  if (without_params && params != std::string::npos) path.erase(params, std::string(".params").size());
  std::ranges::replace(path, '.', '_');
  return path;
}

// The section that another name means: "zero_optimization.offload_optimizer" for "offload".
std::string section_called(const std::string& plain) {
  static const std::vector<Meaning> sections{
      {"model.lora", {"lora", "lora_config", "peft", "peft_config"}},
      {"model.rotary_scaling", {"rotary_scaling", "rope_scaling"}},
      {"fp16", {"float16", "half", "fp_16"}},
      {"bf16", {"bfloat16", "bf_16"}},
      {"optimizer", {"optim", "opt"}},
      {"scheduler", {"sched", "lr_scheduler", "lr_schedule"}},
      {"checkpoint", {"ckpt", "checkpoints"}},
      {"gradient_clipping", {"gradient_clip", "grad_clip", "clip_grad"}},
      {"activation_checkpointing", {"activation_ckpt", "activation_checkpoint", "gradient_checkpointing"}},
      {"zero_optimization", {"deepspeed_plugin"}},
      {"zero_optimization.offload_optimizer", {"offload", "optimizer_offload", "cpu_offload"}},
      {"zero_optimization.offload_param", {"param_offload", "parameter_offload"}}};
  for (const Meaning& meaning : sections)
    if (has(meaning.names, plain)) return std::string(meaning.path);
  return "";
}

}  // namespace

std::string lower_words(const std::string& name) {
  std::string text = name;
  for (char& c : text) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string key_meant_by(const std::string& name) {
  const Meaning* meaning = meaning_of(name);
  return meaning ? std::string(meaning->path) : "";
}

std::string difference_in_meaning(const std::string& name) {
  const Meaning* meaning = meaning_of(name);
  return meaning ? std::string(meaning->difference) : "";
}

std::vector<std::string> paths_with_underscores(const std::string& path) {
  if (path.find('.') == std::string::npos) return {};
  return {flattened(path, true), flattened(path, false)};
}

bool has_words_of(const std::string& name, const std::string& words) {
  constexpr size_t kLongest = 1000;  // a longer name means nothing, and looking for each section in it takes time
  if (name.size() > kLongest) return false;
  return ("_" + lower_words(name) + "_").find("_" + words + "_") != std::string::npos;
}

std::string advice_without_key(const std::string& name) {
  const std::string plain = lower_words(name);
  if (has({"resume_from_checkpoint", "resume", "auto_resume"}, plain))
    return "no key resumes a run, but the flag --resume [DIRECTORY] of `trivet train`";
  if (has({"modules_to_save"}, plain))
    return "with model.lora.rank only the adapters of model.lora.targets are trained; everything else stays frozen";
  return "";
}

std::string advice_on_renaming(const std::string& name) {
  const std::string section = section_called(lower_words(name));
  return section.empty() ? "" : fmt::format("the section is called {} here", section);
}

bool changes_weights(const std::string& path) {
  return path == "gradient_clipping" || path.starts_with("optimizer.") || path.starts_with("scheduler.") ||
         path.starts_with("train_") || path == "gradient_accumulation_steps" || path.starts_with("zero_optimization.") ||
         path.starts_with("fp16.") || path.starts_with("bf16.");
}

bool is_setting_of_a_program(const std::string& name) {
  if (const std::string path = key_meant_by(name); !path.empty()) return !changes_weights(path);
  static const Names words{
      "num",        "n",           "max",        "min",        "total",      "seq",       "sequence",    "len",
      "length",     "lengths",     "epoch",      "epochs",     "process",    "processes", "proc",        "gpu",
      "gpus",       "node",        "nodes",      "nnodes",     "worker",     "workers",   "world",       "size",
      "rank",       "local",       "global",     "logging",    "log",        "save",      "saving",      "eval",
      "evaluation", "test",        "valid",      "validation", "val",        "step",      "steps",       "interval",
      "every",      "freq",        "frequency",  "print",      "report",     "random",    "master",      "port",
      "ids",        "id",          "version",    "timeout",    "limit",      "data",      "dataset",     "datasets",
      "dataloader", "shard",       "shards",     "cache",      "new",        "token",     "tokens",      "generate",
      "generation", "beam",        "beams",      "top",        "k",          "p",         "temperature", "lora",
      "r",          "alpha",       "image",      "images",     "resolution", "class",     "classes",     "labels",
      "keep",       "patience",    "device",     "devices",    "machine",    "machines",  "cpus",        "cpu",
      "threads",    "iters",       "iterations", "samples",    "sample",     "of",        "per",         "memory",
      "ckpt",       "checkpoints", "parallel",   "tp",         "pp",         "dp",        "sp",          "host",
      "hosts",      "retries",     "restarts",   "number",     "count"};
  std::string word;
  for (const char c : lower_words(name) + "_") {
    if (c != '_') {
      word += c;
      continue;
    }
    if (!word.empty() && !has(words, word)) return false;
    word.clear();
  }
  return true;
}

std::string advice_on_other_section(const std::string& name) {
  const std::string plain = lower_words(name);
  if (has({"msamp", "ms_amp", "fp8", "float8", "fp4", "transformer_engine", "te", "nvfp4", "mxfp8"}, plain))
    return fmt::format(
        "training in 8-bit or 4-bit floating point is not implemented; use bf16.enabled, and set {}.enabled to "
        "false, or remove the section",
        printable(name));
  if (has({"sequence_parallel", "sequence_parallelism", "ulysses"}, plain))
    return "use \"parallel\": {\"tensor\": N, \"sequence_parallel\": true}, which divides sequences among the N tensor ranks, "
           "or "
           "remove the section";
  if (has({"tensor_model_parallel", "model_parallel", "tensor_parallelism", "tp", "autotp"}, plain))
    return "use \"parallel\": {\"tensor\": N}, or remove the section";
  if (has({"pipeline_parallel", "pipeline_parallelism", "pp"}, plain))
    return "use \"parallel\": {\"pipeline\": N}, or remove the section";
  const std::string section = section_called(plain);
  return section.empty() ? "" : fmt::format("the section is called {} here; rename it, or remove it", section);
}

std::string advice_on_data_axis(const std::string& section, const std::string& name) {
  const std::string plain = lower_words(name);
  static const Names names{"dp",
                           "dp_size",
                           "dp_degree",
                           "data_parallel",
                           "data_parallel_degree",
                           "data_parallel_world_size",
                           "data_parallel_shard_degree",
                           "data_parallel_replicate_degree"};
  if (!has(names, plain) && !(section == "parallel" && plain == "data")) return "";
  return "no key says how many ranks are data-parallel: it is those that parallel.tensor and parallel.pipeline leave of all "
         "(--ranks, or trivet launch); remove the key";
}

std::string advice_on_dtype(const std::string& section, const std::string& name) {
  if (!section.empty() && section != "model" && section != "training") return "";
  if (!has({"dtype", "torch_dtype", "param_dtype", "params_dtype", "precision", "mixed_precision"}, lower_words(name)))
    return "";
  return "bf16.enabled or fp16.enabled says it, at the top level; without them float32 trains";
}

bool describes_model_of_hugging_face(const JsonNode& root) {
  const JsonNode* type = root.find("model_type");
  const JsonNode* architectures = root.find("architectures");
  const bool is_named = (type && type->kind == JsonKind::String) || (architectures && architectures->kind == JsonKind::List);
  return is_named && given_of(root, kSizesOfModels).size() >= 2 && given_of(root, kSectionsOfConfigs).empty() &&
         !root.find("model");
}

std::string why_not_a_config(const JsonNode& root) {
  if (root.kind != JsonKind::Object) return "";
  for (const std::string& why : {of_model(root), of_accelerate(root), of_trainer(root), of_wrapper(root)})
    if (!why.empty()) return why;
  return "";
}

std::string why_not_json(std::string_view text) {
  const auto lines = yaml_lines(text);
  const auto first = std::find_if_not(text.begin(), text.end(), is_space);
  if (lines.size() < 2 || first == text.end() || *first == '{' || *first == '[' || *first == '"') return "";
  const std::string why = why_not_a_config(as_object(lines));
  return why.empty() ? "this looks like YAML; a config is JSON, { \"key\": value, ... }" : why;
}

}  // namespace trivet::config
