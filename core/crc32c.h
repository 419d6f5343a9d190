// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), computed by the processor's instruction if it has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trivet {

// `previous` continues the checksum of the bytes before: crc32c(b, crc32c(a)) == crc32c(ab).
uint32_t crc32c(std::span<const std::byte> data, uint32_t previous = 0);
// The same with a table, for processors without the instruction.
uint32_t crc32c_portable(std::span<const std::byte> data, uint32_t previous = 0);

}  // namespace trivet
