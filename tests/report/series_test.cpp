#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/report/base64.h"
#include "engine/report/config_differences.h"
#include "engine/report/thinned_series.h"

namespace trivet::report {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<int> points_after(int count, size_t most) {
  ThinnedSeries<int> series(most);
  for (int i = 0; i < count; ++i) series.add(i);
  return series.points();
}

TEST(ThinnedSeries, KeepsAllPointsThenEverySecondThenEveryFourthAndAlwaysTheLast) {
  EXPECT_THAT(points_after(0, 4), IsEmpty());
  EXPECT_THAT(points_after(4, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(points_after(5, 4), ElementsAre(0, 2, 4));
  EXPECT_THAT(points_after(6, 4), ElementsAre(0, 2, 4, 5));
  EXPECT_THAT(points_after(8, 4), ElementsAre(0, 2, 4, 6, 7));
  EXPECT_THAT(points_after(9, 4), ElementsAre(0, 4, 8));
  EXPECT_THAT(points_after(1001, 4), ElementsAre(0, 256, 512, 768, 1000));
}

TEST(ThinnedSeries, SaysHowManyPointsThereWereAndWhichAreKept) {
  ThinnedSeries<int> series(4);
  EXPECT_TRUE(series.empty());
  for (int i = 0; i < 9; ++i) series.add(i);
  EXPECT_EQ(series.count(), 9);
  EXPECT_EQ(series.stride(), 4);
  EXPECT_EQ(series.last(), 8);
}

TEST(Base64, HasThePublishedValues) {  // RFC 4648, section 10
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xff\xfe"), "//4=");
}

TEST(ConfigDifferences, NamesTheKeysWhoseValuesDifferAndThoseThatAreMissing) {
  const std::string configs[] = {R"({"model": {"layers": 4, "type": "gpt"}, "seed": 1})",
                                 R"({"model": {"layers": 8, "type": "gpt"}, "betas": [0.9, 0.99]})"};
  EXPECT_THAT(config_differences(configs), ElementsAre(ElementsAre("betas", "", "[0.9,0.99]"),
                                                       ElementsAre("model.layers", "4", "8"), ElementsAre("seed", "1", "")));
}

TEST(ConfigDifferences, ATextThatIsNoConfigHasNoKeys) {
  const std::string configs[] = {std::string(100, '[') + std::string(100, ']'), "{", "{\"seed\": 1}"};
  EXPECT_THAT(config_differences(configs), ElementsAre(ElementsAre("seed", "", "", "1")));
}

}  // namespace
}  // namespace trivet::report
