#include "data/token_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "data/token_array.h"

namespace trivet::data {
namespace {

// Token number i has the id i.
std::shared_ptr<TokenSequence> counting(int32_t tokens) {
  std::vector<int32_t> ids(tokens);
  for (int32_t i = 0; i < tokens; ++i) ids[i] = i;
  return std::make_shared<TokenArray>(ids, tokens);
}

TEST(TokenSource, ASampleIsTokensAndTheNextOnes) {
  const TokenSource source(counting(9), 4);
  std::vector<int32_t> input(4), targets(4);
  source.fill(1, 0, std::as_writable_bytes(std::span(input)), targets);
  EXPECT_EQ(input, (std::vector<int32_t>{4, 5, 6, 7}));
  EXPECT_EQ(targets, (std::vector<int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(source.spec().input, (Shape{4}));
  EXPECT_EQ(source.spec().input_values, 9);
  EXPECT_EQ(source.digest(), counting(9)->digest());
}

TEST(TokenSource, NeedsOneTokenMoreThanTheSequence) {
  EXPECT_EQ(TokenSource(counting(65), 64).samples(), 1);
  EXPECT_EQ(TokenSource(counting(128), 64).samples(), 1);
  EXPECT_EQ(TokenSource(counting(129), 64).samples(), 2);
  EXPECT_THAT(
      [] { TokenSource(counting(64), 64); },
      testing::ThrowsMessage<DataError>("data: 64 tokens are too few for one sample of sequence_length 64, which needs 65; "
                                        "give more text or make model.sequence_length at most 63"));
}

}  // namespace
}  // namespace trivet::data
