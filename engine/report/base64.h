// Base64 (RFC 4648), for data in pages.
#pragma once

#include <string>
#include <string_view>

namespace trivet::report {

std::string base64(std::string_view bytes);

}  // namespace trivet::report
