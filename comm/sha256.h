// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), for the proof that a process belongs to a job. Not for bulk data.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trivet::comm {

using Digest = std::array<uint8_t, 32>;

Digest sha256(std::string_view data);
Digest hmac_sha256(std::string_view key, std::string_view data);
// Takes the same time wherever the first difference is.
bool equal_in_constant_time(const Digest& a, const Digest& b);
std::string_view bytes_of(const Digest& digest);

}  // namespace trivet::comm
