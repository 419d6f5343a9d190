// The text of one layer in model.network: its name, a number if it needs one, and options in any order.
//
//   "conv 32 kernel 5 padding 2 no_bias"   "max_pool 2"   "relu"
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trivet::model {

struct LayerNumber {
  std::string_view name;  // "kernel"
  double least = 0, most = 0;
  bool integer = true;
  std::optional<double> standard;  // the default; none: depends on others or must be given
};

// A kind of layer and what its text may say.
struct LayerKind {
  std::string_view name;   // "conv"
  std::string_view usage;  // "conv CHANNELS [kernel 3] ...", for messages
  std::optional<LayerNumber> number;
  std::span<const LayerNumber> options;
  bool may_have_no_bias = false;
};

struct LayerText {
  const LayerKind* kind = nullptr;
  std::map<std::string, double, std::less<>> numbers;  // options that are given or have a default, and `number`
  bool bias = true;

  double operator[](std::string_view name) const { return numbers.find(name)->second; }
  int64_t integer(std::string_view name) const { return static_cast<int64_t>((*this)[name]); }
  int64_t integer_or(std::string_view name, int64_t otherwise) const {
    const auto found = numbers.find(name);
    return found == numbers.end() ? otherwise : static_cast<int64_t>(found->second);
  }
};

// Throws std::invalid_argument that says what is wrong and what is accepted.
LayerText read_layer_text(std::string_view text, std::span<const LayerKind> kinds);

}  // namespace trivet::model
