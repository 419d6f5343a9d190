// Replays the tuners over a space of which every config was measured, and reports how soon each comes close to the best:
//   tune_bench TABLE.json OUT.svg > OUT.md        (bench/tune writes the table)
#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "bench/tuning_table.h"

namespace {

using trivet::bench::TuningTable;

constexpr int kSeeds = 200;  // runs of the random search; the mean is shown

struct Curve {
  const char* name;
  const char* color;
  std::vector<double> share;          // share of the best throughput, after each trial
  double to_98 = 0, to_the_best = 0;  // trials; for random searches the mean
};

// Returns the number of trials until `share` is reached.
size_t trials_to(const std::vector<double>& curve, double share) {
  return static_cast<size_t>(std::ranges::find_if(curve, [&](double s) { return s >= share; }) - curve.begin()) + 1;
}

Curve curve_of(const char* name, const char* color, const std::vector<double>& share) {
  return {name, color, share, static_cast<double>(trials_to(share, 0.98)), static_cast<double>(trials_to(share, 0.9999))};
}

std::vector<Curve> curves_of(const TuningTable& table) {
  const size_t trials = table.seconds.size();
  Curve random{"random", "#06c", std::vector<double>(trials, 0)};
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const auto one = replay(table, trivet::TunerType::Random, static_cast<uint64_t>(seed), trials);
    for (size_t i = 0; i < trials; ++i) random.share[i] += one[i] / kSeeds;
    random.to_98 += static_cast<double>(trials_to(one, 0.98)) / kSeeds;
    random.to_the_best += static_cast<double>(trials_to(one, 0.9999)) / kSeeds;
  }
  return {curve_of("model_based", "#0a6", replay(table, trivet::TunerType::ModelBased, 1, trials)),
          curve_of("gridsearch", "#c50", replay(table, trivet::TunerType::GridSearch, 1, trials)), std::move(random)};
}

std::string markdown(const TuningTable& table, const std::vector<Curve>& curves, const std::string& picture) {
  const size_t trials = table.seconds.size(), tenth = trials / 10;
  const auto best = static_cast<size_t>(std::ranges::min_element(table.seconds) - table.seconds.begin());
  std::string text = fmt::format(
      "All {} configs of bench/configs/tune.json were measured ({}). The best is {}, {:.1f} ms a step; the slowest takes "
      "{:.1f} ms. The "
      "tuners are replayed over the table; random is the mean of {} seeds.\n\n![share of the best throughput by "
      "trials]({})\n\n",
      trials, table.hardware, table.names[best], table.seconds[best] * 1e3, *std::ranges::max_element(table.seconds) * 1e3,
      kSeeds, picture);
  text += fmt::format(
      "| tuner | best so far after 5 trials | after 10 | after {} (10 %) | after {} (25 %) | trials to 98 % | to 100 % |\n",
      tenth, trials / 4);
  text += "|---|---|---|---|---|---|---|\n";
  for (const Curve& curve : curves) {
    text += fmt::format("| {} ", curve.name);
    for (const size_t after : {size_t{5}, size_t{10}, tenth, trials / 4})
      text += fmt::format("| {:.1f} % ", 100 * curve.share[after - 1]);
    text += fmt::format("| {:.0f} | {:.0f} |\n", curve.to_98, curve.to_the_best);
  }
  return text;
}

std::string svg(const std::vector<Curve>& curves) {
  constexpr double kLeft = 60, kTop = 20, kWidth = 640, kHeight = 280, kLeast = 0.5;
  const size_t trials = curves.front().share.size();
  const auto x = [&](size_t after) { return kLeft + kWidth * static_cast<double>(after) / static_cast<double>(trials); };
  const auto y = [&](double share) { return kTop + kHeight * (1 - (std::max(share, kLeast) - kLeast) / (1 - kLeast)); };
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\" "
      "fill=\"#777\">\n",
      kLeft + kWidth + 20, kTop + kHeight + 50);
  for (const double share : {0.5, 0.6, 0.7, 0.8, 0.9, 0.98, 1.0})
    text += fmt::format(
        "<path stroke=\"#999\" opacity=\".4\" d=\"M{} {:.1f}H{}\"/><text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.0f} "
        "%</text>\n",
        kLeft, y(share), kLeft + kWidth, kLeft - 8, y(share) + 4, share * 100);
  text += fmt::format(
      "<path stroke=\"#999\" stroke-dasharray=\"4\" d=\"M{0:.1f} {1}V{2}\"/><text x=\"{0:.1f}\" y=\"{3}\">10 % of {4} "
      "trials</text>\n",
      x(trials / 10), kTop, kTop + kHeight, kTop + kHeight + 16, trials);
  double legend = kLeft + kWidth - 110;
  double line = kTop + kHeight - 60;
  for (const Curve& curve : curves) {
    std::string path = fmt::format("M{:.1f} {:.1f}", x(1), y(curve.share[0]));
    for (size_t i = 1; i < trials; ++i) path += fmt::format("H{:.1f}V{:.1f}", x(i + 1), y(curve.share[i]));
    text += fmt::format(
        "<path fill=\"none\" stroke=\"{0}\" stroke-width=\"2\" d=\"{1}\"/><text x=\"{2}\" y=\"{3}\" fill=\"{0}\">{4}</text>\n",
        curve.color, path, legend, line, curve.name);
    line += 18;
  }
  return text + "</svg>\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: tune_bench TABLE.json OUT.svg > OUT.md\n");
    return 2;
  }
  const TuningTable table = trivet::bench::read_tuning_table(argv[1]);
  const std::vector<Curve> curves = curves_of(table);
  const std::string picture = argv[2];
  trivet::write_text(trivet::real_file_system(), picture, svg(curves));
  std::fputs(markdown(table, curves, picture.substr(picture.rfind('/') + 1)).c_str(), stdout);
  return 0;
}
