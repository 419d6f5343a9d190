#include "engine/not_finite.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "core/finite.h"

namespace trivet {

bool NotFinite::operator<(const NotFinite& other) const {
  return std::tie(pass, microbatch, place, rank) < std::tie(other.pass, other.microbatch, other.place, other.rank);
}

std::string to_sentence(const NotFinite& found) {
  return fmt::format("{} in microbatch {} on rank {} (element {} is {})", found.what, found.microbatch, found.rank,
                     found.element, found.value);
}

// The value is written as text, because JSON has no NaN.
std::string to_text(const NotFinite& found) {
  return nlohmann::json::array({static_cast<int>(found.pass), found.microbatch, found.place, found.rank, found.what,
                                found.element, fmt::format("{}", found.value)})
      .dump();
}

NotFinite parse_not_finite(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return {.pass = static_cast<NotFinite::Pass>(json.at(0).get<int>()),
          .microbatch = json.at(1),
          .place = json.at(2),
          .rank = json.at(3),
          .what = json.at(4),
          .element = json.at(5),
          .value = std::stod(json.at(6).get<std::string>())};
}

void NotFiniteSearch::look_at_output(int block, int64_t microbatch, ConstTensorView output) {
  look_at(output,
          {.pass = NotFinite::Pass::Forward, .microbatch = microbatch, .place = block, .what = "the output of " + name(block)});
}

void NotFiniteSearch::look_at_loss(int block, int64_t microbatch, ConstTensorView loss) {
  look_at(loss, {.pass = NotFinite::Pass::Forward, .microbatch = microbatch, .place = block, .what = "the loss"});
}

void NotFiniteSearch::look_at_gradients(int block, int64_t microbatch, const std::vector<Gradient>& gradients) {
  const auto parameters = model_.layers[block]->parameters();
  for (size_t i = 0; i < gradients.size(); ++i)
    look_at(gradients[i].view, {.pass = NotFinite::Pass::Backward,
                                .microbatch = microbatch,
                                .place = backward_place(block),
                                .what = fmt::format("the gradient of {}.{}", name(block), parameters[i].name)});
}

void NotFiniteSearch::look_at_input_gradient(int block, int64_t microbatch, ConstTensorView input_gradient) {
  look_at(input_gradient, {.pass = NotFinite::Pass::Backward,
                           .microbatch = microbatch,
                           .place = backward_place(block),
                           .what = "the gradient of the input of " + name(block)});
}

void NotFiniteSearch::look_at(ConstTensorView tensor, NotFinite where) {
  where.rank = rank_;
  if (tensor.absent() || !is_float(tensor.dtype) || (found_ && !(where < *found_))) return;
  on_host_.resize(tensor.bytes());
  const TensorView host{on_host_.data(), tensor.dtype, tensor.shape};
  kernels_.to_host(tensor, host);
  where.element = first_not_finite(host);
  if (where.element < 0) return;
  where.value = value_at(host, where.element);
  found_ = std::move(where);
}

}  // namespace trivet
