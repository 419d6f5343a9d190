#include "data/png.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/image_files.h"

namespace trivet::data {
namespace {

using test::png_chunk, test::PngText;
using Pixels = std::vector<uint8_t>;

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

TEST(ReadPng, GrayAndRgb) {
  const Picture gray = read_png(PngText{.rows = 2, .cols = 3, .stored = bytes({0, 1, 2, 3, 0, 4, 5, 255})}.text(), "a.png");
  EXPECT_EQ(gray.channels, 1);
  EXPECT_EQ(gray.rows, 2);
  EXPECT_EQ(gray.cols, 3);
  EXPECT_EQ(gray.pixels, (Pixels{1, 2, 3, 4, 5, 255}));
  const Picture rgb = read_png(PngText{.cols = 2, .colour = 2, .stored = bytes({0, 1, 2, 3, 4, 5, 6})}.text(), "a.png");
  EXPECT_EQ(rgb.channels, 3);
  EXPECT_EQ(rgb.pixels, (Pixels{1, 4, 2, 5, 3, 6}));  // channel by channel
}

TEST(ReadPng, FewBitsAndPalettes) {
  const auto gray = [](char depth, uint32_t cols, const std::string& row) {
    return read_png(PngText{.cols = cols, .depth = depth, .stored = bytes({0}) + row}.text(), "a.png").pixels;
  };
  EXPECT_EQ(gray(1, 9, bytes({0b10110001, 0b10000000})), (Pixels{255, 0, 255, 255, 0, 0, 0, 255, 255}));
  EXPECT_EQ(gray(2, 5, bytes({0b00011011, 0b11000000})), (Pixels{0, 85, 170, 255, 255}));
  EXPECT_EQ(gray(4, 3, bytes({0x0f, 0x80})), (Pixels{0, 255, 136}));
  const std::string colours = bytes({1, 2, 3, 4, 5, 6, 7, 8, 9});
  const PngText image{.cols = 4, .depth = 2, .colour = 3, .palette = colours, .stored = bytes({0, 0b10000110})};
  EXPECT_EQ(read_png(image.text(), "a.png").pixels, (Pixels{7, 1, 4, 7, 8, 2, 5, 8, 9, 3, 6, 9}));
}

TEST(ReadPng, SeveralPartsOfPixelsAndTextsInBetween) {
  const std::string stored = test::packed(bytes({0, 1, 2, 3}));
  const std::string text = PngText::signature() + PngText{.cols = 3}.header() + png_chunk("tEXt", "Title") +
                           png_chunk("iCCP", "no profile") + png_chunk("IDAT", stored.substr(0, 5)) +
                           png_chunk("IDAT", stored.substr(5)) + png_chunk("IEND", "");
  EXPECT_EQ(read_png(text, "a.png").pixels, (Pixels{1, 2, 3}));
}

// Colours stay as they are stored, whatever is transparent, as PIL's convert("RGB") has them.
TEST(ReadPng, LeavesTransparencyOut) {
  const PngText gray{.cols = 2, .colour = 4, .stored = bytes({0, 7, 0, 9, 255})};
  EXPECT_EQ(read_png(gray.text(), "a.png").channels, 1);
  EXPECT_EQ(read_png(gray.text(), "a.png").pixels, (Pixels{7, 9}));
  const PngText rgb{.cols = 2, .colour = 6, .stored = bytes({0, 1, 2, 3, 0, 4, 5, 6, 128})};
  EXPECT_EQ(read_png(rgb.text(), "a.png").pixels, (Pixels{1, 4, 2, 5, 3, 6}));
  const std::string text = PngText::signature() + PngText{.cols = 2, .colour = 3}.header() + png_chunk("PLTE", "abcdef") +
                           png_chunk("tRNS", std::string(1, '\0')) + png_chunk("IDAT", test::packed(bytes({0, 0, 1}))) +
                           png_chunk("IEND", "");
  EXPECT_EQ(read_png(text, "a.png").pixels, (Pixels{'a', 'd', 'b', 'e', 'c', 'f'}));
}

TEST(ReadPng, ScalesSixteenBitsToEight) {
  const PngText image{.cols = 4, .depth = 16, .stored = bytes({0, 0, 0, 0xff, 0xff, 0x12, 0x34, 0x80, 0xff})};
  EXPECT_EQ(read_png(image.text(), "a.png").pixels, (Pixels{0, 255, 18, 128}));  // value / 257, rounded
}

// Two columns of three rows in the passes of Adam7: (0, 0) in the first, (0, 1) and (2, 1) in the sixth ...
TEST(ReadPng, Interlaced) {
  const PngText image{.rows = 3, .cols = 2, .interlaced = 1, .stored = bytes({0, 1, 0, 5, 0, 2, 0, 6, 0, 3, 4})};
  EXPECT_EQ(read_png(image.text(), "a.png").pixels, (Pixels{1, 2, 3, 4, 5, 6}));
}

struct BadImage {
  std::string text, error;
};

TEST(ReadPng, RefusesDamageAndWhatIsTooLarge) {
  const auto damaged = [](size_t at, size_t size, const char* why) {
    return fmt::format("is damaged, or no PNG image, at byte {} of {}: {}; copy or make it again", at, size, why);
  };
  const std::string good = PngText{.cols = 3, .stored = bytes({0, 1, 2, 3})}.text();
  std::string flipped = good;
  flipped[PngText::signature().size() + 11] ^= 1;  // 3 columns become 2
  const std::string pixels = test::packed(bytes({0, 1, 2, 3}));
  const std::string more =
      PngText::signature() + PngText{.cols = 3}.header() + png_chunk("IDAT", pixels + "?") + png_chunk("IEND", "");
  const std::string unknown = PngText::signature() + PngText{}.header() + png_chunk("NEWX", "ab") + png_chunk("IEND", "");
  const std::string few = PngText{.cols = 3, .stored = bytes({0, 1, 2})}.text(),
                    many = PngText{.cols = 3, .stored = bytes({0, 1, 2, 3, 4})}.text(),
                    filter = PngText{.cols = 3, .stored = bytes({5, 1, 2, 3})}.text();
  const BadImage images[] = {
      {"GIF89a", "is not a PNG image"},
      {flipped, damaged(33, flipped.size(), "IHDR: CRC error")},
      {good.substr(0, good.size() - 1), damaged(good.size() - 4, good.size() - 1, "it is incomplete")},
      {good.substr(0, 20), damaged(16, 20, "it is incomplete")},
      {good + "more", fmt::format("ends at byte {}, but 4 more bytes follow; copy the file again", good.size())},
      {more, "compressed data"},
      {few, "Not enough image data"},
      {many, "image data"},
      {filter, "bad adaptive filter value"},
      {unknown, "NEWX: unhandled critical chunk"},
      {PngText{.rows = 4097, .cols = 4096}.text(), "has 4097 x 4096 pixels; at most 16777216 are accepted"},
      {PngText{.rows = 4096, .cols = 4096, .stored = bytes({0})}.text(), "bytes cannot hold 4096 x 4096 pixels"},
      {PngText{.rows = 0}.text(), "Invalid IHDR data"},
  };
  for (const BadImage& image : images)
    EXPECT_THAT([&] { read_png(image.text, "a.png"); }, testing::ThrowsMessage<DataError>(testing::AllOf(
                                                            testing::StartsWith("a.png: "), testing::HasSubstr(image.error))));
}

}  // namespace
}  // namespace trivet::data
