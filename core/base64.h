// Base64 (RFC 4648), with which text files hold bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trivet {

std::string to_base64(std::string_view bytes);
// nullopt if it is not base64. Padding may be left out.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace trivet
