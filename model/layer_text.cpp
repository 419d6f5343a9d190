#include "model/layer_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <stdexcept>
#include <vector>

#include "core/printable.h"

namespace trivet::model {
namespace {

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find_first_not_of(' ', at);
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(text.find(' ', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    at = end;
  }
  return words;
}

const LayerKind& kind_of(std::string_view name, std::span<const LayerKind> kinds) {
  const auto found = std::ranges::find(kinds, name, &LayerKind::name);
  if (found != kinds.end()) return *found;
  std::string accepted;
  for (const LayerKind& kind : kinds) accepted += (accepted.empty() ? "" : ", ") + std::string(kind.name);
  throw std::invalid_argument(fmt::format("there is no layer \"{}\"; use one of {}", printable(name), accepted));
}

double read_number(const LayerNumber& number, std::string_view word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool read = error == std::errc() && end == word.data() + word.size();
  if (read && value >= number.least && value <= number.most && (!number.integer || value == std::floor(value))) return value;
  throw std::invalid_argument(fmt::format("{} {} is not accepted; use {} from {} to {}", number.name, printable(word),
                                          number.integer ? "a whole number" : "a number", number.least, number.most));
}

}  // namespace

LayerText read_layer_text(std::string_view text, std::span<const LayerKind> kinds) {
  const std::vector<std::string_view> words = words_of(text);
  if (words.empty()) throw std::invalid_argument("is empty; write the name of a layer");
  LayerText layer{.kind = &kind_of(words[0], kinds), .numbers = {}};
  const LayerKind& kind = *layer.kind;
  const auto refuse = [&](const std::string& what) {
    throw std::invalid_argument(fmt::format("{}; write {}", what, kind.usage));
  };
  for (const LayerNumber& option : kind.options)
    if (option.standard) layer.numbers.emplace(option.name, *option.standard);
  std::set<std::string_view> given;
  size_t at = 1;
  if (kind.number) {
    if (words.size() < 2) refuse(fmt::format("the number after \"{}\" is missing", kind.name));
    layer.numbers.emplace(kind.number->name, read_number(*kind.number, words[at++]));
  }
  while (at < words.size()) {
    const std::string_view word = words[at++];
    if (!given.insert(word).second) refuse(fmt::format("\"{}\" is given twice", printable(word)));
    if (word == "no_bias" && kind.may_have_no_bias) {
      layer.bias = false;
      continue;
    }
    const auto option = std::ranges::find(kind.options, word, &LayerNumber::name);
    if (option == kind.options.end()) refuse(fmt::format("\"{}\" is not known here", printable(word)));
    if (at == words.size()) refuse(fmt::format("the number after \"{}\" is missing", word));
    layer.numbers.insert_or_assign(std::string(word), read_number(*option, words[at++]));
  }
  return layer;
}

}  // namespace trivet::model
