// The section data_efficiency.data_routing.random_ltd: blocks that leave tokens out (model/dropped_tokens.h).
#pragma once

namespace trivet {

struct Config;

namespace config {

// Checks the section against the model.
void check_token_drop(const Config& config);

}  // namespace config
}  // namespace trivet
