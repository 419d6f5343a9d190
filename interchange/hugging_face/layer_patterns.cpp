#include "interchange/hugging_face/layer_patterns.h"

#include <fmt/format.h>

#include <algorithm>

namespace trivet::hugging_face {
namespace {

constexpr const char* kWithoutWindow = "full_attention";

// A list of `layers` values that has `other` in every n-th place; 0: in none.
template <typename T>
std::vector<T> with_every(int64_t layers, int64_t every, const T& usual, const T& other) {
  std::vector<T> values;
  for (int64_t i = 1; i <= layers; ++i) values.push_back(every > 0 && i % every == 0 ? other : usual);
  return values;
}

template <typename T>
int64_t first_place(const std::vector<T>& values, const T& value) {
  const auto found = std::ranges::find(values, value);
  return found == values.end() ? 0 : found - values.begin() + 1;
}

}  // namespace

std::vector<std::string> layer_types(int64_t layers, int64_t full_every) {
  return with_every<std::string>(layers, full_every, "sliding_attention", kWithoutWindow);
}

int64_t read_full_attention_every(ConfigFile& file, int64_t layers, int64_t usual, bool reads_pattern) {
  const std::vector<std::string> types = file.texts("layer_types");
  if (types.empty()) {
    if (!reads_pattern) file.ignore({"sliding_window_pattern", "_sliding_window_pattern"});
    const int64_t every = reads_pattern ? file.size("sliding_window_pattern", usual) : usual;
    return every > layers ? 0 : every;
  }
  file.ignore({"sliding_window_pattern", "_sliding_window_pattern"});
  const int64_t every = first_place<std::string>(types, kWithoutWindow);
  file.require(types.size() == static_cast<size_t>(layers) && types == layer_types(layers, every), "layer_types",
               fmt::format("use {} values, \"sliding_attention\" except for \"full_attention\" in every n-th layer", layers));
  return every;
}

std::vector<int64_t> rotating_layers(int64_t layers, int64_t no_rotary_every) {
  return with_every<int64_t>(layers, no_rotary_every, 1, 0);
}

int64_t read_no_rotary_every(ConfigFile& file, int64_t layers, int64_t usual) {
  constexpr const char* kLayers = "no_rope_layers";
  if (!file.has(kLayers)) {
    file.ignore({kLayers});
    const int64_t every = file.size("no_rope_layer_interval", usual);
    return every > layers ? 0 : every;
  }
  file.ignore({"no_rope_layer_interval"});
  const std::vector<int64_t> listed = file.counts(kLayers);
  const int64_t every = first_place<int64_t>(listed, 0);
  file.require(listed.size() == static_cast<size_t>(layers) && listed == rotating_layers(layers, every), kLayers,
               fmt::format("use {} values, 1 except for 0 in every n-th layer", layers));
  return every;
}

}  // namespace trivet::hugging_face
