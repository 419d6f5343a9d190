#include "data/tokenizers/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "data/tokenizers/code_points.h"
#include "data/unicode_tables.h"
#include "data/word_split.h"

namespace trivet::data {
namespace {

utf8proc_category_t category(char32_t c) {
  return c >= kNotUtf8 ? UTF8PROC_CATEGORY_CN : utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// The version of Unicode that added the code point, if it is 9 or later; otherwise 0.
int version_of(char32_t c) {
  const AddedRange* range = c < 0x80 ? nullptr : added_range_of(c);
  return range ? range->version : 0;
}

std::string_view category_of_added(char32_t c) {
  const AddedRange* range = added_range_of(c);
  return range ? range->category : "Cn";
}

bool is_between(char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; }

// The category of Unicode 16, whatever version utf8proc has.
bool is_in_category(char32_t c, std::string_view wanted) {
  if (c >= kNotUtf8) return false;
  const std::string_view known = utf8proc_category_string(static_cast<utf8proc_int32_t>(c));
  return (known == "Cn" ? category_of_added(c) : known).starts_with(wanted);
}

// Joiners, and circled and squared letters.
constexpr std::array<std::pair<char32_t, char32_t>, 5> kMoreWordChars{
    {{0x200C, 0x200D}, {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}}};

// Upper case that utf8proc does not know yet: the lower case is so much further.
struct CasePairs {
  char32_t first, last;
  int32_t to_lower;
};
constexpr std::array<CasePairs, 10> kNewCases{{{0x1C89, 0x1C89, 1},
                                               {0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
                                               {0xA7CC, 0xA7CC, 1},
                                               {0xA7CE, 0xA7CE, 1},
                                               {0xA7D2, 0xA7D2, 1},
                                               {0xA7D4, 0xA7D4, 1},
                                               {0xA7DA, 0xA7DA, 1},
                                               {0xA7DC, 0xA7DC, 0x19B - 0xA7DC},
                                               {0x10D50, 0x10D65, 0x20},
                                               {0x16EA0, 0x16EB8, 0x1B}}};

bool is_mark_of_any_age(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

// Checks whether a code point stays as it is in the normal form, whatever its neighbours are. The parts of Hangul
// syllables do not, because they combine.
bool is_stable(char32_t c, NormalForm form) {
  if (c < 0x80 || c >= kNotUtf8) return true;
  const bool composed = form == NormalForm::NFC || form == NormalForm::NFKC;
  if (is_between(c, 0x1100, 0x11FF)) return false;
  if (is_mark_of_any_age(c)) return version_of(c) > 9;
  if (is_between(c, 0xAC00, 0xD7FF)) return composed;
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  if (property->decomp_seqindex == UINT16_MAX || version_of(c) > 9) return true;
  const bool compatible = form == NormalForm::NFKC || form == NormalForm::NFKD;
  return property->decomp_type != 0 && !compatible;
}

utf8proc_option_t options_of(NormalForm form) {
  int options = UTF8PROC_STABLE;
  if (form == NormalForm::NFC || form == NormalForm::NFKC)
    options |= UTF8PROC_COMPOSE;
  else
    options |= UTF8PROC_DECOMPOSE;
  if (form == NormalForm::NFKC || form == NormalForm::NFKD) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

using CodePoints = std::vector<utf8proc_int32_t>;

// Appends what the code points of `text`, which is UTF-8, decompose into.
void append_decomposed(CodePoints& points, std::string_view text, utf8proc_option_t options) {
  constexpr utf8proc_ssize_t kMost = 32;  // U+FDFA has 18
  int boundary = UTF8PROC_BOUNDCLASS_START;
  for_each_code_point(text, [&](char32_t c, std::string_view) {
    std::array<utf8proc_int32_t, kMost> parts{};
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), kMost, options, &boundary);
    if (count < 0 || count > kMost) throw std::logic_error("normal_form: text that is not UTF-8 was not recognized");
    points.insert(points.end(), parts.begin(), parts.begin() + count);
  });
}

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// The canonical ordering of Unicode: marks that follow one another are sorted by their combining class, stably. utf8proc's own
// sort takes time that grows with the square of their number.
void order_marks(CodePoints& points) {
  for (auto begin = points.begin(); begin != points.end();) {
    const auto end = std::find_if(begin, points.end(), [](utf8proc_int32_t c) { return combining_class(c) == 0; });
    if (end - begin > 1) std::stable_sort(begin, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end == points.end() ? end : end + 1;
  }
}

void append_normal_form(std::string& out, std::string_view text, NormalForm form) {
  const utf8proc_option_t options = options_of(form);
  CodePoints points;
  points.reserve(text.size());
  append_decomposed(points, text, options);
  order_marks(points);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()), options);  // composes them
  if (count < 0) throw std::logic_error("normal_form: utf8proc cannot compose");
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(out, static_cast<char32_t>(points[static_cast<size_t>(i)]));
}

}  // namespace

// Code points that are named one by one below have changed their category.
bool is_white_space(char32_t c) { return class_of(c) == CharacterClass::Space; }

// The last two ranges are new in Unicode 17.
bool is_number(char32_t c) {
  return class_of(c) == CharacterClass::Number || is_between(c, 0x11DE0, 0x11DE9) || is_between(c, 0x16FF4, 0x16FF6);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return is_between(c, 33, 47) || is_between(c, 58, 64) || is_between(c, 91, 96) || is_between(c, 123, 126);
  const auto kind = category(c);
  return (kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO && version_of(c) == 0) || c == 0x166D || c == 0x111C9;
}

bool is_mark(char32_t c) {
  return (is_mark_of_any_age(c) && version_of(c) <= 9 && c != 0x111C9) || is_between(c, 0x1CF2, 0x1CF3);
}

bool is_nonspacing_mark(char32_t c) {
  const bool became_one = is_between(c, 0x1885, 0x1886) || c == 0xA9BD || c == 0x111C9;
  return (category(c) == UTF8PROC_CATEGORY_MN && version_of(c) == 0 && !became_one) || c == 0x1734;
}

bool is_other(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_CC && kind <= UTF8PROC_CATEGORY_CO && version_of(c) == 0;
}

bool is_word_char(char32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  for (const auto& [first, last] : kMoreWordChars)
    if (is_between(c, first, last)) return true;
  return class_of(c) == CharacterClass::Letter || is_in_category(c, "M") || is_in_category(c, "Nd") ||
         is_in_category(c, "Nl") || is_in_category(c, "Pc");
}

bool is_ideograph(char32_t c) {
  return is_between(c, 0x4E00, 0x9FFF) || is_between(c, 0x3400, 0x4DBF) || is_between(c, 0x20000, 0x2A6DF) ||
         is_between(c, 0x2A700, 0x2B73F) || is_between(c, 0x2B740, 0x2B81F) || is_between(c, 0x2B920, 0x2CEAF) ||
         is_between(c, 0xF900, 0xFAFF) || is_between(c, 0x2F800, 0x2FA1F);
}

LetterCase letter_case(char32_t c) {
  if (is_in_category(c, "Lu") || is_in_category(c, "Lt")) return LetterCase::Upper;
  if (is_in_category(c, "Ll")) return LetterCase::Lower;
  return is_in_category(c, "L") || is_in_category(c, "M") ? LetterCase::Either : LetterCase::None;
}

void append_lower_case(std::string& text, char32_t c) {
  for (const CasePairs& pairs : kNewCases)
    if (is_between(c, pairs.first, pairs.last))
      return append_utf8(text, static_cast<char32_t>(static_cast<int32_t>(c) + pairs.to_lower));
  append_utf8(text, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  if (c == 0x130) append_utf8(text, 0x307);  // the only code point whose lower case has two
}

std::string normal_form(std::string_view text, NormalForm form) {
  std::string out;
  out.reserve(text.size());
  // Text between two boundaries is normalized at once. A boundary is before a stable code point that a stable one follows.
  size_t done = 0, start = 0;
  bool pending = false;  // text[start ...] has code points that may change
  char32_t previous = 0;
  size_t previous_at = 0;
  const auto flush = [&](size_t end) {
    out.append(text.substr(done, start - done));
    append_normal_form(out, text.substr(start, end - start), form);
    done = end;
    pending = false;
  };
  for (size_t position = 0; position < text.size();) {
    const CodePoint point = code_point_at(text, position);
    const bool stable = is_stable(point.value, form);
    if (!stable && !pending) {
      pending = true;
      const bool may_join = position > 0 && previous != kNotUtf8 && version_of(previous) <= 9 && previous_at >= done;
      start = may_join ? previous_at : position;
    } else if (stable && pending) {
      flush(position);
    }
    previous = point.value;
    previous_at = position;
    position += static_cast<size_t>(point.bytes);
  }
  if (pending) flush(text.size());
  out.append(text.substr(done));
  return out;
}

size_t grapheme_end(std::string_view text, size_t position) {
  utf8proc_int32_t state = 0;
  CodePoint point = code_point_at(text, position);
  for (;;) {
    const size_t next = position + static_cast<size_t>(point.bytes);
    if (next >= text.size()) return text.size();
    const CodePoint after = code_point_at(text, next);
    if (point.value == kNotUtf8 || after.value == kNotUtf8) return next;
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(point.value), static_cast<utf8proc_int32_t>(after.value),
                                         &state))
      return next;
    position = next;
    point = after;
  }
}

}  // namespace trivet::data
