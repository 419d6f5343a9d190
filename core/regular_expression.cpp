#include "core/regular_expression.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <stdexcept>

namespace trivet {
namespace {

// The most steps and memory that one comparison may take.
constexpr uint32_t kMostSteps = 100'000, kMostKibibytes = 1024;

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

RegularExpression::RegularExpression(const std::string& text, Case letters) {
  if (text.empty() || text.size() > kMostBytes)
    throw std::invalid_argument(fmt::format("it has {} bytes; 1 to {} are accepted", text.size(), kMostBytes));
  int error = 0;
  PCRE2_SIZE offset = 0;
  const uint32_t options = PCRE2_NEVER_BACKSLASH_C | (letters == Case::Ignored ? PCRE2_CASELESS : 0);
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), options, &error, &offset, nullptr);
  if (!code) throw std::invalid_argument(fmt::format("{}, at its byte {}", message_of(error), offset));
  code_ = {code, [](const void* old) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(old))); }};
}

bool RegularExpression::matches(std::string_view name, uint32_t options) const {
  const auto* const code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> limits(pcre2_match_context_create(nullptr),
                                                                                    pcre2_match_context_free);
  pcre2_set_match_limit(limits.get(), kMostSteps);
  pcre2_set_heap_limit(limits.get(), kMostKibibytes);
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> found(
      pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free);
  const int result =
      pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, options, found.get(), limits.get());
  if (result >= 0) return true;
  if (result == PCRE2_ERROR_NOMATCH) return false;
  throw std::invalid_argument("comparing it with a name takes too many steps; write it without repetitions in repetitions");
}

bool RegularExpression::is_found_in(std::string_view name) const { return matches(name, 0); }

bool RegularExpression::is_all_of(std::string_view name) const { return matches(name, PCRE2_ANCHORED | PCRE2_ENDANCHORED); }

bool RegularExpression::is_end_of(std::string_view name) const {
  for (size_t from = 0;;) {
    if (is_all_of(name.substr(from))) return true;
    const size_t dot = name.find('.', from);
    if (dot == std::string_view::npos) return false;
    from = dot + 1;
  }
}

}  // namespace trivet
