// The text of configs/demo.json. It is compiled in, so that `trivet demo` needs no other file.
#pragma once

#include <string_view>

namespace trivet::cli {

extern const std::string_view kDemoConfig;

}  // namespace trivet::cli
