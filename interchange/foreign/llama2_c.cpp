#include "interchange/foreign/llama2_c.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "interchange/foreign/flat_file.h"

namespace trivet::foreign {
namespace {

constexpr int32_t kLlama2Magic = 0x616b3432;  // "ak42"
constexpr size_t kModelSizes = 7;
constexpr int64_t kLlama2HeaderBytes = 256, kOldLlama2HeaderBytes = kModelSizes * sizeof(int32_t);

// C hidden, F feed-forward, L layers, N heads, K heads of keys and values, V vocabulary, T positions, D head size
struct Sizes {
  int64_t C, F, L, N, K, V, T, D;
  bool tied;
};

Sizes read_sizes(std::span<const int32_t> header, bool tied, const FlatFile& file) {
  Sizes sizes{.C = file.positive("dim", header[0]),
              .F = file.positive("hidden_dim", header[1]),
              .L = file.positive("n_layers", header[2], kMostLayers),
              .N = file.positive("n_heads", header[3]),
              .K = file.positive("n_kv_heads", header[4]),
              .V = file.positive("vocab_size", header[5]),
              .T = file.positive("max_seq_len", header[6]),
              .D = 0,
              .tied = tied};
  if (sizes.C % sizes.N != 0 || sizes.C / sizes.N % 2 != 0)
    file.refuse(fmt::format("dim {} is not {} heads of an even size", sizes.C, sizes.N));
  if (sizes.N % sizes.K != 0) file.refuse(fmt::format("{} heads are no multiple of n_kv_heads {}", sizes.N, sizes.K));
  sizes.D = sizes.C / sizes.N;
  return sizes;
}

// Adds tensors in the order of the file.
class Reader {
 public:
  Reader(FlatFile& file, TensorFiles& to, const Sizes& sizes) : file_(file), to_(to), s_(sizes) {}

  void embedding() { add("model.embed_tokens.weight", {s_.V, s_.C}); }
  void head() {
    if (!s_.tied) add("lm_head.weight", {s_.V, s_.C});
  }
  void last_norm() { add("model.norm.weight", {s_.C}); }
  void attention_norms() { of_layers("input_layernorm", {s_.C}); }
  void mlp_norms() { of_layers("post_attention_layernorm", {s_.C}); }
  void attention() {
    of_heads("self_attn.q_proj", s_.N);
    of_heads("self_attn.k_proj", s_.K);
    of_layers("self_attn.v_proj", {s_.K * s_.D, s_.C});
    of_layers("self_attn.o_proj", {s_.C, s_.C});
  }
  void mlp() {
    of_layers("mlp.gate_proj", {s_.F, s_.C});
    of_layers("mlp.down_proj", {s_.C, s_.F});
    of_layers("mlp.up_proj", {s_.F, s_.C});
  }

 private:
  static std::string name(int64_t layer, const char* what) { return fmt::format("model.layers.{}.{}.weight", layer, what); }
  void add(const std::string& name, const Shape& shape) { to_.add(name, DType::Float32, shape, file_.take(shape)); }
  void of_layers(const char* what, const Shape& shape) {
    for (int64_t i = 0; i < s_.L; ++i) add(name(i, what), shape);
  }
  void of_heads(const char* what, int64_t heads) {
    const Shape shape{heads * s_.D, s_.C};
    for (int64_t i = 0; i < s_.L; ++i)
      to_.add(name(i, what), DType::Float32, shape, rows_as_halves(file_.take(shape), heads, s_.D, s_.C, DType::Float32));
  }

  FlatFile& file_;
  TensorFiles& to_;
  const Sizes& s_;
};

std::string config_of(const Sizes& s) {
  return nlohmann::ordered_json{{"model_type", "llama"},        {"vocab_size", s.V},
                                {"hidden_size", s.C},           {"intermediate_size", s.F},
                                {"num_hidden_layers", s.L},     {"num_attention_heads", s.N},
                                {"num_key_value_heads", s.K},   {"max_position_embeddings", s.T},
                                {"rms_norm_eps", 1e-5},         {"rope_theta", 10000.0},
                                {"tie_word_embeddings", s.tied}}
      .dump();
}

Sizes read_old(const ReadableFile& file, TensorFiles& to) {
  std::vector<int32_t> header = read_integers(file, kModelSizes);
  FlatFile flat(file, "llama2.c", DType::Float32, kOldLlama2HeaderBytes);
  const bool tied = header[5] > 0;
  if (!tied && header[5] > -(1 << 30)) header[5] = -header[5];
  const Sizes sizes = read_sizes(header, tied, flat);
  Reader reader(flat, to, sizes);
  reader.embedding();
  reader.attention_norms();
  reader.attention();
  reader.mlp_norms();
  reader.mlp();
  reader.last_norm();
  for (int table = 0; table < 2; ++table) flat.take({sizes.T, sizes.D / 2});  // cosines and sines, which nobody needs
  reader.head();
  flat.finish();
  return sizes;
}

Sizes read_version_1(const ReadableFile& file, TensorFiles& to) {
  FlatFile flat(file, "llama2.c", DType::Float32, kLlama2HeaderBytes);
  const std::vector<int32_t> header = read_integers(file, 2 + kModelSizes + 1);
  const Sizes sizes = read_sizes(std::span(header).subspan(2, kModelSizes), (header.back() & 0xff) != 0, flat);
  Reader reader(flat, to, sizes);
  reader.attention_norms();
  reader.mlp_norms();
  reader.last_norm();
  reader.embedding();
  reader.attention();
  reader.mlp();
  reader.head();
  flat.finish();
  return sizes;
}

int version_of(const ReadableFile& file) {
  const std::vector<int32_t> header = read_integers(file, 2);
  return header.size() == 2 && header[0] == kLlama2Magic ? header[1] : 0;
}

}  // namespace

bool is_llama2_c(const ReadableFile& file) {
  if (version_of(file) != 0) return true;
  try {
    TensorFiles unused(file.path());
    read_old(file, unused);
    return true;
  } catch (const CheckpointError&) {
    return false;
  }
}

ModelSource open_llama2_c(FileSystem& files, const std::string& path) {
  ModelSource source{.tensors = std::make_unique<TensorFiles>(path), .config_path = path};
  const ReadableFile& file = source.tensors->keep(files.open(path));
  const int version = version_of(file);
  if (version != 0 && version != 1)
    FlatFile(file, "llama2.c", DType::Float32, 0)
        .refuse_kind(fmt::format("version {} is not accepted (2 is in 8 bits); write it with export.py --version 1", version));
  source.config = config_of(version == 0 ? read_old(file, *source.tensors) : read_version_1(file, *source.tensors));
  source.format = fmt::format("llama2.c, version {}", version);
  return source;
}

}  // namespace trivet::foreign
