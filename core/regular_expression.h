// Regular expressions that users write to choose names: of linear layers (model.lora.targets) and of blocks
// (pipeline.partition). They mean what they mean in Python, as far as PCRE2 agrees with it.
//
// No expression keeps the program busy: a comparison that takes too many steps is an error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace trivet {

class RegularExpression {
 public:
  static constexpr size_t kMostBytes = 1000;
  enum class Case : uint8_t { Matters, Ignored };

  // Throws std::invalid_argument that says what is wrong with the expression, without its text.
  explicit RegularExpression(const std::string& text, Case letters = Case::Matters);

  // Throw std::invalid_argument if the comparison takes too many steps.
  bool is_found_in(std::string_view name) const;
  bool is_all_of(std::string_view name) const;
  bool is_end_of(std::string_view name) const;  // all of the name, or all that follows one of its dots

 private:
  bool matches(std::string_view name, uint32_t options) const;

  std::shared_ptr<const void> code_;  // pcre2_code
};

}  // namespace trivet
