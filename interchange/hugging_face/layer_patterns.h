// Keys that say which layers differ from the others: every n-th one, from the n-th on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interchange/hugging_face/config_file.h"

namespace trivet::hugging_face {

// Reads layer_types: every how many layers one has no window; 0: all have one. `usual`: if the file does not say it; with
// `reads_pattern`, sliding_window_pattern may.
int64_t read_full_attention_every(ConfigFile& file, int64_t layers, int64_t usual, bool reads_pattern);
std::vector<std::string> layer_types(int64_t layers, int64_t full_every);

// Reads no_rope_layers, which has 1 for layers that rotate queries and keys, or no_rope_layer_interval: every how many layers
// one does not; 0: all do.
int64_t read_no_rotary_every(ConfigFile& file, int64_t layers, int64_t usual);
std::vector<int64_t> rotating_layers(int64_t layers, int64_t no_rotary_every);

}  // namespace trivet::hugging_face
