#include "interchange/foreign/llm_c.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "interchange/foreign/flat_file.h"

namespace trivet::foreign {
namespace {

constexpr int32_t kGpt2 = 20240326, kLlama3 = 20240803;
constexpr int32_t kFloat32 = 3, kBFloat16 = 5;
constexpr size_t kHeaderIntegers = 256, kUsedIntegers = 8;

int32_t magic_of(const ReadableFile& file) {
  const std::vector<int32_t> header = read_integers(file, 1);
  return header.empty() ? 0 : header[0];
}

}  // namespace

bool is_llm_c(const ReadableFile& file) { return magic_of(file) == kGpt2 || magic_of(file) == kLlama3; }

// C hidden, L layers, V vocabulary, T positions
ModelSource open_llm_c(FileSystem& files, const std::string& path) {
  ModelSource source{.tensors = std::make_unique<TensorFiles>(path), .config_path = path, .outputs_first = true};
  const ReadableFile& file = source.tensors->keep(files.open(path));
  const std::vector<int32_t> header = read_integers(file, kUsedIntegers);
  const int32_t version = header.size() == kUsedIntegers ? header[1] : 0;
  const DType dtype = version == kBFloat16 ? DType::BFloat16 : DType::Float32;
  FlatFile flat(file, "llm.c", dtype, static_cast<int64_t>(kHeaderIntegers * sizeof(int32_t)));
  if (header[0] != kGpt2)
    flat.refuse_kind(fmt::format("it begins with {}, a GPT-2 with {}; other models are not accepted", header[0], kGpt2));
  if (version != kFloat32 && version != kBFloat16)
    flat.refuse_kind(
        fmt::format("version {} is not accepted; write it with a newer llm.c, which makes version {} (float32) or {} "
                    "(bfloat16)",
                    version, kFloat32, kBFloat16));
  const int64_t T = flat.positive("the number of positions", header[2]), V = flat.positive("the vocabulary", header[3]);
  const int64_t L = flat.positive("the number of layers", header[4], kMostLayers),
                heads = flat.positive("the number of heads", header[5]);
  const int64_t C = flat.positive("the hidden size", header[6]), rows = flat.positive("the padded vocabulary", header[7]);
  if (rows < V) flat.refuse(fmt::format("its embedding has {} rows, fewer than the vocabulary of {}", rows, V));

  const auto add = [&](const std::string& name, const Shape& shape) {
    source.tensors->add("transformer." + name, dtype, shape, flat.take(shape));
  };
  const auto of_layers = [&](const char* name, const Shape& shape) {
    for (int64_t i = 0; i < L; ++i) add(fmt::format("h.{}.{}", i, name), shape);
  };
  add("wte.weight", {V, C});
  flat.take({rows - V, C});
  add("wpe.weight", {T, C});
  of_layers("ln_1.weight", {C});
  of_layers("ln_1.bias", {C});
  of_layers("attn.c_attn.weight", {3 * C, C});
  of_layers("attn.c_attn.bias", {3 * C});
  of_layers("attn.c_proj.weight", {C, C});
  of_layers("attn.c_proj.bias", {C});
  of_layers("ln_2.weight", {C});
  of_layers("ln_2.bias", {C});
  of_layers("mlp.c_fc.weight", {4 * C, C});
  of_layers("mlp.c_fc.bias", {4 * C});
  of_layers("mlp.c_proj.weight", {C, 4 * C});
  of_layers("mlp.c_proj.bias", {C});
  add("ln_f.weight", {C});
  add("ln_f.bias", {C});
  flat.finish();

  nlohmann::ordered_json config{{"model_type", "gpt2"}, {"vocab_size", V}, {"n_positions", T},
                                {"n_embd", C},          {"n_layer", L},    {"n_head", heads}};
  for (const char* dropout : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config[dropout] = 0.0;  // llm.c has none
  source.config = config.dump();
  source.format = fmt::format("llm.c, version {}", version);
  return source;
}

}  // namespace trivet::foreign
