#include "trainer/predictions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "core/buffer.h"
#include "kernels/kernels.h"

namespace trivet {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

SampleSpec image_of_class() { return {.input_dtype = DType::Float32, .input = {1}, .targets = {1}, .classes = 3}; }
SampleSpec image_of_text(int64_t places) {
  return {.input_dtype = DType::Float32, .input = {1}, .targets = {places}, .classes = 4, .spelled = true};
}
SampleSpec text(int64_t length) { return {.input = {length}, .targets = {length}, .input_values = 9, .classes = 9}; }

// Logits in which class `chosen[row]` of each row is the largest one.
std::vector<float> logits_of(const std::vector<int32_t>& chosen, int64_t classes) {
  std::vector<float> logits(chosen.size() * static_cast<size_t>(classes), -2);
  for (size_t row = 0; row < chosen.size(); ++row)
    logits[row * static_cast<size_t>(classes) + static_cast<size_t>(chosen[row])] = 0.5f + static_cast<float>(row);
  return logits;
}

// Hands over the logits of a microbatch.
void show(Predictions& predictions, const SampleSpec& spec, int64_t first_sample, std::vector<int32_t> targets,
          const std::vector<int32_t>& chosen, int64_t first_target = 0) {
  const auto kernels = kernels::make_cpu_kernels(1);
  const auto samples = static_cast<int64_t>(targets.size()) / spec.targets.elements();
  const Microbatch batch{{}, {targets.data(), DType::Int32, spec.targets_of(samples)}, first_sample};
  std::vector<float> logits = logits_of(chosen, spec.classes);
  const Shape shape{samples, static_cast<int64_t>(chosen.size()) / samples, spec.classes};
  if (predictions.wants(batch) > 0) predictions.read(*kernels, batch, 0, {logits.data(), DType::Float32, shape}, first_target);
}

std::vector<int64_t> samples_of(const std::vector<Prediction>& predictions) {
  std::vector<int64_t> samples;
  for (const Prediction& prediction : predictions) samples.push_back(prediction.sample);
  return samples;
}

TEST(Predictions, AClassIsThatOfTheLargestLogit) {
  Predictions predictions(image_of_class(), 100);
  show(predictions, image_of_class(), 6, {2, 0}, {2, 1});
  ASSERT_EQ(predictions.kept().size(), 2u);
  EXPECT_EQ(predictions.kept()[0].sample, 6);
  EXPECT_TRUE(predictions.kept()[0].right);
  EXPECT_THAT(predictions.kept()[0].classes, ElementsAre(2));
  EXPECT_EQ(predictions.kept()[1].sample, 7);
  EXPECT_FALSE(predictions.kept()[1].right);
  EXPECT_THAT(predictions.kept()[1].classes, ElementsAre(1));
}

TEST(Predictions, OfEqualLogitsTheFirstIsChosenInEveryType) {
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16, DType::Float64}) {
    MemoryMeter meter;
    const auto kernels = kernels::make_cpu_kernels(1);
    std::vector<float> values{-3, -1, -1};
    Buffer logits(host_allocator(), meter, MemoryCategory::Buffers, dtype, {1, 1, 3});
    kernels->copy({values.data(), DType::Float32, {1, 1, 3}}, logits.view());
    Predictions predictions(image_of_class(), 1);
    int32_t target = 1;
    predictions.read(*kernels, {{}, {&target, DType::Int32, {1, 1}}, 0}, 0, logits.view(), 0);
    ASSERT_EQ(predictions.kept().size(), 1u) << name_of(dtype);
    EXPECT_THAT(predictions.kept()[0].classes, ElementsAre(1)) << name_of(dtype);
  }
}

TEST(Predictions, RowsAfterTheLastSampleArePadding) {
  Predictions predictions(image_of_class(), 5);
  show(predictions, image_of_class(), 4, {0, -1}, {0, 1});
  EXPECT_THAT(samples_of(predictions.kept()), ElementsAre(4));
  show(predictions, image_of_class(), 6, {-1, -1}, {0, 1});
  EXPECT_THAT(samples_of(predictions.kept()), ElementsAre(4));
}

TEST(Predictions, ATextIsWhatTheMostProbableClassesSpell) {
  Predictions predictions(image_of_text(4), 100);
  show(predictions, image_of_text(4), 0, {3, 3, 1, -1}, {0, 3, 3, 0, 3, 1, 1});
  show(predictions, image_of_text(4), 1, {3, 3, 1, 2}, {0, 3, 3, 0, 3, 1, 1});
  show(predictions, image_of_text(4), 2, {3, 3, -1, -1}, {0, 3, 3, 0, 3, 1, 1});
  show(predictions, image_of_text(4), 3, {0, -1, -1, -1}, {0, 0, 0, 0, 0, 0, 0});
  ASSERT_EQ(predictions.kept().size(), 4u);
  EXPECT_THAT(predictions.kept()[0].classes, ElementsAre(3, 3, 1));
  EXPECT_TRUE(predictions.kept()[0].right);
  EXPECT_FALSE(predictions.kept()[1].right);  // the target goes on
  EXPECT_FALSE(predictions.kept()[2].right);  // the target ends earlier
  EXPECT_TRUE(predictions.kept()[3].right);   // the empty text
  EXPECT_THAT(predictions.kept()[3].classes, IsEmpty());
}

TEST(Predictions, KeepTheFirstWrongAndTheFirstRightOnes) {
  Predictions predictions(image_of_class(), 1000);
  for (int32_t sample = 0; sample < 100; ++sample) show(predictions, image_of_class(), sample, {sample % 2}, {0});
  const auto shown = shown_first(predictions.kept(), 20);
  std::vector<int64_t> expected;
  for (int64_t wrong = 0; wrong < 16; ++wrong) expected.push_back(2 * wrong + 1);
  for (int64_t right = 0; right < 4; ++right) expected.push_back(2 * right);
  EXPECT_EQ(samples_of(shown), expected);
  EXPECT_EQ(predictions.kept().size(), 32u);
}

// Wrong ones are shown first, so the rest of a long evaluation costs nothing.
TEST(Predictions, NothingIsReadAfterAsManyWrongOnesAsAreShown) {
  Predictions predictions(image_of_class(), 1000);
  for (int32_t sample = 0; sample < 40; ++sample) show(predictions, image_of_class(), sample, {0}, {sample < 16 ? 1 : 0});
  ASSERT_EQ(predictions.kept().size(), 16u);
  EXPECT_EQ(predictions.kept().back().sample, 15);
}

TEST(Predictions, OfManyTargetsThoseOfTheFirstSamplesAreKeptAndTheLastOnesComparedWithWhatIsShown) {
  Predictions predictions(text(4), 100);
  for (int64_t sample = 0; sample < 10; ++sample)
    show(predictions, text(4), sample, {8, 7, 6, sample == 2 ? -1 : 5}, {6, static_cast<int32_t>(sample % 2 + 4)}, 2);
  EXPECT_THAT(samples_of(predictions.kept()), ElementsAre(0, 1, 2, 3));
  EXPECT_FALSE(predictions.kept()[0].right);
  EXPECT_TRUE(predictions.kept()[1].right);
  EXPECT_TRUE(predictions.kept()[2].right);  // its last target does not count
  EXPECT_THAT(predictions.kept()[3].classes, ElementsAre(6, 5));
  EXPECT_EQ(predictions.kept()[3].first, 2);
}

TEST(Predictions, AnAnswerIsWantedAsAWholeAndPaddingNever) {
  std::vector<int32_t> answer(2000, 5), plain(40, 5), padded(40, 5);
  std::fill_n(answer.begin(), 700, -1), std::fill_n(padded.begin() + 36, 4, -1);
  for (const auto& [targets, first, count] : std::vector<std::tuple<std::vector<int32_t>, int64_t, int64_t>>{
           {{-1, -1, 5, -1, 6, -1}, 2, 3},  // two answers of a conversation
           {{5, 6, -1}, 0, 2},
           {{-1, -1}, 0, 0},
           {answer, 700, 1024},
           {plain, 8, 32},
           {padded, 4, 32}}) {
    const auto length = static_cast<int64_t>(targets.size());
    std::vector<int32_t> two(targets.size(), 1);  // the sample before it
    two.insert(two.end(), targets.begin(), targets.end());
    const Microbatch batch{{}, {two.data(), DType::Int32, text(length).targets_of(2)}, 0};
    const TargetRange wanted = Predictions(text(length), 2).wants_targets(*kernels::make_cpu_kernels(1), batch, 1, length);
    EXPECT_EQ(wanted.count, count) << length;
    EXPECT_EQ(count > 0 ? wanted.first : first, first) << length;
  }
}

TEST(Predictions, TargetsThatComeInPiecesAreOnePrediction) {
  Predictions predictions(text(5), 2);
  const std::vector<int32_t> targets{-1, 7, 6, 5, -1};
  show(predictions, text(5), 0, targets, {7, 6}, 1);
  show(predictions, text(5), 0, targets, {5}, 3);
  show(predictions, text(5), 1, targets, {7, 4}, 1);
  show(predictions, text(5), 1, targets, {5}, 3);
  ASSERT_EQ(predictions.kept().size(), 2u);
  EXPECT_EQ(predictions.kept()[0].first, 1);
  EXPECT_THAT(predictions.kept()[0].classes, ElementsAre(7, 6, 5));
  EXPECT_TRUE(predictions.kept()[0].right);
  EXPECT_FALSE(predictions.kept()[1].right) << "its first piece is wrong";
}

TEST(Predictions, ThoseOfAllRanksAreShownOnceWithWrongOnesFirst) {
  const Prediction right{.sample = 1, .right = true, .classes = {2}}, wrong{.sample = 9, .right = false, .classes = {0}},
      earlier{.sample = 4, .right = false, .classes = {1}};
  EXPECT_THAT(samples_of(shown_first({right, wrong, earlier, wrong, right})), ElementsAre(4, 9, 1));
  EXPECT_THAT(samples_of(shown_first({right, wrong, earlier}, 2)), ElementsAre(4, 9));
}

TEST(Predictions, CrossRanksAsText) {
  const std::vector<Prediction> predictions{{.sample = 12, .right = false, .classes = {7}},
                                            {.sample = 0, .right = true, .classes = {}},
                                            {.sample = 3, .right = true, .first = 9, .classes = {1, 2, 3}}};
  EXPECT_EQ(to_text(predictions), "12 0 0 7\n0 1 0\n3 1 9 1 2 3\n");
  const auto read = predictions_from_text(to_text(predictions));
  EXPECT_EQ(to_text(read), to_text(predictions));
  EXPECT_THAT(predictions_from_text(""), IsEmpty());
  EXPECT_THROW(predictions_from_text("3 1\n"), std::invalid_argument);
}

}  // namespace
}  // namespace trivet
