#include "data/png.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/data/expect_error.h"
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

// The same two rows of RGB pixels with each filter; the second row's values are differences to its predictor.
TEST(ReadPng, EveryFilter) {
  const Pixels expected{10, 40, 7, 90, 20, 50, 200, 60, 30, 60, 100, 1};
  const auto pixels = [](int filter, std::initializer_list<int> second) {
    std::string stored = bytes({0, 10, 20, 30, 40, 50, 60}) + bytes({filter}) + bytes(second);
    return read_png(PngText{.rows = 2, .cols = 2, .colour = 2, .stored = stored}.text(), "a.png").pixels;
  };
  EXPECT_EQ(pixels(0, {7, 200, 100, 90, 60, 1}), expected);
  EXPECT_EQ(pixels(1, {7, 200, 100, 83, 116, 157}), expected);   // - left
  EXPECT_EQ(pixels(2, {253, 180, 70, 50, 10, 197}), expected);   // - up
  EXPECT_EQ(pixels(3, {2, 190, 85, 67, 191, 177}), expected);    // - (left + up) / 2
  EXPECT_EQ(pixels(4, {253, 180, 70, 50, 116, 157}), expected);  // - the nearest of left, up and corner
}

// 4 is left, 1 is up, and 2 in the corner: 4 + 1 - 2 is as far from left as from the corner.
TEST(ReadPng, OfNeighboursThatAreEquallyNearTheLeftOneIsTaken) {
  const PngText image{.rows = 2, .cols = 2, .stored = bytes({0, 2, 1, 4, 2, 0})};
  EXPECT_EQ(read_png(image.text(), "a.png").pixels, (Pixels{2, 1, 4, 4}));
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
                           png_chunk("IDAT", stored.substr(0, 5)) + png_chunk("IDAT", stored.substr(5)) + png_chunk("IEND", "");
  EXPECT_EQ(read_png(text, "a.png").pixels, (Pixels{1, 2, 3}));
}

void expect_refused(const std::string& text, const std::string& message) {
  expect_error([&] { read_png(text, "a.png"); }, ExitCode::Usage, "a.png: " + message);
}

TEST(ReadPng, RefusesWhatItDoesNotKnow) {
  const std::string kinds = "; gray, RGB and palettes with up to 8 bits are accepted";
  expect_refused(PngText{.colour = 6}.text(), "has transparency; store it without (as gray, RGB or with a palette)");
  expect_refused(PngText{.colour = 4}.text(), "has transparency; store it without (as gray, RGB or with a palette)");
  expect_refused(PngText{.depth = 16}.text(), "has pixels of kind 0 with 16 bits" + kinds);
  expect_refused(PngText{.depth = 4, .colour = 2}.text(), "has pixels of kind 2 with 4 bits" + kinds);
  expect_refused(PngText{.colour = 7}.text(), "has pixels of kind 7 with 8 bits" + kinds);
  expect_refused(PngText{.interlaced = 1}.text(),
                 "is interlaced or packed in a way that this version does not know; store it without interlacing");
  expect_refused(PngText{.rows = 4097, .cols = 4096}.text(), "has 4097 x 4096 pixels; 1 to 16777216 pixels are accepted");
  expect_refused(PngText{.rows = 0}.text(), "has 0 x 1 pixels; 1 to 16777216 pixels are accepted");
  expect_refused(PngText::signature() + PngText{}.header() + png_chunk("tRNS", "ab"),
                 "has transparent pixels; store it without transparency");
  expect_refused(PngText::signature() + PngText{}.header() + png_chunk("NEWX", "ab"),
                 "has a part \"NEWX\", which this version does not know");
}

TEST(ReadPng, RefusesDamage) {
  const std::string good = PngText{.cols = 3, .stored = bytes({0, 1, 2, 3})}.text();
  std::string flipped = good;
  flipped[PngText::signature().size() + 10] ^= 1;
  expect_refused(flipped, "is damaged: the checksum of \"IHDR\" at byte 8 does not match");
  for (size_t size : {good.size() - 1, good.size() - 13, PngText::signature().size() + 5})
    expect_refused(good.substr(0, size), fmt::format("is incomplete: it ends at byte {}, inside a part", size));
  expect_refused(good + "more", fmt::format("ends at byte {}, but 4 more bytes follow; copy the file again", good.size()));
  const std::string pixels = test::packed(bytes({0, 1, 2, 3}));
  expect_refused(PngText::signature() + PngText{.cols = 3}.header() + png_chunk("IDAT", pixels + "?") + png_chunk("IEND", ""),
                 fmt::format("its packed pixels end at byte {} of {}; the rest is something else, so the file is damaged",
                             pixels.size(), pixels.size() + 1));
  expect_refused("GIF89a", "is not a PNG image");
  expect_refused(PngText::signature() + png_chunk("IEND", ""), "is not a PNG image: it does not begin with a header");
  expect_refused(PngText{.cols = 3, .stored = bytes({5, 1, 2, 3})}.text(), "is damaged: a row has an unknown filter");
  expect_refused(PngText{.cols = 3, .stored = bytes({0, 1, 2})}.text(), "its pixels are damaged or incomplete: 3 bytes of 4");
  expect_refused(PngText{.cols = 3, .stored = bytes({0, 1, 2, 3, 4})}.text(),
                 "its pixels are damaged or incomplete: 0 bytes of 4");
  expect_refused(PngText{.rows = 4096, .cols = 4096, .stored = bytes({0})}.text(), "its pixels are incomplete");
  expect_refused(PngText{.colour = 3, .stored = bytes({0, 0})}.text(),
                 "has a palette of 0 bytes; use 3 bytes for each of 1 to 256 colours");
  expect_refused(PngText{.colour = 3, .palette = "abcd", .stored = bytes({0, 0})}.text(),
                 "has a palette of 4 bytes; use 3 bytes for each of 1 to 256 colours");
  expect_refused(PngText{.colour = 3, .palette = "abc", .stored = bytes({0, 1})}.text(),
                 "has a pixel of colour 1, but its palette has 1");
}

}  // namespace
}  // namespace trivet::data
