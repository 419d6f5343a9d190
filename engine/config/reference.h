// Renders the key table for docs/config.md (`trivet config reference > docs/config.md`). A test fails if that file is outdated.
#pragma once

#include <string>

namespace trivet {

std::string config_reference();

}  // namespace trivet
