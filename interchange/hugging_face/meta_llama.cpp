#include "interchange/hugging_face/meta_llama.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/printable.h"
#include "interchange/foreign/flat_file.h"
#include "interchange/foreign/pt_file.h"
#include "interchange/hugging_face/config_file.h"
#include "interchange/hugging_face/model_files.h"

namespace trivet::hugging_face {

using foreign::PtFile, foreign::PtTensor, foreign::Run, foreign::TensorFiles;
namespace {

constexpr const char* kParams = "params.json";
constexpr int64_t kLlama2Length = 4096, kLlama3Length = 8192;
constexpr double kLlama3RotaryBase = 500'000;
// Llama 3.1 and later. Meta's own code has 8 as a constant; the models of Llama 3.2 with 1B and 3B were trained with 32.
constexpr int64_t kScaledLength = 131'072, kLengthBeforeScaling = 8192;
constexpr double kScalingFactor = 8, kScalingFactorOfSmallModels = 32;

std::string part_name(size_t rank) { return fmt::format("consolidated.{:02}.pth", rank); }

// C hidden, N heads, K heads of keys and values, D head size
struct Params {
  int64_t C, N, K, D, layers;
  double norm_epsilon, rotary_base;
  bool scaled = false, states_factor = false;
  double scaling_factor = 1, high_frequency_factor = 4;
};

bool is_small_llama32(const Params& p) { return (p.C == 2048 && p.layers == 16) || (p.C == 3072 && p.layers == 28); }

int64_t longest_sequence(const Params& p) {
  if (p.scaled) return kScaledLength;
  return p.rotary_base >= kLlama3RotaryBase ? kLlama3Length : kLlama2Length;
}

void read_scaled_rope(ConfigFile& file, Params& params) {
  params.scaled = file.flag("use_scaled_rope", false);
  const double usual = is_small_llama32(params) ? kScalingFactorOfSmallModels : kScalingFactor;
  params.states_factor = file.has("rope_scaling_factor");
  params.scaling_factor = file.number("rope_scaling_factor", usual);
  params.high_frequency_factor = file.number("rope_high_freq_factor", params.high_frequency_factor);
  file.require(params.scaling_factor >= 1, "rope_scaling_factor", "use at least 1");
  file.require(params.high_frequency_factor > 1, "rope_high_freq_factor", "use more than 1");
}

Params read_params(const Json& json, const std::string& path) {
  if (!json.is_object()) throw ConfigError(printable(path) + ": is not an object");
  ConfigFile file(json, path);
  Params params{.C = file.size("dim"),
                .N = file.size("n_heads"),
                .K = 0,
                .D = 0,
                .layers = file.size("n_layers"),
                .norm_epsilon = file.number("norm_eps"),
                .rotary_base = file.number("rope_theta", 10'000)};
  params.K = file.size("n_kv_heads", params.N);
  file.require(params.N > 0 && params.C > 0 && params.C % params.N == 0 && params.C / params.N % 2 == 0, "n_heads",
               fmt::format("use a number of heads of an even size in dim {}", params.C));
  params.D = params.C / params.N;
  file.require(params.K > 0 && params.N % params.K == 0, "n_kv_heads", fmt::format("use a divisor of n_heads {}", params.N));
  read_scaled_rope(file, params);
  // The sizes of the matrices say the rest.
  file.ignore({"vocab_size", "multiple_of", "ffn_dim_multiplier", "max_batch_size", "max_seq_len"});
  file.finish();
  return params;
}

struct Matrix {
  DType dtype = DType::Float32;
  int64_t rows = 0, columns = 0;
  std::vector<Run> runs;
};

// The files of all ranks, as one model.
class Parts {
 public:
  Parts(FileSystem& files, const std::string& path, TensorFiles& to) : path_(printable(path)), to_(to) {
    while (files.kind(path + "/" + part_name(parts_.size())) == EntryKind::File) {
      const PtFile file(to.keep(files.open(path + "/" + part_name(parts_.size()))));
      parts_.emplace_back();
      for (auto& [name, tensor] : file.tensors(file.root())) parts_.back().insert_or_assign(name, tensor);
    }
  }

  // A matrix of `columns` columns, whose rows or columns are divided among the ranks.
  Matrix matrix(const std::string& name, int64_t columns) {
    used_.insert(name);
    const PtTensor& first = at(0, name);
    const bool by_rows = parts_.size() == 1 || first.shape[1] == columns;
    Matrix whole{.dtype = first.dtype, .rows = by_rows ? 0 : first.shape[0]};
    for (size_t rank = 0; rank < parts_.size(); ++rank) {
      const PtTensor& part = at(rank, name);
      if (part.dtype != first.dtype || (by_rows ? part.shape[1] != columns : part.shape[0] != whole.rows))
        refuse(name, fmt::format("is {} {} in {}, which does not fit {} columns", name_of(part.dtype), to_string(part.shape),
                                 part_name(rank), columns));
      Run run = part.run;
      if (by_rows) {
        run.first = whole.rows * columns;
        run.elements = part.shape.elements();
        whole.rows += part.shape[0];
      } else {
        run.first = whole.columns;
        run.elements = run.file_step = part.shape[1];
        run.repeats = part.shape[0];
        run.step = columns;
        whole.columns += part.shape[1];
      }
      whole.runs.push_back(run);
    }
    if (!by_rows && whole.columns != columns)
      refuse(name, fmt::format("has {} columns in all files, but {} are needed", whole.columns, columns));
    whole.columns = columns;
    return whole;
  }

  // Adds a matrix under the name that transformers gives it. `rows`: how many it must have; 0: any number.
  void add(const std::string& theirs, const std::string& name, Matrix whole, int64_t rows = 0) {
    if (whole.rows == 0 || (rows != 0 && whole.rows != rows))
      refuse(name, fmt::format("has {} rows in all files, but {} are needed", whole.rows, rows));
    to_.add(theirs, whole.dtype, {whole.rows, whole.columns}, std::move(whole.runs));
  }

  void add_heads(const std::string& theirs, const std::string& name, int64_t heads, const Params& p) {
    Matrix whole = matrix(name, p.C);
    std::vector<Run> runs;
    for (const Run& part : whole.runs) {
      const int64_t here = part.elements / (p.D * p.C);
      if (here * p.D * p.C != part.elements) refuse(name, fmt::format("is not divided into whole heads of {} rows", p.D));
      const auto halves = foreign::rows_as_halves(part, here, p.D, p.C, whole.dtype);
      runs.insert(runs.end(), halves.begin(), halves.end());
    }
    whole.runs = std::move(runs);
    add(theirs, name, std::move(whole), heads * p.D);
  }

  // Each rank has all of a vector.
  void add_vector(const std::string& theirs, const std::string& name) {
    used_.insert(name);
    const PtTensor& tensor = at(0, name, 1);
    to_.add(theirs, tensor.dtype, tensor.shape, tensor.run);
  }

  // Adds tensors that were not asked for under their own names, which no model has, so they will be refused.
  void add_rest() {
    used_.insert("rope.freqs");  // follows from params.json
    for (const auto& [name, tensor] : parts_.front())
      if (!used_.contains(name)) to_.add(name, tensor.dtype, tensor.shape, tensor.run);
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& what) const {
    throw CheckpointError(ExitCode::Usage, fmt::format("{}: tensor \"{}\" {}", path_, name, what));
  }
  const PtTensor& at(size_t rank, const std::string& name, int dims = 2) const {
    const auto found = parts_[rank].find(name);
    if (found == parts_[rank].end()) refuse(name, fmt::format("is absent from {}", part_name(rank)));
    if (found->second.shape.dims() != dims || found->second.shape.elements() == 0)
      refuse(name, fmt::format("has the shape {} in {}", to_string(found->second.shape), part_name(rank)));
    return found->second;
  }

  std::string path_;
  TensorFiles& to_;
  std::vector<std::map<std::string, PtTensor>> parts_;  // each rank's tensors, by name
  std::set<std::string> used_;
};

}  // namespace

bool is_meta_llama(FileSystem& files, const std::string& path) {
  return files.kind(path + "/" + kParams) != EntryKind::Missing && files.kind(path + "/" + part_name(0)) != EntryKind::Missing;
}

foreign::ModelSource open_meta_llama(FileSystem& files, const std::string& path, const std::string&) {
  return foreign::reading_files("give the folder with params.json and consolidated.00.pth", [&] {
    foreign::ModelSource source{.tensors = std::make_unique<TensorFiles>(path), .config_path = path + "/" + kParams};
    const std::string text = read_text(files, source.config_path, kConfigLimitBytes);
    const Params p = read_params(checkpoint::parse_strict(text, source.config_path), source.config_path);
    if (files.kind(path + "/" + part_name(0)) != EntryKind::File) files.open(path + "/" + part_name(0));  // says why not
    Parts parts(files, path, *source.tensors);
    Matrix embedding = parts.matrix("tok_embeddings.weight", p.C);
    const int64_t vocabulary = embedding.rows;
    parts.add("model.embed_tokens.weight", "tok_embeddings.weight", std::move(embedding));
    parts.add("lm_head.weight", "output.weight", parts.matrix("output.weight", p.C), vocabulary);
    parts.add_vector("model.norm.weight", "norm.weight");
    int64_t feed_forward = 0;
    for (int64_t i = 0; i < p.layers; ++i) {
      const std::string ours = fmt::format("layers.{}.", i), theirs = fmt::format("model.layers.{}.", i);
      parts.add_vector(theirs + "input_layernorm.weight", ours + "attention_norm.weight");
      parts.add_vector(theirs + "post_attention_layernorm.weight", ours + "ffn_norm.weight");
      parts.add_heads(theirs + "self_attn.q_proj.weight", ours + "attention.wq.weight", p.N, p);
      parts.add_heads(theirs + "self_attn.k_proj.weight", ours + "attention.wk.weight", p.K, p);
      const auto add = [&](const char* their_name, const char* our_name, int64_t rows, int64_t columns) {
        const std::string name = ours + our_name + ".weight";
        parts.add(theirs + their_name + ".weight", name, parts.matrix(name, columns), rows);
      };
      add("self_attn.v_proj", "attention.wv", p.K * p.D, p.C);
      add("self_attn.o_proj", "attention.wo", p.C, p.C);
      if (i == 0) feed_forward = parts.matrix(ours + "feed_forward.w1.weight", p.C).rows;
      add("mlp.gate_proj", "feed_forward.w1", feed_forward, p.C);
      add("mlp.up_proj", "feed_forward.w3", feed_forward, p.C);
      add("mlp.down_proj", "feed_forward.w2", p.C, feed_forward);
    }
    parts.add_rest();
    const int64_t length = longest_sequence(p);
    source.notes.push_back(fmt::format("params.json does not say how long sequences may be: at most {} was taken", length));
    if (p.scaled && !p.states_factor)
      source.notes.push_back(
          fmt::format("rotary frequencies are scaled by {} as in {}; if the model has another factor, add "
                      "\"rope_scaling_factor\" to params.json",
                      p.scaling_factor, is_small_llama32(p) ? "Llama 3.2" : "Llama 3.1"));
    nlohmann::ordered_json config{{"model_type", "llama"},
                                  {"vocab_size", vocabulary},
                                  {"hidden_size", p.C},
                                  {"intermediate_size", feed_forward},
                                  {"num_hidden_layers", p.layers},
                                  {"num_attention_heads", p.N},
                                  {"num_key_value_heads", p.K},
                                  {"max_position_embeddings", length},
                                  {"rms_norm_eps", p.norm_epsilon},
                                  {"rope_theta", p.rotary_base},
                                  {"tie_word_embeddings", false}};
    if (p.scaled)
      config["rope_scaling"] = {{"rope_type", "llama3"},
                                {"factor", p.scaling_factor},
                                {"low_freq_factor", 1.0},
                                {"high_freq_factor", p.high_frequency_factor},
                                {"original_max_position_embeddings", kLengthBeforeScaling}};
    source.config = config.dump();
    source.format = "Meta's format";
    return source;
  });
}

}  // namespace trivet::hugging_face
