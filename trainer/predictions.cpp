#include "trainer/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <sstream>
#include <stdexcept>
#include <tuple>

#include "core/dtype.h"
#include "kernels/kernels.h"

namespace trivet {
namespace {

constexpr int32_t kBlank = 0;

// Float16 and bfloat16 have no order of their own.
double as_double(double value) { return value; }
template <typename T>
double as_double(T value) {
  return static_cast<float>(value);
}

// The columns of the largest values, the first one of several.
std::vector<int32_t> largest_of_rows(ConstTensorView rows) {
  std::vector<int32_t> largest;
  const int64_t columns = rows.shape.cols();
  dispatch_float(rows.dtype, [&]<typename T>() {
    for (int64_t row = 0; row < rows.shape.rows(); ++row) {
      const T* values = rows.as<T>() + row * columns;
      const auto less = [](T a, T b) { return as_double(a) < as_double(b); };
      largest.push_back(static_cast<int32_t>(std::max_element(values, values + columns, less) - values));
    }
  });
  return largest;
}

// Equal neighbours are merged, and blanks are removed afterwards.
std::vector<int32_t> spelled_by(std::span<const int32_t> path) {
  std::vector<int32_t> text;
  int32_t before = kBlank;
  for (const int32_t best : path) {
    if (best != before && best != kBlank) text.push_back(best);
    before = best;
  }
  return text;
}

// Checks whether the targets are these classes, apart from targets that do not count.
bool are_right(std::span<const int32_t> classes, std::span<const int32_t> targets) {
  return std::equal(classes.begin(), classes.end(), targets.begin(), targets.end(),
                    [](int32_t chosen, int32_t target) { return target < 0 || chosen == target; });
}

// Checks a text, whose characters are the positive targets, in the same way.
bool is_spelled_right(const std::vector<int32_t>& text, std::span<const int32_t> targets) {
  std::vector<int32_t> characters(targets.begin(), targets.end());
  std::erase_if(characters, [](int32_t target) { return target <= kBlank; });
  return text == characters;
}

// Copies a tensor from the kernels' memory.
class OnHost {
 public:
  OnHost(kernels::Kernels& kernels, ConstTensorView from) : bytes_(static_cast<size_t>(from.bytes())) {
    view_ = {bytes_.data(), from.dtype, from.shape};
    kernels.to_host(from, {bytes_.data(), from.dtype, from.shape});
  }
  ConstTensorView view() const { return view_; }

 private:
  std::vector<std::byte> bytes_;
  ConstTensorView view_;
};

}  // namespace

int64_t Predictions::wants(const Microbatch& microbatch) const {
  const int64_t wanted = judges() ? samples_ : std::min(samples_, kOthers);
  return std::clamp<int64_t>(wanted - microbatch.first_sample, 0, microbatch.targets.shape[0]);
}

// Leaves out the targets after the last that counts: they are padding.
TargetRange Predictions::wants_targets(kernels::Kernels& kernels, const Microbatch& microbatch, int64_t sample,
                                       int64_t targets) const {
  const OnHost all(kernels, microbatch.targets);
  const auto of_sample = std::span(all.view().as<int32_t>() + sample * targets, static_cast<size_t>(targets));
  const auto counts = [](int32_t target) { return target >= 0; };
  const auto first = std::ranges::find_if(of_sample, counts);
  const auto end = std::ranges::find_if(of_sample.rbegin(), of_sample.rend(), counts).base();
  if (first >= end) return {};
  const int64_t prompt = first - of_sample.begin(), count = end - first;
  if (prompt > 0) return {prompt, std::min(count, kMostOfAnswers)};
  const int64_t last = std::min(count, kMostRows);
  return {count - last, last};
}

void Predictions::read(kernels::Kernels& kernels, const Microbatch& microbatch, int64_t first, ConstTensorView logits,
                       int64_t first_target) {
  const int64_t places = sample_.targets.elements(), rows = logits.shape[1];
  const int64_t count = std::min(logits.shape[0], wants(microbatch) - first);
  const bool complete = judges() && wrong_ >= kJudged;  // later samples are not among those to show
  if (count <= 0 || complete) return;
  const OnHost all_targets(kernels, microbatch.targets);
  const std::span targets(all_targets.view().as<int32_t>(), static_cast<size_t>(microbatch.targets.elements()));
  const std::vector<int32_t> largest = largest_of_rows(OnHost(kernels, logits).view());
  for (int64_t i = 0; i < count; ++i) {
    const auto of_sample = targets.subspan(static_cast<size_t>((first + i) * places), static_cast<size_t>(places));
    const std::span chosen(largest.data() + i * rows, static_cast<size_t>(rows));
    Prediction prediction{.sample = microbatch.first_sample + first + i, .first = first_target};
    if (sample_.spelled) {
      prediction.classes = spelled_by(chosen);
      prediction.right = is_spelled_right(prediction.classes, of_sample);
    } else {
      prediction.classes.assign(chosen.begin(), chosen.end());
      prediction.right = are_right(chosen, of_sample.subspan(static_cast<size_t>(first_target), chosen.size()));
    }
    keep(std::move(prediction));
  }
}

void Predictions::keep(Prediction prediction) {
  if (judges() && (prediction.right ? right_ : wrong_)++ >= kJudged) return;
  if (!kept_.empty() && kept_.back().sample == prediction.sample) {  // further targets of the same text
    Prediction& whole = kept_.back();
    whole.classes.insert(whole.classes.end(), prediction.classes.begin(), prediction.classes.end());
    whole.right = whole.right && prediction.right;
    return;
  }
  kept_.push_back(std::move(prediction));
}

std::vector<Prediction> shown_first(std::vector<Prediction> kept, int64_t most) {
  const auto by_number = [](const Prediction& prediction) { return std::tuple(prediction.right, prediction.sample); };
  std::ranges::sort(kept, {}, by_number);
  const auto are_same = [&](const Prediction& a, const Prediction& b) { return by_number(a) == by_number(b); };
  kept.erase(std::unique(kept.begin(), kept.end(), are_same), kept.end());  // tensor ranks have the same ones
  if (static_cast<int64_t>(kept.size()) > most) kept.resize(static_cast<size_t>(most));
  return kept;
}

// A line for each: sample, 1 if it is right, the first target, and its classes.
std::string to_text(const std::vector<Prediction>& predictions) {
  std::string text;
  for (const Prediction& prediction : predictions) {
    text += fmt::format("{} {} {}", prediction.sample, prediction.right ? 1 : 0, prediction.first);
    for (const int32_t chosen : prediction.classes) text += fmt::format(" {}", chosen);
    text += '\n';
  }
  return text;
}

std::vector<Prediction> predictions_from_text(const std::string& text) {
  std::vector<Prediction> predictions;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    Prediction prediction;
    if (!(numbers >> prediction.sample >> prediction.right >> prediction.first))
      throw std::invalid_argument("\"" + line + "\" is no prediction");
    for (int32_t chosen; numbers >> chosen;) prediction.classes.push_back(chosen);
    predictions.push_back(std::move(prediction));
  }
  return predictions;
}

}  // namespace trivet
