#include "core/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace trivet {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1) ^ ((remainder & 1) ? 0x82F63B78u : 0u);
    table[byte] = remainder;
  }
  return table;
}

constexpr auto kTable = make_table();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_instruction(std::span<const std::byte> data, uint32_t previous) {
  uint64_t crc = ~previous;
  const std::byte* at = data.data();
  size_t left = data.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  auto low = static_cast<uint32_t>(crc);
  for (; left > 0; ++at, --left) low = _mm_crc32_u8(low, static_cast<uint8_t>(*at));
  return ~low;
}

bool has_instruction() { return __builtin_cpu_supports("sse4.2"); }
#else
uint32_t crc32c_instruction(std::span<const std::byte> data, uint32_t previous) { return crc32c_portable(data, previous); }

bool has_instruction() { return false; }
#endif

}  // namespace

uint32_t crc32c_portable(std::span<const std::byte> data, uint32_t previous) {
  uint32_t crc = ~previous;
  for (std::byte byte : data) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint32_t>(byte)) & 0xff];
  return ~crc;
}

uint32_t crc32c(std::span<const std::byte> data, uint32_t previous) {
  static const bool instruction = has_instruction();
  return instruction ? crc32c_instruction(data, previous) : crc32c_portable(data, previous);
}

}  // namespace trivet
