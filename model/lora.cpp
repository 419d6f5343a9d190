#include "model/lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "core/error.h"
#include "core/printable.h"
#include "core/regular_expression.h"

namespace trivet::model {
namespace {

constexpr size_t kMostTargets = 100;

constexpr std::array<AdapterPlace, 4> kGptPlaces{{{"attention.qkv", "", -1, "attn.c_attn"},
                                                  {"attention.out", "", -1, "attn.c_proj"},
                                                  {"mlp.up", "", -1, "mlp.c_fc"},
                                                  {"mlp.down", "", -1, "mlp.c_proj"}}};
// The places of an MLP, or of experts. Those of experts come last, down after gate_up.
constexpr std::array<AdapterPlace, 8> kMlpPlaces{{{"mlp.gate_up", "gate", 0, "mlp.gate_proj"},
                                                  {"mlp.gate_up", "up", 1, "mlp.up_proj"},
                                                  {"mlp.down", "", -1, "mlp.down_proj"},
                                                  {"mlp.shared.gate_up", "gate", 0, "mlp.shared_experts.gate_proj"},
                                                  {"mlp.shared.gate_up", "up", 1, "mlp.shared_experts.up_proj"},
                                                  {"mlp.shared.down", "", -1, "mlp.shared_experts.down_proj"},
                                                  {"mlp.experts.gate_up", "", -1, "mlp.experts.gate_up_proj"},
                                                  {"mlp.experts.down", "", -1, "mlp.experts.down_proj"}}};
constexpr const AdapterPlace &kGateUpOfExperts = kMlpPlaces[6], &kDownOfExperts = kMlpPlaces[7];

template <size_t kCount>
constexpr auto with_mlp(const std::array<AdapterPlace, kCount>& attention) {
  std::array<AdapterPlace, kCount + kMlpPlaces.size()> all{};
  std::ranges::copy(attention, all.begin());
  std::ranges::copy(kMlpPlaces, all.begin() + kCount);
  return all;
}

constexpr AdapterPlace kOut{"attention.out", "", -1, "self_attn.o_proj"};
constexpr auto kLlamaPlaces = with_mlp<4>({{{"attention.qkv", "query", 0, "self_attn.q_proj"},
                                            {"attention.qkv", "key", 1, "self_attn.k_proj"},
                                            {"attention.qkv", "value", 2, "self_attn.v_proj"},
                                            kOut}});
// Those of latent attention (model/latent_qkv.h), with a latent of queries and without.
constexpr AdapterPlace kKeyValueDown{"attention.key_value_down", "", -1, "self_attn.kv_a_proj_with_mqa"},
    kKeyValueUp{"attention.key_value_up", "", -1, "self_attn.kv_b_proj"};
constexpr auto kLatentPlaces = with_mlp<5>({{{"attention.query_down", "", -1, "self_attn.q_a_proj"},
                                             {"attention.query_up", "", -1, "self_attn.q_b_proj"},
                                             kKeyValueDown,
                                             kKeyValueUp,
                                             kOut}});
constexpr auto kPlacesWithoutQueryLatent =
    with_mlp<4>({{{"attention.query", "", -1, "self_attn.q_proj"}, kKeyValueDown, kKeyValueUp, kOut}});

bool is_of_shared(const AdapterPlace& place) { return place.linear.starts_with("mlp.shared."); }

std::string our_name(const AdapterPlace& place, int64_t block) {
  return fmt::format("blocks.{}.{}{}{}", block, place.linear, place.part.empty() ? "" : ".", place.part);
}
std::string their_name(Type type, const AdapterPlace& place, int64_t block) {
  return fmt::format("{}.{}.{}", type == Type::Gpt ? "transformer.h" : "model.layers", block, place.theirs);
}

// Qwen2-MoE writes "shared_expert", the others "shared_experts".
std::string with_one_shared(std::string name) {
  constexpr std::string_view kMany = ".shared_experts.";
  return name.replace(name.find(kMany), kMany.size(), ".shared_expert.");
}

// A target, ready to be compared with names.
class Target {
 public:
  // Throws std::invalid_argument, as does `fits`.
  explicit Target(const std::string& text) : all_linear_(text == "all-linear"), expression_(all_linear_ ? ".*" : text) {}
  bool fits(const Description& d, const AdapterPlace& place, int64_t block) const {
    return exists(d, place, block) && names(d, place, block) && !(all_linear_ && is_of_experts(place));
  }
  bool names(const Description& d, const AdapterPlace& place, int64_t block) const {
    const auto ends_like = [&](const std::string& theirs) {
      return expression_.is_end_of(theirs) || expression_.is_end_of(theirs + ".weight");  // as target_parameters of PEFT
    };
    const std::string theirs = their_name(d.type, place, block);
    return expression_.is_end_of(our_name(place, block)) || ends_like(theirs) ||
           (is_of_shared(place) && ends_like(with_one_shared(theirs)));
  }
  // A block has an MLP or experts, perhaps with a shared one.
  static bool exists(const Description& d, const AdapterPlace& place, int64_t block) {
    if (!place.linear.starts_with("mlp.")) return true;
    if (is_of_shared(place)) return has_experts(d, block) && d.experts.shared_feed_forward_size > 0;
    return is_of_experts(place) == has_experts(d, block);
  }
  // Checks whether it names the MLP of a block that has experts, but not its experts.
  bool leaves_experts_out(const Description& d) const {
    if (all_linear_) return false;
    for (int64_t block = 0; block < d.layers; ++block)
      for (const AdapterPlace& place : adapter_places(d))
        if (!exists(d, place, block) && !is_of_experts(place) && !is_of_shared(place) && names(d, place, block) &&
            !names(d, place.linear == "mlp.down" ? kDownOfExperts : kGateUpOfExperts, block))
          return true;
    return false;
  }
  bool fits_any(const Description& d) const {
    for (int64_t block = 0; block < d.layers; ++block)
      for (const AdapterPlace& place : adapter_places(d))
        if (fits(d, place, block)) return true;
    return false;
  }

 private:
  bool all_linear_;
  RegularExpression expression_;
};

Problem no_place(const Description& d, const std::string& target) {
  std::string names;
  for (const AdapterPlace& place : adapter_places(d)) {
    if (is_of_experts(place) && !d.experts.enabled()) continue;
    if (is_of_shared(place) && d.experts.shared_feed_forward_size == 0) continue;
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", our_name(place, 0).substr(std::string("blocks.0.").size()),
                         place.theirs);
  }
  return {
      "lora.targets",
      fmt::format("\"{}\" is the name of no linear layer of a block; use a regular expression for the end of such a name, "
                  "or for a whole name such as {} ({}): {}; or \"all-linear\"",
                  printable(target), our_name(adapter_places(d)[0], 0), their_name(d.type, adapter_places(d)[0], 0), names)};
}

std::optional<Problem> find_target_problem(const Description& d, const std::string& target) {
  try {
    const Target named(target);
    if (named.leaves_experts_out(d))
      return Problem{
          "lora.targets",
          fmt::format("\"{}\" would leave experts out, whose gate and up are one matrix; name \"mlp.experts.gate_up_proj\" "
                      "or \"mlp.experts.down_proj\"{}, or blocks by their numbers (\"layers.0.mlp.gate_proj\")",
                      printable(target), d.experts.shared_feed_forward_size > 0 ? ", a part of \"mlp.shared_experts\"" : "")};
    if (named.fits_any(d)) return {};
  } catch (const std::invalid_argument& error) {
    return Problem{"lora.targets",
                   fmt::format("the regular expression \"{}\" is not accepted: {}; use one such as \"q_proj|v_proj\"",
                               printable(target, 200), error.what())};
  }
  return no_place(d, target);
}

}  // namespace

bool is_of_experts(const AdapterPlace& place) { return place.linear.starts_with("mlp.experts."); }

std::span<const AdapterPlace> adapter_places(const Description& d) {
  switch (d.type) {
    case Type::Gpt: return kGptPlaces;
    case Type::Llama:
      if (!d.latent_attention.enabled()) return kLlamaPlaces;
      if (d.latent_attention.query_rank > 0) return kLatentPlaces;
      return kPlacesWithoutQueryLatent;
    case Type::Sequential: return {};
  }
  return {};
}

double adapter_scale(const Lora& lora) { return lora.alpha / static_cast<double>(lora.rank); }

AdaptedPlaces adapted_places(const Description& d) {
  if (!d.lora.enabled()) return AdaptedPlaces(static_cast<size_t>(d.layers));
  AdaptedPlaces places(static_cast<size_t>(d.layers));
  try {
    const std::vector<Target> targets(d.lora.targets.begin(), d.lora.targets.end());
    for (int64_t block = 0; block < d.layers; ++block)
      for (const AdapterPlace& place : adapter_places(d))
        if (std::ranges::any_of(targets, [&](const Target& target) { return target.fits(d, place, block); }))
          places[static_cast<size_t>(block)].push_back(&place);
  } catch (const std::invalid_argument& error) {
    throw ConfigError(fmt::format("model.lora.targets: a regular expression is not accepted: {}", error.what()));
  }
  return places;
}

Adapters::Options adapters_of(const Description& d, const AdaptedPlaces& places, int64_t block, std::string_view linear) {
  Adapters::Options options;
  for (const AdapterPlace* place : places.at(static_cast<size_t>(block)))
    if (place->linear == linear) options.parts.push_back({std::string(place->part), place->segment});
  if (options.parts.empty()) return options;
  options.rank = d.lora.rank;
  options.scale = adapter_scale(d.lora);
  return options;
}

namespace {

const char* examples_of(const Description& d) {
  if (d.type == Type::Gpt) return "[\"c_attn\"]";
  return d.latent_attention.enabled() ? "[\"kv_b_proj\", \"o_proj\"]" : "[\"q_proj\", \"v_proj\"]";
}

}  // namespace

std::optional<Problem> find_lora_problem(const Description& d) {
  const Lora& lora = d.lora;
  if (!lora.enabled()) {
    if (lora.rank == 0 && lora.targets.empty()) return {};
    return Problem{"lora.rank", fmt::format("{} is not accepted with model.lora.targets; use at least 1", lora.rank)};
  }
  if (lora.targets.empty() || lora.targets.size() > kMostTargets)
    return Problem{"lora.targets", fmt::format("{} targets are not accepted; list 1 to {} names of linear layers, such as {}",
                                               lora.targets.size(), kMostTargets, examples_of(d))};
  if (!(lora.alpha > 0)) return Problem{"lora.alpha", fmt::format("{} is not accepted; give a positive number", lora.alpha)};
  for (const std::string& target : lora.targets)
    if (auto problem = find_target_problem(d, target)) return problem;
  return {};
}

std::string lora_in_words(const Description& d) {
  int64_t linear = 0, of_experts = 0;
  for (const auto& block : adapted_places(d))
    for (const AdapterPlace* place : block) is_of_experts(*place) ? of_experts += d.experts.count : ++linear;
  const std::string layers = fmt::format("{} linear layer{}", linear, linear == 1 ? "" : "s"),
                    matrices = fmt::format("{} matrices of experts", of_experts);
  return fmt::format("rank {} on {}{}{}", d.lora.rank, linear > 0 || of_experts == 0 ? layers : "",
                     linear > 0 && of_experts > 0 ? " and " : "", of_experts > 0 ? matrices : "");
}

}  // namespace trivet::model
