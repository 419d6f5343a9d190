#include "core/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <span>
#include <string>
#include <string_view>

namespace trivet {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Crc32c, HasThePublishedValues) {  // RFC 3720, B.4
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8A9136AAu);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xff'))), 0x62A8AB43u);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Crc32c, TableAndInstructionAgreeAndContinue) {
  std::mt19937_64 random(1);
  std::string text(1000, '\0');
  for (char& c : text) c = static_cast<char>(random());
  for (size_t length = 0; length < text.size(); length += 13) {
    const auto data = bytes_of(text).first(length);
    EXPECT_EQ(crc32c(data), crc32c_portable(data));
    EXPECT_EQ(crc32c(data.subspan(length / 3), crc32c(data.first(length / 3))), crc32c(data));
  }
}

}  // namespace
}  // namespace trivet
