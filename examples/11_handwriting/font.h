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

// The style in which a word is written; all numbers are from 0 to 1.
struct Hand {
  double size = 0.5, slant = 0.5, left = 0.5, height = 0.5, ink = 1;
};

class Font {
 public:
  // Throws std::runtime_error if the file is not a font with outlines of the letters a to z.
  explicit Font(const std::string& path);

  // `word`: letters a to z. It becomes smaller if it would not fit. Throws std::runtime_error if FreeType cannot draw a letter.
  Image draw(const std::string& word, const Hand& hand) const;

 private:
  struct CloseLibrary {
    void operator()(FT_LibraryRec_* library) const;
  };
  struct CloseFace {
    void operator()(FT_FaceRec_* face) const;
  };

  int width_of(const std::string& word, int pixels) const;

  std::unique_ptr<FT_LibraryRec_, CloseLibrary> library_;
  std::unique_ptr<FT_FaceRec_, CloseFace> face_;  // closed before the library
};

}  // namespace handwriting
