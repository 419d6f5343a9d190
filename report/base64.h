// Base64 (RFC 4648), for data in pages.
#pragma once

#include <string>
#include <string_view>

namespace trivet::report {

std::string base64(std::string_view bytes);
// The bytes of such a text. Throws std::invalid_argument for another one.
std::string from_base64(std::string_view text);

}  // namespace trivet::report
