#include "interchange/hugging_face/norms_after.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace trivet::hugging_face {

void add_norms_after(OrderedJson& model) {
  model["pre_norm"] = false;
  model["post_norm"] = true;
}

std::string norms_after_obstacle(const model::Description& d, model::Description& rest) {
  if (d.type != model::Type::Llama) return fmt::format("model.type is \"{}\"", name_of(d.type));
  if (d.pre_norm) return "model.pre_norm is true";
  rest = d;
  rest.pre_norm = true;
  rest.post_norm = false;
  return "";
}

checkpoint::MappedSource::Table weights_with_norms_after(const model::Description& d) {
  checkpoint::MappedSource::Table table = llama_like_weights(d);
  for (int64_t i = 0; i < d.layers; ++i) {
    const std::string ours = fmt::format("blocks.{}.", i), theirs = fmt::format("model.layers.{}.", i);
    for (const char* norm : {"norm1.gain", "norm2.gain"}) table.erase(ours + norm);
    table[ours + "post_norm1.gain"] = {{theirs + "post_attention_layernorm.weight"}};
    table[ours + "post_norm2.gain"] = {{theirs + "post_feedforward_layernorm.weight"}};
  }
  return table;
}

}  // namespace trivet::hugging_face
