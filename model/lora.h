// Chooses the linear layers of a transformer that have low-rank adapters (model/adapters.h): the places that model.lora.targets
// name.
//
// A place is a linear layer of a block, or one part of a fused layer, and has two names:
//
//   ours                                    in transformers
//   blocks.3.attention.qkv                  transformer.h.3.attn.c_attn              "gpt": its projections are not divided
//   blocks.3.attention.qkv.query            model.layers.3.self_attn.q_proj          "llama"
//   blocks.3.mlp.experts.gate_up            model.layers.3.mlp.experts.gate_up_proj  one for each expert
//
// A target is a regular expression for a whole name or for the end of a name after a dot, as in PEFT: "q_proj" is enough.
// "all-linear" names all places but those of experts. The base model is frozen, also where it has no adapters.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/adapters.h"
#include "model/description.h"

namespace trivet::model {

struct AdapterPlace {
  std::string_view linear;  // within its block: "attention.qkv"
  std::string_view part;    // "query"; empty: the whole layer
  int segment = -1;         // segment of the weight's split; -1: the whole layer
  std::string_view theirs;  // within its block, in transformers: "self_attn.q_proj"
};

// Checks whether the place is a matrix of each expert.
bool is_of_experts(const AdapterPlace& place);

// All places of a block, of an MLP and of experts, though a block has one of these; none for a family without adapters.
std::span<const AdapterPlace> adapter_places(const Description& description);

// The places with adapters of every block, in the order of adapter_places.
using AdaptedPlaces = std::vector<std::vector<const AdapterPlace*>>;
// Throws ConfigError if a target is no regular expression.
AdaptedPlaces adapted_places(const Description& description);

// Returns the adapters of one linear layer of a block.
Adapters::Options adapters_of(const Description& description, const AdaptedPlaces& places, int64_t block,
                              std::string_view linear);

// The factor that multiplies the output of an adapter.
double adapter_scale(const Lora& lora);

// Describes the first mistake in model.lora, if any: a target that is no regular expression or that no place has ...
std::optional<Problem> find_lora_problem(const Description& description);

// "rank 8 on 14 linear layers"
std::string lora_in_words(const Description& description);

}  // namespace trivet::model
