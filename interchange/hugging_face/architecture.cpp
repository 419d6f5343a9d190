#include "interchange/hugging_face/architecture.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/printable.h"
#include "model/model.h"

namespace trivet::hugging_face {

std::span<const Architecture> architectures() {
  static const Architecture all[] = {
      gpt2(),      llama(),     mistral(), qwen2(),    qwen3(),       phi3(),        gemma2(),        gemma3(),  mixtral(),
      qwen3_moe(), qwen2_moe(), dots1(),   glm4_moe(), deepseek_v2(), deepseek_v3(), glm4_moe_lite(), smollm3(), seed_oss(),
      granite(),   olmo2(),     olmo3(),   olmoe(),    exaone4(),     ministral3(),  gpt_oss()};
  return all;
}

const Architecture& architecture_of(const std::string& model_type, const std::string& path) {
  const auto found = std::ranges::find(architectures(), std::string_view(model_type), &Architecture::model_type);
  if (found != architectures().end()) return *found;
  std::string known;
  for (const Architecture& architecture : architectures())
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", architecture.model_type);
  throw ConfigError(
      fmt::format("{}: model_type: \"{}\" is not accepted; use one of {}", printable(path), printable(model_type), known));
}

std::set<std::string> float32_tensors(const Architecture& architecture, const model::Description& description) {
  const checkpoint::MappedSource::Table table = architecture.weights(description);
  const model::Model model = model::build(description);
  std::set<std::string> tensors;
  for (size_t layer = 0; layer < model.layers.size(); ++layer)
    for (size_t i = 0; i < model.layers[layer]->parameters().size(); ++i)
      if (model.layers[layer]->parameters()[i].keeps_float32)
        for (const checkpoint::TheirRows& rows : table.at(model::parameter_name(model, layer, i))) tensors.insert(rows.tensor);
  return tensors;
}

}  // namespace trivet::hugging_face
