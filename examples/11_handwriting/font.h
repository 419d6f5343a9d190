// Draws a word with a font, as if someone had written it: size, slant, place and ink differ from word to word.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct FT_LibraryRec_;
struct FT_FaceRec_;

namespace handwriting {

inline constexpr int kRows = 32, kColumns = 128;

// Gray, row by row: 0 is paper, 255 is ink.
using Image = std::vector<uint8_t>;

// How a word is written; all numbers are from 0 to 1.
struct Hand {
  double size = 0.5, slant = 0.5, left = 0.5, height = 0.5, ink = 1;
};

class Font {
 public:
  // Throws std::runtime_error if the file is not a font.
  explicit Font(const std::string& path);
  ~Font();
  Font(const Font&) = delete;
  Font& operator=(const Font&) = delete;

  // The word becomes smaller if it would not fit. Letters that the font lacks leave a gap.
  Image draw(const std::string& word, const Hand& hand) const;

 private:
  int width_of(const std::string& word, int pixels) const;

  FT_LibraryRec_* library_ = nullptr;
  FT_FaceRec_* face_ = nullptr;
};

}  // namespace handwriting
