#include "font.h"

#include <ft2build.h>
#include FT_FREETYPE_H

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace handwriting {
namespace {

constexpr int kMargin = 2;                              // pixels at the left and right that stay empty
constexpr int kSmallest = 10, kUsual = 21, kMost = 27;  // pixels of a letter M, about
constexpr double kMostSlant = 0.25;                     // pixels to the right for each pixel up
constexpr int kFixedOne = 0x10000, kPixel = 64;         // FreeType's fixed-point numbers

// Outlines are drawn as one byte for each pixel. Bitmaps that come with a font have other forms.
constexpr FT_Int32 kDrawOutline = FT_LOAD_RENDER | FT_LOAD_NO_BITMAP;

void check_font(FT_Face face, const std::string& path) {
  for (char letter = 'a'; letter <= 'z'; ++letter)
    if (FT_Get_Char_Index(face, static_cast<FT_ULong>(letter)) == 0)
      throw std::runtime_error(path + ": lacks the letter '" + letter + "'; name a font that has a to z");
  if (!FT_IS_SCALABLE(face)) throw std::runtime_error(path + ": has bitmaps instead of outlines; name a font with outlines");
}

// Adds a letter's bitmap whose upper left corner is at (row, column) and clips it at the edges.
void add_letter(const FT_Bitmap& letter, int row, int column, double ink, Image& image) {
  if (letter.pixel_mode != FT_PIXEL_MODE_GRAY) throw std::runtime_error("FreeType drew a letter that is not gray");
  for (int y = 0; y < static_cast<int>(letter.rows); ++y)
    for (int x = 0; x < static_cast<int>(letter.width); ++x) {
      const int to_row = row + y, to_column = column + x;
      if (to_row < 0 || to_row >= kRows || to_column < 0 || to_column >= kColumns) continue;
      uint8_t& pixel = image[static_cast<size_t>(to_row * kColumns + to_column)];
      const double value = ink * letter.buffer[y * letter.pitch + x];
      pixel = std::max(pixel, static_cast<uint8_t>(std::lround(value)));
    }
}

}  // namespace

void Font::CloseLibrary::operator()(FT_LibraryRec_* library) const { FT_Done_FreeType(library); }
void Font::CloseFace::operator()(FT_FaceRec_* face) const { FT_Done_Face(face); }

Font::Font(const std::string& path) {
  FT_Library library = nullptr;
  if (FT_Init_FreeType(&library) != 0) throw std::runtime_error("FreeType cannot be started");
  library_.reset(library);
  FT_Face face = nullptr;
  if (FT_New_Face(library, path.c_str(), 0, &face) != 0)
    throw std::runtime_error(path + ": is missing, or is no font that FreeType can read");
  face_.reset(face);
  check_font(face, path);
}

int Font::width_of(const std::string& word, int pixels) const {
  FT_Set_Pixel_Sizes(face_.get(), 0, static_cast<FT_UInt>(pixels));
  int width = 0;
  for (const char letter : word)
    if (FT_Load_Char(face_.get(), static_cast<unsigned char>(letter), FT_LOAD_NO_BITMAP) == 0)
      width += static_cast<int>(face_->glyph->advance.x / kPixel);
  return width;
}

Image Font::draw(const std::string& word, const Hand& hand) const {
  const double slant = (2 * hand.slant - 1) * kMostSlant;
  FT_Matrix shear{kFixedOne, static_cast<FT_Fixed>(slant * kFixedOne), 0, kFixedOne};
  FT_Set_Transform(face_.get(), nullptr, nullptr);  // widths are measured upright
  int pixels = kUsual + static_cast<int>(std::lround((2 * hand.size - 1) * (kMost - kUsual)));
  while (pixels > kSmallest && width_of(word, pixels) > kColumns - 2 * kMargin) --pixels;
  const int room = std::max(0, kColumns - 2 * kMargin - width_of(word, pixels));
  int column = kMargin + static_cast<int>(hand.left * std::min(room, kColumns / 8));
  const int baseline = kRows * 5 / 8 + static_cast<int>(std::lround(2 * hand.height));
  Image image(static_cast<size_t>(kRows) * kColumns);
  FT_Set_Transform(face_.get(), &shear, nullptr);
  for (const char letter : word) {
    if (FT_Load_Char(face_.get(), static_cast<unsigned char>(letter), kDrawOutline) != 0)
      throw std::runtime_error(std::string("FreeType cannot draw the letter '") + letter + "' of this font");
    const FT_GlyphSlot glyph = face_->glyph;
    add_letter(glyph->bitmap, baseline - glyph->bitmap_top, column + glyph->bitmap_left, 0.5 + 0.5 * hand.ink, image);
    column += static_cast<int>(glyph->advance.x / kPixel);
  }
  return image;
}

}  // namespace handwriting
