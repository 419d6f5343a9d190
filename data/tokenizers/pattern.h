// Regular expressions of tokenizer files, matched by PCRE2.
//
// The files are written for Oniguruma (tokenizers) and fancy-regex (tiktoken). Syntax that means the same there and in
// PCRE2 is accepted; \s and \w are replaced by the properties that they stand for there; the rest is refused.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace trivet::data {

class Pattern {
 public:
  // Throws DataError naming `source` if the expression is not accepted.
  Pattern(std::string expression, const std::string& source);
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  ~Pattern();

  // Calls `visit` with the bounds of each match, from left to right; an empty one is none where another match ends, as in
  // Oniguruma's find_iter. A match has no bytes that are not UTF-8.
  void for_each_match(std::string_view text, const std::function<void(size_t begin, size_t end)>& visit) const;

 private:
  struct Compiled;
  void match_utf8(std::string_view text, size_t offset, const std::function<void(size_t begin, size_t end)>& visit) const;

  std::string expression_;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace trivet::data
