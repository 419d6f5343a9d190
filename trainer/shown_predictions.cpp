#include "trainer/shown_predictions.h"

#include <algorithm>
#include <span>

#include "comm/participants.h"

namespace trivet::trainer {
namespace {

constexpr int64_t kMostSide = 128;    // pixels of an image on a page; larger ones are reduced
constexpr int64_t kMostBefore = 200;  // tokens that are shown before the predicted ones

// A validation sample as the model was given it.
struct Sample {
  std::vector<std::byte> input;
  std::vector<int32_t> targets;

  Sample(const data::SampleSource& source, int64_t number)
      : input(static_cast<size_t>(source.spec().input.elements() * size_of(source.spec().input_dtype))),
        targets(static_cast<size_t>(source.spec().targets.elements())) {
    source.fill(number, 0, input, targets);
  }
  std::span<const int32_t> tokens() const { return {reinterpret_cast<const int32_t*>(input.data()), input.size() / 4}; }
};

monitor::ShownPrediction shown_image(const Run& run, const Sample& sample, const Prediction& prediction,
                                     const data::Picture& image) {
  return {.sample = prediction.sample,
          .right = prediction.right,
          .png = data::to_png(data::reduced(image, kMostSide)),
          .target = run.data->in_words(sample.targets),
          .predicted = run.data->in_words(prediction.classes)};
}

// Targets are predicted from the tokens up to the one at their own place.
monitor::ShownPrediction shown_text(const Run& run, const Sample& sample, Prediction prediction) {
  const auto targets = std::span(sample.targets).subspan(static_cast<size_t>(prediction.first), prediction.classes.size());
  for (size_t i = 0; i < targets.size(); ++i)
    if (targets[i] < 0) prediction.classes[i] = -1;
  const auto before = sample.tokens().first(static_cast<size_t>(prediction.first) + 1);
  return {.sample = prediction.sample,
          .right = prediction.right,
          .before = run.data->in_words(before.last(std::min<size_t>(before.size(), kMostBefore))),
          .target = run.data->in_words(targets),
          .predicted = run.data->in_words(prediction.classes)};
}

}  // namespace

void report_predictions(Run& run, const std::vector<Prediction>& kept) {
  const auto texts = comm::over_group(run.world.group()).gather(to_text(kept));
  if (!run.is_first_rank()) return;
  std::vector<Prediction> all;
  for (const std::string& text : texts) {
    const auto of_rank = predictions_from_text(text);
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  const auto source = run.data->validation();
  monitor::ShownPredictions shown{.step = run.steps_done(), .samples = {}};
  for (const Prediction& prediction : shown_first(std::move(all))) {
    const Sample sample(*source, prediction.sample);
    if (const auto image = run.data->validation_picture(prediction.sample)) {
      shown.samples.push_back(shown_image(run, sample, prediction, *image));
    } else if (source->spec().input_dtype == DType::Int32) {
      shown.samples.push_back(shown_text(run, sample, prediction));
    }
  }
  if (!shown.samples.empty()) run.monitors.on_predictions(shown);
}

}  // namespace trivet::trainer
