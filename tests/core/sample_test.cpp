#include "core/sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"

namespace trivet {
namespace {

using testing::ThrowsMessage;

const SampleSpec kText{.input = {3}, .targets = {3}, .input_values = 10, .classes = 9};
const SampleSpec kImages{.input_dtype = DType::Float32, .input = {2, 4, 4}, .targets = {1}, .classes = 5};

TEST(SampleSpec, ABatchHasOneDimMore) {
  EXPECT_EQ(kText.inputs_of(7), (Shape{7, 3}));
  EXPECT_EQ(kImages.inputs_of(7), (Shape{7, 2, 4, 4}));
  EXPECT_EQ(kImages.targets_of(7), (Shape{7, 1}));
  EXPECT_EQ(kImages.without_memory(2).input.dtype, DType::Float32);
  EXPECT_EQ(kImages.without_memory(2).targets.dtype, DType::Int32);
}

class OfText : public testing::Test {
 protected:
  Microbatch batch() const { return {{tokens.data(), DType::Int32, {2, 3}}, {targets.data(), DType::Int32, {2, 3}}, 0}; }
  std::vector<int32_t> tokens{0, 1, 2, 3, 4, 9}, targets{1, -1, -100, 8, 0, 5};
};

TEST_F(OfText, IntegersHaveARange) {
  check(batch(), kText, 2);
  tokens[4] = 10;
  EXPECT_THAT(
      [&] { check(batch(), kText, 2); },
      ThrowsMessage<DataError>("engine: input 10 at position 4 of a microbatch is outside of what the model knows, 0 to 9"));
  tokens[4] = -1;
  EXPECT_THROW(check(batch(), kText, 2), DataError);
  tokens[4] = 0, targets[0] = 9;
  EXPECT_THAT(
      [&] { check(batch(), kText, 2); },
      ThrowsMessage<DataError>("engine: target 9 at position 0 of a microbatch is outside of what the model knows, 0 to 8"));
}

TEST_F(OfText, AnotherNumberOfSamplesIsRefused) {
  EXPECT_THAT([&] { check(batch(), kText, 3); },
              ThrowsMessage<DataError>("engine: a microbatch has inputs int32 [2, 3] and targets int32 [2, 3], but the plan is "
                                       "for int32 [3, 3] and int32 [3, 3]"));
}

TEST_F(OfText, PairsAreTwoRowsWithAReference) {
  SampleSpec pairs = kText;
  pairs.pairs = true;
  const std::vector<double> reference{-1, -2};
  Microbatch one = batch();
  EXPECT_EQ(pairs.inputs_of(2), (Shape{4, 3}));
  EXPECT_EQ(pairs.counted_targets(), 1);
  EXPECT_THAT([&] { check(one, pairs, 2); },
              ThrowsMessage<DataError>("engine: a microbatch has inputs int32 [2, 3] and targets int32 [2, 3], but the plan is "
                                       "for int32 [4, 3] and int32 [4, 3]"));
  EXPECT_THAT(
      [&] { check(one, pairs, 1); },
      ThrowsMessage<DataError>("engine: a microbatch of pairs has float32 [0] of a reference model, but the plan is for "
                               "float64 [2]"));
  one.reference = {reference.data(), DType::Float64, {2}};
  EXPECT_NO_THROW(check(one, pairs, 1));
}

TEST_F(OfText, DocumentsBeginWhereTheySay) {
  SampleSpec documents = kText;
  documents.documents = true;
  Microbatch one = batch();
  EXPECT_THAT([&] { check(one, documents, 2); },
              ThrowsMessage<DataError>("engine: a microbatch does not say where documents begin, as the plan wants: documents "
                                       "and positions are float32 [0] and float32 [0] and must be int32 [2, 3]"));
  const auto given = [&](std::vector<int32_t> firsts, std::vector<int32_t> places) {
    one.documents = {firsts.data(), DType::Int32, {2, 3}};
    one.positions = {places.data(), DType::Int32, {2, 3}};
    check(one, documents, 2);
  };
  given({0, 0, 2, 0, 3, 3}, {0, 1, 0, 0, 0, 0});
  EXPECT_THAT(
      [&] {
        given({0, 1, 2, 0, 0, 1}, {0, 0, 0, 0, 1, 1});
      },
      ThrowsMessage<DataError>("engine: token 2 of a sequence of a microbatch has first token 1 and place 1 of a document, "
                               "which no document has"));
  for (const auto& [firsts, places] : std::vector<std::pair<std::vector<int32_t>, std::vector<int32_t>>>{
           {{0, 0, 0, 0, 0, 0}, {0, 1, 1, 0, 1, 2}},     // a place twice
           {{1, 1, 1, 0, 0, 0}, {0, 0, 1, 0, 1, 2}},     // begins before its first token
           {{0, 3, 2, 0, 0, 0}, {0, 0, 0, 0, 1, 2}},     // a document after padding
           {{-1, -1, -1, 0, 0, 0}, {1, 2, 3, 0, 1, 2}},  // in another sequence
           {{0, -1, 0, 0, 0, 0}, {0, 2, 2, 0, 1, 2}}})
    EXPECT_THROW(given(firsts, places), DataError);
  EXPECT_THAT(
      [&] { check(one, kText, 2); },
      ThrowsMessage<DataError>("engine: a microbatch says where documents begin, but the plan is for samples that are one "
                               "text; set data.packing to \"isolated\""));
}

// Two rows of 3 tokens, with a reference for each token.
TEST_F(OfText, PairsOfDocumentsHaveAsManyInBothRows) {
  SampleSpec pairs = kText;
  pairs.pairs = pairs.documents = true;
  EXPECT_EQ(pairs.reference_of(2), (Shape{4, 3}));
  const std::vector<double> reference(6);
  Microbatch one = batch();
  one.reference = {reference.data(), DType::Float64, {2, 3}};
  const auto given = [&](std::vector<int32_t> firsts, std::vector<int32_t> places) {
    one.documents = {firsts.data(), DType::Int32, {2, 3}};
    one.positions = {places.data(), DType::Int32, {2, 3}};
    check(one, pairs, 1);
  };
  given({0, 0, 2, 0, 1, 3}, {0, 1, 0, 0, 0, 0});
  EXPECT_THAT(
      [&] {
        given({0, 1, 2, 0, 0, 2}, {0, 0, 0, 0, 1, 0});
      },
      ThrowsMessage<DataError>("engine: rows 0 and 1 of a microbatch of pairs have 3 and 2 documents; document k of one is "
                               "compared with document k of the other, so both need as many"));
}

TEST(SampleSpec, AMicrobatchHasItsDtype) {
  const std::vector<double> pixels(2 * 2 * 4 * 4);
  const std::vector<int32_t> classes{0, 4};
  const Microbatch batch{{pixels.data(), DType::Float64, {2, 2, 4, 4}}, {classes.data(), DType::Int32, {2, 1}}, 0};
  EXPECT_THAT([&] { check(batch, kImages, 2); },
              ThrowsMessage<DataError>("engine: a microbatch has inputs float64 [2, 2, 4, 4] and targets int32 [2, 1], but the "
                                       "plan is for float32 [2, 2, 4, 4] and int32 [2, 1]"));
}

TEST(SampleSpec, ASampleLeavesADimForTheBatch) {
  const SampleSpec deep{.input = {1, 1, 1, 1, 1, 1}, .targets = {1}};
  EXPECT_THROW(deep.inputs_of(2), std::invalid_argument);
}

}  // namespace
}  // namespace trivet
