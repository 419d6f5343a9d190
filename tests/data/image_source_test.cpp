// Images as samples of a run: normalization, augmentation, and which of them are for validation.
#include "data/image_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "data/training_data.h"
#include "engine/config/config.h"
#include "tests/data/expect_error.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_folder.h"
#include "trainer/open_data.h"

namespace trivet::data {
namespace {

// Images of 2 channels, 2 rows and 3 columns, whose pixels are numbered from 1.
std::shared_ptr<const Images> numbered(int32_t count) {
  Images images{.channels = 2, .rows = 2, .cols = 3, .pixels = {}, .classes = {}};
  for (int32_t image = 0; image < count; ++image) {
    images.classes.push_back(image % 4);
    for (int32_t pixel = 0; pixel < 12; ++pixel) images.pixels.push_back(static_cast<uint8_t>(12 * image + pixel + 1));
  }
  return std::make_shared<const Images>(images);
}

struct Sample {
  std::vector<float> input;
  int32_t target = -1;
  bool operator==(const Sample&) const = default;
};

Sample sample_of(const SampleSource& source, int64_t sample, int64_t epoch = 0) {
  Sample result{std::vector<float>(source.spec().input.elements()), -1};
  source.fill(sample, epoch, std::as_writable_bytes(std::span(result.input)), {&result.target, 1});
  return result;
}

// So that inputs are the bytes.
const Normalization kAsBytes{{0}, {1.0 / 255}};

TEST(ImageSource, NormalizesEachChannel) {
  const ImageSource source(numbered(2), {1, 0}, {{0.5, 0}, {0.25, 1}});
  EXPECT_EQ(source.samples(), 2);
  EXPECT_EQ(source.spec().input, (Shape{2, 2, 3}));
  EXPECT_EQ(source.spec().targets, (Shape{1}));
  EXPECT_EQ(source.spec().classes, 2);
  const Sample first = sample_of(source, 0);
  EXPECT_EQ(first.target, 1);
  EXPECT_FLOAT_EQ(first.input[0], (13.0f / 255 - 0.5f) / 0.25f);
  EXPECT_FLOAT_EQ(first.input[11], 24.0f / 255);
  EXPECT_EQ(sample_of(source, 1).target, 0);
}

// Augmentation would move it.
TEST(ImageSource, ShowsASampleAsItIsInTheFiles) {
  const ImageSource source(numbered(4), {2, 0}, {{0.5}, {0.25}}, {.seed = 1, .crop_padding = 1, .flip = true});
  const Picture picture = source.picture(1);
  EXPECT_EQ(picture.channels, 1);  // the first of 2
  EXPECT_EQ(picture.rows, 2);
  EXPECT_EQ(picture.cols, 3);
  EXPECT_EQ(picture.pixels, (std::vector<uint8_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(source.picture(0).pixels[0], 25);
}

TEST(ImageSource, SaysClassesAndTextsInWords) {
  const ImageSource classes(numbered(4), {0}, kAsBytes);
  EXPECT_EQ(classes.in_words(std::array{3}), "3");
  Images words = *numbered(2);
  words.characters = "ab";
  words.classes = {1, 2};
  const ImageSource texts(std::make_shared<const Images>(words), {0, 1}, kAsBytes);
  EXPECT_EQ(texts.in_words(std::array{2, 1, 2, -1, -1}), "bab");
  EXPECT_EQ(texts.in_words(std::array{0}), "");
}

TEST(ImageSource, MirrorsHalfOfTheImagesFromSeedEpochAndSample) {
  const auto images = numbered(200 / 12);
  std::vector<int64_t> all(16);
  for (int64_t i = 0; i < 16; ++i) all[i] = i;
  const ImageSource plain(images, all, kAsBytes), flipped(images, all, kAsBytes, {.seed = 1, .flip = true});
  int mirrored = 0;
  for (int64_t epoch = 0; epoch < 8; ++epoch)
    for (const int64_t number : all) {
      const Sample as_is = sample_of(plain, number), got = sample_of(flipped, number, epoch);
      Sample mirror = as_is;
      for (auto row = mirror.input.begin(); row != mirror.input.end(); row += 3) std::reverse(row, row + 3);
      EXPECT_TRUE(got == as_is || got == mirror);
      mirrored += got == mirror;
      EXPECT_EQ(got, sample_of(flipped, number, epoch));
    }
  EXPECT_NEAR(mirrored, 64, 20);
  const ImageSource other_seed(images, all, kAsBytes, {.seed = 2, .flip = true});
  EXPECT_TRUE(std::ranges::any_of(all, [&](int64_t n) { return sample_of(other_seed, n) != sample_of(flipped, n); }));
}

// With a padding of 1, a part begins at one of 3 x 3 places; pixels outside are black.
TEST(ImageSource, TakesEveryPartOfTheSurroundedImage) {
  const ImageSource source(numbered(1), {0}, kAsBytes, {.seed = 3, .crop_padding = 1});
  std::set<std::pair<int, int>> places;
  for (int64_t epoch = 0; epoch < 200; ++epoch) {
    const Sample got = sample_of(source, 0, epoch);
    bool found = false;
    for (int down = -1; down <= 1; ++down)
      for (int right = -1; right <= 1; ++right) {
        Sample expected{std::vector<float>(12), 0};
        for (int channel = 0; channel < 2; ++channel)
          for (int row = 0; row < 2; ++row)
            for (int col = 0; col < 3; ++col) {
              const int from_row = row + down, from_col = col + right;
              const bool inside = from_row >= 0 && from_row < 2 && from_col >= 0 && from_col < 3;
              expected.input[channel * 6 + row * 3 + col] =
                  inside ? static_cast<float>(channel * 6 + from_row * 3 + from_col + 1) : 0.0f;
            }
        for (float& value : expected.input) value = std::round(value);
        Sample rounded = got;
        for (float& value : rounded.input) value = std::round(value);
        if (rounded == expected) places.emplace(down, right), found = true;
      }
    EXPECT_TRUE(found) << "epoch " << epoch;
  }
  EXPECT_EQ(places.size(), 9u);
}

TEST(ImageSource, HasADigestOfItsImagesAndClasses) {
  const ImageSource first(numbered(3), {0, 1}, kAsBytes), second(numbered(3), {1, 2}, kAsBytes);
  EXPECT_TRUE(first.digest().starts_with("2 images 2 x 2 x 3, xxh3 ")) << first.digest();
  EXPECT_EQ(first.digest(), ImageSource(numbered(3), {0, 1}, {{0}, {1}}).digest());
  EXPECT_NE(first.digest(), second.digest());
  Images relabelled = *numbered(3);
  relabelled.classes[1] = 3;
  EXPECT_NE(first.digest(), ImageSource(std::make_shared<const Images>(relabelled), {0, 1}, kAsBytes).digest());
}

TEST(ImageSource, FillsUnusedPlacesOfATarget) {
  Images words = *numbered(2);
  words.places = 2;
  words.characters = "abc";
  words.classes = {3, -1, 1, 2};
  const ImageSource source(std::make_shared<const Images>(words), {1, 0}, kAsBytes, {}, 4);
  EXPECT_EQ(source.spec().targets, Shape{4});
  EXPECT_TRUE(source.spec().spelled);
  EXPECT_EQ(source.spec().classes, 4);
  std::vector<float> input(words.bytes_of_one());
  std::vector<int32_t> targets(4, 77);
  source.fill(0, 0, std::as_writable_bytes(std::span(input)), targets);
  EXPECT_EQ(targets, (std::vector<int32_t>{1, 2, -1, -1}));
  source.fill(1, 0, std::as_writable_bytes(std::span(input)), targets);
  EXPECT_EQ(targets, (std::vector<int32_t>{3, -1, -1, -1}));
  Images other = words;
  other.classes[3] = 1;
  const std::vector<int64_t> both{0, 1};
  EXPECT_NE(ImageSource(std::make_shared<const Images>(other), both, kAsBytes, {}, 4).digest(),
            ImageSource(std::make_shared<const Images>(words), both, kAsBytes, {}, 4).digest());
}

class ImageRun : public testing::Test {
 protected:
  // `count` images of 1 x 1 pixels, of classes 0, 1, 2.
  void write(const std::string& prefix, uint32_t count) {
    std::string pixels, labels;
    for (uint32_t i = 0; i < count; ++i) pixels += static_cast<char>(i), labels += static_cast<char>(i * 3 / count);
    folder_.write(prefix + "-images-idx3-ubyte", test::idx_text({count, 1, 1}, pixels));
    folder_.write(prefix + "-labels-idx1-ubyte", test::idx_text({count}, labels));
  }
  Config config() const {
    Config config;
    config.source = "net.json";
    config.model.type = model::Type::Sequential;
    config.model.input = {1, 1, 1};
    config.data.train = folder_.path();
    config.data.deviation = {1.0 / 255};
    return config;
  }
  static std::vector<float> inputs_of(const SampleSource& source) {
    std::vector<float> inputs;
    for (int64_t i = 0; i < source.samples(); ++i) inputs.push_back(sample_of(source, i).input[0]);
    return inputs;
  }
  void expect_refused(const Config& config, const std::string& message) {
    expect_error([&] { trainer::open_image_data(config); }, ExitCode::Usage, message);
  }
  test::TemporaryFolder folder_;
};

TEST_F(ImageRun, EvaluatesOnTheTestImagesOfAnArchiveWithoutAugmentation) {
  write("train", 10);
  write("t10k", 4);
  Config c = config();
  c.data.crop_padding = 5;
  const auto data = trainer::open_image_data(c);
  EXPECT_EQ(data->train()->samples(), 10);
  EXPECT_EQ(inputs_of(*data->validation()), (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(data->sizes(), "10 training images, 4 validation images, 3 classes");
  EXPECT_EQ(data->validation_digest(), data->validation()->digest());
  EXPECT_EQ(data->validation_picture(2)->pixels, (std::vector<uint8_t>{2}));
  EXPECT_EQ(data->in_words(std::array{2}), "2");
  EXPECT_THAT(data->notes(), testing::IsEmpty());
  c.given = {{"data.validation_fraction", "0.5"}};
  EXPECT_THAT(
      trainer::open_image_data(c)->notes(),
      testing::ElementsAre(testing::HasSubstr("there are 4 test images, which are for validation; data.validation_fraction has "
                                              "no effect")));
  c.data.validation = folder_.at("t10k-images-idx3-ubyte");
  EXPECT_THAT(trainer::open_image_data(c)->notes(),
              testing::ElementsAre(testing::HasSubstr("there are 4 test images, which are not used: data.validation names "
                                                      "others")));
}

TEST_F(ImageRun, HoldsOutImagesSpreadOverTheSet) {
  write("train", 10);
  Config c = config();
  c.data.validation_fraction = 0.3;
  const auto data = trainer::open_image_data(c);
  EXPECT_EQ(inputs_of(*data->validation()), (std::vector<float>{3, 6, 9}));
  EXPECT_EQ(inputs_of(*data->train()), (std::vector<float>{0, 1, 2, 4, 5, 7, 8}));
  c.data.validation_fraction = 0;
  EXPECT_EQ(trainer::open_image_data(c)->validation(), nullptr);
  EXPECT_EQ(trainer::open_image_data(c)->validation_digest(), "");
}

// The validation images lack a class, so that their folders alone would be numbered differently.
TEST_F(ImageRun, NumbersClassesOfValidationImagesAsThoseOfTraining) {
  const std::string black = test::PngText{.stored = std::string(2, '\0')}.text();
  for (const std::string name : {"train/bird", "train/cat", "train/dog", "validation/dog"}) {
    std::filesystem::create_directories(folder_.at(name));
    folder_.write(name + "/1.png", black);
  }
  Config c = config();
  c.data.train = folder_.at("train");
  c.data.validation = folder_.at("validation");
  const auto data = trainer::open_image_data(c);
  EXPECT_EQ(sample_of(*data->train(), 2).target, 2);
  EXPECT_EQ(sample_of(*data->validation(), 0).target, 2);
  EXPECT_EQ(data->in_words(std::array{2}), "dog");
  EXPECT_EQ(data->in_words(std::array{3}), "3");  // a model may have more classes than the data
  std::filesystem::create_directories(folder_.at("validation/cow"));
  expect_refused(c, folder_.at("validation/cow") + ": is a class that the training images do not have");
}

TEST_F(ImageRun, RefusesImagesThatDoNotFitTheModelOrEachOther) {
  write("train", 3);
  Config c = config();
  c.model.input = {1, 28, 28};
  expect_refused(c, "net.json: model.input: [1, 28, 28], but the images of " + folder_.path() + " are [1, 1, 1]; use that");
  c = config();
  c.data.mean = {0, 0, 0};
  expect_refused(
      c, "net.json: data.mean: 3 numbers are given, but images have 1 channels; give one number, or one for each channel");
  c = config();
  folder_.write("other-images-idx3-ubyte", test::idx_text({1, 1, 1}, "a"));
  folder_.write("other-labels-idx1-ubyte", test::idx_text({1}, "\x07"));
  c.data.validation = folder_.at("other-images-idx3-ubyte");
  expect_refused(c, "net.json: data.validation: " + c.data.validation +
                        " has images of class 7, but the training images have classes up to 2");
  c = config();
  c.data.train.clear();
  expect_refused(c, "net.json: data.train: is missing; name a folder or file of images (docs/data.md)");
  c = config();
  c.data.validation_fraction = 0.9999;
  expect_refused(c, "net.json: data.validation_fraction: leaves no image for training; use a smaller one");
}

}  // namespace
}  // namespace trivet::data
