#include "engine/data/tokenizers/pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <array>

#include "core/printable.h"
#include "core/utf8.h"
#include "engine/data/data_error.h"

namespace trivet::data {
namespace {

constexpr size_t kLongestPattern = 4096;

[[noreturn]] void refuse(const std::string& source, std::string_view expression, const std::string& reason) {
  bad_file(source, fmt::format("the regular expression \"{}\" is not accepted: {}", printable(expression, 120), reason));
}

// Oniguruma's \w is larger than that of PCRE2, whose \s contains U+180E.
std::string property_of(char escape, bool in_class) {
  constexpr std::string_view kWord = "\\p{L}\\p{M}\\p{Nd}\\p{Pc}";
  switch (escape) {
    case 's': return "\\p{White_Space}";
    case 'S': return "\\P{White_Space}";
    case 'w': return in_class ? std::string(kWord) : fmt::format("[{}]", kWord);
    case 'W': return in_class ? "" : fmt::format("[^{}]", kWord);
    default: return "";
  }
}

// These mean something else in Oniguruma, or exist only in PCRE2.
constexpr std::string_view kNotSupported = "hHXRKGkgCQEyYZ";

std::string hexadecimal_digits(std::string_view expression, size_t at_escape, const std::string& source) {
  const std::string_view digits = expression.substr(at_escape + 1, 4);
  if (digits.size() != 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
    refuse(source, expression, "\\u without four hexadecimal digits");
  return std::string(digits);
}

// The expression as PCRE2 reads it.
std::string for_pcre2(std::string_view expression, const std::string& source) {
  std::string out;
  int classes = 0;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\' && i + 1 < expression.size()) {
      const char escape = expression[++i];
      if (kNotSupported.find(escape) != std::string_view::npos || (escape == 'b' && classes > 0))
        refuse(source, expression, fmt::format("\\{} is not supported", escape));
      if (escape == 'u') {
        out += "\\x{" + hexadecimal_digits(expression, i, source) + "}";
        i += 4;
        continue;
      }
      const std::string property = property_of(escape, classes > 0);
      if (escape == 'W' && classes > 0) refuse(source, expression, "\\W within brackets is not supported");
      out += property.empty() ? std::string{c, escape} : property;
      continue;
    }
    if (c == '[') {
      if (classes > 0 && expression.substr(i, 2) != "[:") refuse(source, expression, "brackets within brackets are not supported");
      ++classes;
    } else if (c == ']' && classes > 0) {
      --classes;
    } else if (c == '&' && classes > 0 && expression.substr(i, 2) == "&&") {
      refuse(source, expression, "&& is not supported");
    } else if (c == '}' && classes == 0 && expression.substr(i, 2) == "}+") {
      // {n,m}+ is possessive in PCRE2 but not in Oniguruma; \p{...}+ is the same in both.
      const size_t open = expression.rfind('{', i);
      const bool property = open != std::string_view::npos && open >= 2 && expression[open - 2] == '\\';
      if (!property) refuse(source, expression, "{n,m}+ is not supported");
    } else if (c == '(' && expression.substr(i, 2) == "(*") {
      refuse(source, expression, "(* is not supported");
    }
    out += c;
  }
  return out;
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct Pattern::Compiled {
  pcre2_code* code = nullptr;
  ~Compiled() { pcre2_code_free(code); }
};

Pattern::Pattern(std::string expression, const std::string& source)
    : expression_(std::move(expression)), compiled_(std::make_unique<Compiled>()) {
  if (expression_.size() > kLongestPattern)
    refuse(source, expression_, fmt::format("it has {} bytes; at most {} are accepted", expression_.size(), kLongestPattern));
  if (!is_utf8(expression_)) refuse(source, expression_, "it is not UTF-8");
  const std::string translated = for_pcre2(expression_, source);
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (!compiled_->code) refuse(source, expression_, message_of(error));
  pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE);  // without it, matching is only slower
}

Pattern::~Pattern() = default;

void Pattern::match_utf8(std::string_view text, size_t offset,
                         const std::function<void(size_t begin, size_t end)>& visit) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create_from_pattern(compiled_->code, nullptr), pcre2_match_data_free);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t from = 0; from <= text.size();) {
    int found = pcre2_match(compiled_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data.get(), nullptr);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
      found = pcre2_match(compiled_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0)
      throw DataError(ExitCode::Usage, fmt::format("the tokenizer's regular expression \"{}\" cannot be matched at byte {}: {}",
                                                   printable(expression_, 120), offset + from, message_of(found)));
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    if (bounds[1] > bounds[0]) {
      visit(offset + bounds[0], offset + bounds[1]);
      from = bounds[1];
    } else if (bounds[1] < text.size()) {
      from = bounds[1] + static_cast<size_t>(decode_utf8(text, bounds[1]).bytes);
    } else {
      return;
    }
  }
}

void Pattern::for_each_match(std::string_view text, const std::function<void(size_t begin, size_t end)>& visit) const {
  size_t start = 0;
  for (size_t position = 0; position < text.size();) {
    const int bytes = static_cast<unsigned char>(text[position]) < 0x80 ? 1 : decode_utf8(text, position).bytes;
    if (bytes == 0) {
      match_utf8(text.substr(start, position - start), start, visit);
      start = position + 1;
    }
    position += bytes == 0 ? 1 : static_cast<size_t>(bytes);
  }
  match_utf8(text.substr(start), start, visit);
}

}  // namespace trivet::data
