#include "data/tokenizers/pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <array>

#include "core/printable.h"
#include "core/utf8.h"
#include "data/data_error.h"
#include "data/unicode_tables.h"

namespace trivet::data {
namespace {

constexpr size_t kLongestPattern = 4096;

[[noreturn]] void refuse(const std::string& source, std::string_view expression, const std::string& reason) {
  bad_file(source, fmt::format("the regular expression \"{}\" is not accepted: {}", printable(expression, 120), reason));
}

// The code points of a general category that are newer than the Unicode of some versions of PCRE2.
std::string newer(std::string_view category) {
  std::string ranges;
  for (const AddedRange& range : added_ranges())
    if (range.version > 13 && std::string_view(range.category).starts_with(category))
      ranges += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", static_cast<uint32_t>(range.first), static_cast<uint32_t>(range.last));
  return ranges;
}

// Returns the text that replaces a set within brackets. PCRE2's \s contains U+180E, and its \w is smaller than that of
// Oniguruma, which has some digits only outside of brackets. Empty: the escape is no set, or means the same in PCRE2.
std::string set_of(char escape, bool in_class) {
  switch (escape) {
    case 's': return "\\p{White_Space}";
    case 'd': return "\\p{Nd}" + newer("Nd");
    case 'w':
      return std::string("\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}") + (in_class ? "" : "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}") +
             newer("L") + newer("M") + newer("Nd");
    default: return "";
  }
}

// PCRE2's \b knows fewer letters.
std::string boundary(bool negated) {
  const std::string word = "[" + set_of('w', false) + "]", after = "(?<=" + word + ")", before = "(?=" + word + ")",
                    not_after = "(?<!" + word + ")", not_before = "(?!" + word + ")";
  return negated ? fmt::format("(?:{}{}|{}{})", after, before, not_after, not_before)
                 : fmt::format("(?:{}{}|{}{})", after, not_before, not_after, before);
}

bool compiles(const std::string& expression) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                         PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

// The name of a script stands for the characters that are of that script alone, in PCRE2 also for those that it shares.
std::string property(std::string_view name) {
  const std::string of_script = fmt::format("\\p{{sc:{}}}", name);
  if (name.size() > 2 && compiles(of_script)) return of_script;
  return fmt::format("\\p{{{}}}{}", name, name.size() <= 2 ? newer(name) : "");
}

// A negated set within brackets has no equivalent if it is written out.
void append_set(std::string& out, const std::string& set, bool negated, bool in_class, std::string_view expression,
                const std::string& source) {
  if (negated && in_class) {
    if (set != set_of('s', true)) refuse(source, expression, "a negated set, such as \\W, within brackets is not supported");
    out += "\\P{White_Space}";
  } else if (in_class) {
    out += set;
  } else {
    out += fmt::format("[{}{}]", negated ? "^" : "", set);
  }
}

// These mean something else in Oniguruma, or exist only in PCRE2.
constexpr std::string_view kNotSupported = "hHXRKGkgCQEyYZvV";

// Refuses what begins with "(?" or "[:" and means something else: (?m) lets a dot take line breaks, (?i) within a pattern ends
// at the next "|" in PCRE2 alone, and [:punct:] has other characters.
void check_option(std::string_view expression, size_t at, const std::string& source) {
  if (expression.substr(at, 2) == "[:")
    return refuse(source, expression, "classes such as [:punct:] have other characters; use \\p{P}");
  const size_t end = expression.find_first_not_of("imsxadluU-", at + 2);
  if (expression.substr(at, 2) != "(?" || end == at + 2 || end == std::string_view::npos) return;
  const std::string_view options = expression.substr(at + 2, end - at - 2);
  const bool is_of_group = expression[end] == ':', is_first = at == 0;
  if ((expression[end] == ':' || expression[end] == ')') && (options != "i" || !(is_of_group || is_first)))
    refuse(source, expression, fmt::format("(?{}{} is not supported; (?i:...) is", options, expression[end]));
}

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
      if (escape == 'p' || escape == 'P') {
        const size_t close = expression.find('}', i);
        if (i + 1 >= expression.size() || expression[i + 1] != '{' || close == std::string_view::npos)
          refuse(source, expression, "\\p without {...}");
        const std::string_view name = expression.substr(i + 2, close - i - 2);
        append_set(out, property(name), escape == 'P', classes > 0, expression, source);
        i = close;
        continue;
      }
      if (escape == 'b' || escape == 'B') {
        out += boundary(escape == 'B');
        continue;
      }
      const bool negated = escape == 'S' || escape == 'D' || escape == 'W';
      const std::string set = set_of(negated ? static_cast<char>(escape - 'A' + 'a') : escape, classes > 0);
      if (set.empty())
        out += {c, escape};
      else
        append_set(out, set, negated, classes > 0, expression, source);
      continue;
    }
    if (c == '[') {
      if (classes > 0) check_option(expression, i, source);
      if (classes > 0) refuse(source, expression, "brackets within brackets are not supported");
      ++classes;
    } else if (c == ']' && classes > 0) {
      --classes;
    } else if (c == '&' && classes > 0 && expression.substr(i, 2) == "&&") {
      refuse(source, expression, "&& is not supported");
    } else if (c == '}' && classes == 0 && expression.substr(i, 2) == "}+") {
      refuse(source, expression, "{n,m}+ is not supported");
    } else if (c == '{' && classes == 0 && expression.substr(i, 2) == "{,") {
      refuse(source, expression, "{,n} is not supported; use {0,n}");
    } else if (c == '(' && classes == 0 && expression.substr(i, 2) == "(?") {
      check_option(expression, i, source);
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
  size_t last_end = std::string_view::npos;
  for (size_t from = 0; from <= text.size();) {
    int found = pcre2_match(compiled_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data.get(), nullptr);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
      found = pcre2_match(compiled_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0)
      throw DataError(ExitCode::Usage, fmt::format("the tokenizer's regular expression \"{}\" cannot be matched at byte {}: {}",
                                                   printable(expression_, 120), offset + from, message_of(found)));
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    if (bounds[1] > bounds[0] || bounds[0] != last_end) visit(offset + bounds[0], offset + bounds[1]);
    last_end = bounds[1];
    if (bounds[1] > bounds[0]) {
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
