// Looks for what no text holds: NUL, and bytes that are not UTF-8. The text is given piece by piece, as it is read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trivet::data {

// The mark that some editors write in front of a text in UTF-8. It is no part of the text.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

class TextCheck {
 public:
  // Looks at the next piece. After the first finding, nothing more is looked at.
  void add(std::string_view piece);
  // The text ends here, so a character may not be incomplete.
  void finish();

  bool is_text() const { return place_ < 0; }
  int64_t place() const { return place_; }  // the first byte that no text has there; -1: there is none
  // "holds NUL at byte 12", "is not UTF-8 at byte 3 (0xe9)"
  std::string in_words() const;

 private:
  void find(int64_t place, char byte);
  void complete(std::string_view& piece);
  void add_whole(std::string_view piece);

  int64_t bytes_ = 0;       // bytes of all earlier pieces
  std::string incomplete_;  // the first bytes of a character, at the end of a piece
  int64_t place_ = -1;
  uint8_t byte_ = 0;
};

}  // namespace trivet::data
