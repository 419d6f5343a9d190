#include "report/predictions_section.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base64.h"
#include "report/monitor/number_text.h"
#include "report/page_drawing.h"

namespace trivet::report {
namespace {

// An empty text would look like a mistake of the page.
std::string shown_word(const std::string& text) { return text.empty() ? "nothing" : escaped(text); }

// Describes a mistake in words, too, not only by the colour of the frame.
std::string image_item(const monitor::ShownPrediction& sample) {
  const std::string words = sample.right
                                ? shown_word(sample.target)
                                : fmt::format("<b>{}</b><br>is {}", shown_word(sample.predicted), shown_word(sample.target));
  return fmt::format("<li{}><img alt=\"Validation image {}\" src=\"data:image/png;base64,{}\"><span>{}</span></li>\n",
                     sample.right ? "" : " class=\"wrong\"", sample.sample, to_base64(sample.png), words);
}

std::string gallery(const monitor::ShownPredictions& predictions) {
  std::string text =
      "<p>Validation images, wrong ones first. Below an image is what the model predicts and, if this is wrong, what it "
      "is.</p>\n<ul class=\"gallery\">\n";
  for (const monitor::ShownPrediction& sample : predictions.samples) text += image_item(sample);
  return text + "</ul>\n";
}

std::string table_of_said(const monitor::ShownPredictions& predictions) {
  std::vector<std::vector<std::string>> rows{{"text before", "what follows", "the most probable tokens"}};
  for (const monitor::ShownPrediction& sample : predictions.samples)
    rows.push_back({sample.before, sample.target, sample.predicted});
  return "<p>Validation samples: the answers, or the ends of texts. Each token is predicted from the true ones before "
         "it.</p>\n<div "
         "class=\"said\">\n" +
         table(rows) + "</div>\n";
}

}  // namespace

std::string to_section(const monitor::ShownPredictions& predictions) {
  if (predictions.samples.empty()) return "";
  const bool images = std::ranges::none_of(predictions.samples, [](const auto& sample) { return sample.png.empty(); });
  return fmt::format("<h2>Predictions after step {}</h2>\n", monitor::with_commas(predictions.step)) +
         (images ? gallery(predictions) : table_of_said(predictions));
}

}  // namespace trivet::report
