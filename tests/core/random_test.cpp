#include "core/random.h"

#include <gtest/gtest.h>

#include <set>

namespace trivet {
namespace {

// These are the known answers of Random123 (kat_vectors, philox4x32 10).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint64_t ones = ~uint64_t{0};
  EXPECT_EQ(philox(ones, ones, ones), (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomKey, DiffersBySeedAndByName) {
  const std::set<uint64_t> keys{random_key(0, "a"), random_key(1, "a"), random_key(2, "a"), random_key(0, "b"),
                                random_key(0, "")};
  EXPECT_EQ(keys.size(), 5u);
}

TEST(UnitFloat, IsBelowOne) {
  EXPECT_EQ(unit_float(0), 0.0f);
  EXPECT_EQ(unit_float(~uint32_t{0}), 1.0f - 0x1p-24f);
}

}  // namespace
}  // namespace trivet
