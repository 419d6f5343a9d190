#include "embed/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "embed/arrivals.h"

namespace trivet::embed {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Units, AreInTheOrderOfTheirFirstParameters) {
  const std::vector<Parameter> parameters{{.name = "a", .shape = {3}, .unit = "x"},
                                          {.name = "b", .shape = {3}, .unit = "y"},
                                          {.name = "c", .shape = {3}, .unit = "x"}};
  const std::vector<Unit> units = make_units(parameters, 100);
  ASSERT_EQ(units.size(), 2u);
  EXPECT_EQ(units[0].name, "x");
  EXPECT_THAT(units[0].parameters, ElementsAre(0, 2));
  EXPECT_THAT(units[1].parameters, ElementsAre(1));
  const std::vector<UnitPlace> places = places_of(units, 3);
  EXPECT_EQ(places[2].unit, 0);
  EXPECT_EQ(places[2].index, 1);
  EXPECT_EQ(places[1].unit, 1);
}

TEST(Units, NeighboursShareABucketUntilItIsFull) {
  const std::vector<Parameter> parameters{{.name = "a", .shape = {4}}, {.name = "b", .shape = {6}},
                                          {.name = "c", .shape = {1}}, {.name = "d", .shape = {50}},
                                          {.name = "e", .shape = {2}}, {.name = "f", .shape = {8}}};
  const std::vector<Unit> units = make_units(parameters, 10);
  ASSERT_EQ(units.size(), 4u);
  EXPECT_EQ(units[0].name, "bucket 0");
  EXPECT_THAT(units[0].parameters, ElementsAre(0, 1));  // 10 elements fit
  EXPECT_THAT(units[1].parameters, ElementsAre(2));
  EXPECT_THAT(units[2].parameters, ElementsAre(3));     // larger than a bucket
  EXPECT_THAT(units[3].parameters, ElementsAre(4, 5));  // as much as if nothing had come before
}

TEST(Units, ABucketHasOneRole) {
  const std::vector<Parameter> parameters{{.name = "table", .shape = {4}, .role = LayerRole::Input},
                                          {.name = "b", .shape = {1}}};
  const std::vector<Unit> units = make_units(parameters, 10);
  ASSERT_EQ(units.size(), 2u);
  EXPECT_EQ(units[0].role, LayerRole::Input);
  EXPECT_EQ(units[1].role, LayerRole::Hidden);
}

TEST(Units, RefusesWhatCannotBeAUnit) {
  const auto make = [](std::vector<Parameter> parameters) { return [=] { make_units(parameters, 10); }; };
  EXPECT_THAT(make({{.shape = {1}}}), ThrowsMessage<Error>(HasSubstr("parameter 0 has no name")));
  EXPECT_THAT(make({{.name = "__metadata__", .shape = {1}}}),
              ThrowsMessage<Error>(HasSubstr("means something else in the files")));
  EXPECT_THAT(make({{.name = "optimizer.exp_avg.a", .shape = {1}}}), ThrowsMessage<Error>(HasSubstr("begins like those of")));
  EXPECT_THAT(make({{.name = "a\xff", .shape = {1}}}), ThrowsMessage<Error>(HasSubstr("the name \"a\\xff\" is not UTF-8")));
  EXPECT_THAT(make({{.name = "\xed\xa0\x80", .shape = {1}}}), ThrowsMessage<Error>(HasSubstr("is not UTF-8")));
  EXPECT_THAT(make({{.name = std::string(1025, 'n'), .shape = {1}}}),
              ThrowsMessage<Error>(HasSubstr("has 1025 bytes; use at most 1024")));
  EXPECT_THAT(make({{.name = "a", .shape = {1}, .unit = "u\xff"}}), ThrowsMessage<Error>(HasSubstr("is not UTF-8")));
  EXPECT_THAT(make({{.name = "a", .shape = {int64_t{1} << 48}}, {.name = "b", .shape = {1}}}),
              ThrowsMessage<Error>(HasSubstr("the parameters up to \"b\" have more than 2^48 elements together")));
  EXPECT_THAT(make({{.name = "a", .shape = {2, 0}}}), ThrowsMessage<Error>(HasSubstr("\"a\" has the shape [2, 0]")));
  EXPECT_THAT(make({{.name = "a", .shape = {-2}}}), ThrowsMessage<Error>(HasSubstr("\"a\" has the shape [-2]")));
  EXPECT_THAT(make({{.name = "a", .shape = {-2, -3}}}), ThrowsMessage<Error>(HasSubstr("\"a\" has the shape [-2, -3]")));
  // The product is 0 in 64 bits.
  EXPECT_THAT(make({{.name = "a", .shape = {int64_t{1} << 32, int64_t{1} << 32, 7}}}),
              ThrowsMessage<Error>(HasSubstr("their product at most 2^48")));
  EXPECT_THAT(make({{.name = "a", .shape = {(int64_t{1} << 48) + 1}}}), ThrowsMessage<Error>(HasSubstr("at most 2^48")));
  EXPECT_THAT(
      make({{.name = "a", .shape = {1}, .unit = "x"}, {.name = "b", .shape = {1}, .unit = "x", .role = LayerRole::Loss}}),
      ThrowsMessage<Error>(HasSubstr("\"b\" has another role")));
}

TEST(Arrivals, AUnitWaitsForThoseAfterIt) {
  Arrivals arrivals({2, 1, 1});
  EXPECT_TRUE(arrivals.arrived(1));
  EXPECT_EQ(arrivals.next(), std::nullopt);  // unit 2 comes first
  EXPECT_FALSE(arrivals.arrived(0));
  EXPECT_TRUE(arrivals.arrived(2));
  EXPECT_EQ(arrivals.next(), 2);
  EXPECT_EQ(arrivals.next(), 1);
  EXPECT_EQ(arrivals.next(), std::nullopt);
  EXPECT_FALSE(arrivals.is_complete(0));
  arrivals.end_microbatch();
  EXPECT_EQ(arrivals.next(), 0);
  EXPECT_EQ(arrivals.next(), std::nullopt);
}

TEST(Arrivals, TellFromWhichUnitOnAllAreComplete) {
  Arrivals arrivals({1, 0, 1, 1});
  EXPECT_EQ(arrivals.complete_from(), 4);
  arrivals.arrived(2);
  EXPECT_EQ(arrivals.complete_from(), 4);
  arrivals.arrived(3);
  EXPECT_EQ(arrivals.complete_from(), 1);  // unit 1 gets no gradients
  EXPECT_EQ(arrivals.next(3), 3);
  EXPECT_EQ(arrivals.next(3), std::nullopt);
  EXPECT_EQ(arrivals.next(1), 2);
  arrivals.end_microbatch();
  EXPECT_EQ(arrivals.complete_from(), 0);
}

TEST(Arrivals, EachMicrobatchStartsAgain) {
  Arrivals arrivals({1, 0});
  EXPECT_EQ(arrivals.next(), 1);  // frozen: gets no gradient
  arrivals.arrived(0);
  EXPECT_EQ(arrivals.next(), 0);
  arrivals.begin_microbatch();
  EXPECT_FALSE(arrivals.is_complete(0));
  EXPECT_EQ(arrivals.next(), 1);
  EXPECT_EQ(arrivals.next(), std::nullopt);
}

}  // namespace
}  // namespace trivet::embed
