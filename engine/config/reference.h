// The key table as docs/config.md. `trivet config reference > docs/config.md` writes it; a test fails when the file is behind.
#pragma once

#include <string>

namespace trivet {

std::string config_reference();

}  // namespace trivet
