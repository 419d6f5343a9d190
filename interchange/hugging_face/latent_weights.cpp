#include "interchange/hugging_face/latent_weights.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace trivet::hugging_face {
namespace {

using checkpoint::TheirRows;

// Yarn's magnitude also scales the scores of these models, by its square: 1 + m ln(factor) / 10 with m of mscale_all_dim.
double magnitude(double factor, double m) { return factor <= 1 ? 1 : 1 + m * std::log(factor) / 10; }

double read_score_magnitude(ConfigFile& file) {
  std::optional<ConfigFile> scaling = file.object(file.is_off("rope_scaling") ? "rope_parameters" : "rope_scaling");
  if (!scaling) return 1;
  const double m = scaling->number("mscale_all_dim", 0.0);
  const std::string type = scaling->text(scaling->has("rope_type") ? "rope_type" : "type", "default");
  if (m == 0 || type == "default") return 1;
  scaling->require(type == "yarn", "mscale_all_dim", "leave it out: it is read with the rope_type \"yarn\" alone");
  return magnitude(scaling->number("factor"), m);
}

// The query_scale_size that multiplies scores by the square of `magnitude`.
double scale_size(int64_t head_size, double of_scores) { return static_cast<double>(head_size) / std::pow(of_scores, 4); }

// Appends the rows of `tensor` from `first` on that rotate: those of the first elements of pairs, then those of the second.
void add_rotary_rows(const std::string& tensor, int64_t first, int64_t count, std::vector<TheirRows>& rows) {
  for (const int64_t of_pair : {0, 1})
    for (int64_t i = of_pair; i < count; i += 2) rows.push_back({tensor, first + i, 1});
}

}  // namespace

void read_latent_attention(ConfigFile& file, const LatentDefaults& defaults, OrderedJson& model) {
  const int64_t heads = model["heads"].get<int64_t>();
  file.require(model["key_value_heads"] == heads, "num_key_value_heads",
               fmt::format("use num_attention_heads {}: each head has its own key", heads));
  file.require(!file.flag("attention_bias", false), "attention_bias", "use false");
  const int64_t rotary = file.size("qk_rope_head_dim", defaults.rotary_size);
  const int64_t plain = file.size("qk_nope_head_dim", defaults.plain_size), head_size = plain + rotary;
  file.require(file.size("qk_head_dim", head_size) == head_size, "qk_head_dim",
               fmt::format("use qk_nope_head_dim {} + qk_rope_head_dim {} = {}", plain, rotary, head_size));
  file.require(file.size("head_dim", rotary) == rotary, "head_dim", fmt::format("use qk_rope_head_dim {}", rotary));
  model["head_size"] = head_size;
  model["latent_attention"] = {{"query_rank", file.is_null("q_lora_rank") ? 0 : file.size("q_lora_rank", defaults.query_rank)},
                               {"key_value_rank", file.size("kv_lora_rank", defaults.key_value_rank)},
                               {"rotary_size", rotary},
                               {"value_size", file.size("v_head_dim", defaults.value_size)}};
  const double of_scores = read_score_magnitude(file);
  if (of_scores != 1) model["query_scale_size"] = scale_size(head_size, of_scores);
}

std::string latent_attention_obstacle(const model::Description& d) {
  const model::LatentAttention& latent = d.latent_attention;
  if (!latent.enabled()) return "model.latent_attention.key_value_rank is 0";
  if (latent.norm_epsilon != 1e-6) return fmt::format("model.latent_attention.norm_epsilon is {}", latent.norm_epsilon);
  const bool yarn = d.rotary_scaling.type == model::RotaryScalingType::Yarn && d.rotary_scaling.factor > 1;
  if (d.query_scale_size != 0 && !(yarn && d.query_scale_size < static_cast<double>(d.head_size)))
    return fmt::format("model.query_scale_size is {}", d.query_scale_size);
  model::Description rest = d;
  rest.query_scale_size = 0;
  return llama_like_obstacle(rest, {.experts = true, .latent_attention = true});
}

void write_latent_attention(const model::Description& d, OrderedJson& json) {
  const model::LatentAttention& latent = d.latent_attention;
  json["q_lora_rank"] = nullptr;
  if (latent.query_rank > 0) json["q_lora_rank"] = latent.query_rank;
  json["kv_lora_rank"] = latent.key_value_rank;
  json["qk_nope_head_dim"] = d.head_size - latent.rotary_size;
  json["qk_rope_head_dim"] = latent.rotary_size;
  json["v_head_dim"] = latent.value_size_of(d.head_size);
  json["head_dim"] = latent.rotary_size;
  json["attention_bias"] = false;
  if (d.query_scale_size == 0) return;
  // The inverse of read_score_magnitude, to the digits that such a number has.
  const double of_scores = std::pow(static_cast<double>(d.head_size) / d.query_scale_size, 0.25);
  const double turns = std::log(d.rotary_scaling.factor) / 10;
  const auto as_written = [&](double of) { return std::round((of - 1) / turns * 1e9) / 1e9; };
  json["rope_scaling"]["mscale_all_dim"] = as_written(of_scores);
  // Other programs than transformers take the magnitude of what rotates from both.
  if (d.rotary_scaling.attention_factor > 0)
    json["rope_scaling"]["mscale"] = as_written(d.rotary_scaling.attention_factor * of_scores);
}

checkpoint::MappedSource::Table with_latent_weights(const model::Description& d, checkpoint::MappedSource::Table table) {
  const model::LatentAttention& latent = d.latent_attention;
  const int64_t plain = d.head_size - latent.rotary_size;
  for (int64_t i = 0; i < d.layers; ++i) {
    const std::string ours = fmt::format("blocks.{}.attention.", i), theirs = fmt::format("model.layers.{}.self_attn.", i);
    std::string query = theirs + "q_proj.weight";
    if (latent.query_rank > 0) {
      table[ours + "query_down.weight"] = {{theirs + "q_a_proj.weight"}};
      table[ours + "query_norm.gain"] = {{theirs + "q_a_layernorm.weight"}};
      query = theirs + "q_b_proj.weight";
    }
    std::vector<TheirRows>& queries = table[ours + (latent.query_rank > 0 ? "query_up.weight" : "query.weight")];
    for (int64_t head = 0; head < d.heads; ++head) {
      add_rotary_rows(query, head * d.head_size + plain, latent.rotary_size, queries);
      queries.push_back({query, head * d.head_size, plain});
    }
    const std::string down = theirs + "kv_a_proj_with_mqa.weight";
    std::vector<TheirRows>& of_down = table[ours + "key_value_down.weight"];
    of_down = {{down, 0, latent.key_value_rank}};
    add_rotary_rows(down, latent.key_value_rank, latent.rotary_size, of_down);
    table[ours + "key_value_norm.gain"] = {{theirs + "kv_a_layernorm.weight"}};
    table[ours + "key_value_up.weight"] = {{theirs + "kv_b_proj.weight"}};
  }
  return table;
}

}  // namespace trivet::hugging_face
