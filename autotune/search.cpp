#include "autotune/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <functional>
#include <map>
#include <optional>

#include "core/error.h"

namespace trivet::autotune {
namespace {

constexpr double kGib = 1 << 30;

std::vector<int64_t> divisors(int64_t number, int64_t most) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d <= std::min(number, most); ++d)
    if (number % d == 0) all.push_back(d);
  return all;
}

struct PipelineKind {
  ScheduleKind schedule;
  int64_t chunks;
};

// Of so many blocks on so many pipeline ranks.
std::vector<PipelineKind> pipelines(int64_t pipeline, int64_t blocks) {
  if (pipeline == 1) return {{ScheduleKind::OneForwardOneBackward, 1}};
  std::vector<PipelineKind> kinds{
      {ScheduleKind::OneForwardOneBackward, 1}, {ScheduleKind::ZeroBubbleH1, 1}, {ScheduleKind::ZeroBubble2p, 1}};
  if (2 * pipeline <= blocks) kinds.push_back({ScheduleKind::ZeroBubbleV, 2});
  for (int64_t chunks = 2; chunks * pipeline <= blocks && chunks <= 16; ++chunks)
    kinds.push_back({ScheduleKind::Interleaved, chunks});
  return kinds;
}

bool shares(const model::Model& model, const SearchSpace& space, int64_t tensor) {
  try {
    model::check_tensor_size(model, static_cast<int>(tensor));
    if (space.fixed_sums) model::check_fixed_sums(model, static_cast<int>(tensor));
  } catch (const ConfigError&) {
    return false;
  }
  return true;
}

// Those that fill nodes: another would lie across two of them.
std::vector<int64_t> tensor_sizes(const model::Model& model, const Cluster& cluster, const SearchSpace& space) {
  std::vector<int64_t> sizes;
  for (const int64_t size :
       divisors(cluster.devices_per_node, space.most_tensor > 0 ? space.most_tensor : cluster.devices_per_node))
    if (shares(model, space, size)) sizes.push_back(size);
  return sizes;
}

// Calls use(layout) for each that divides.
template <typename Use>
void for_each_layout(const model::Model& model, const Cluster& cluster, const SearchSpace& space, Use&& use) {
  const auto blocks = static_cast<int64_t>(model.layers.size());
  for (const int64_t tensor : tensor_sizes(model, cluster, space)) {
    if (space.devices % tensor != 0) continue;
    for (const int64_t pipeline : divisors(space.devices / tensor, blocks)) {
      const int64_t data = space.devices / tensor / pipeline;
      if (space.train_batch_size % data != 0) continue;
      for (const int64_t microbatch : divisors(space.train_batch_size / data, space.most_microbatch))
        for (const PipelineKind& kind : pipelines(pipeline, blocks))
          for (const Recompute recompute : {Recompute::None, Recompute::Selective, Recompute::Full})
            for (const int stage : space.zero_stages) {
              if (data == 1 && stage > 0) continue;
              use(Layout{.data = data,
                         .tensor = tensor,
                         .pipeline = pipeline,
                         .chunks = kind.chunks,
                         .schedule = kind.schedule,
                         .zero_stage = stage,
                         .microbatch = microbatch,
                         .microbatches = space.train_batch_size / data / microbatch,
                         .recompute = recompute,
                         .sequence_parallel = space.sequence_parallel && tensor > 1 && model.sequence_length % tensor == 0});
            }
    }
  }
}

std::string name_of_recompute(Recompute recompute) { return std::string(name_of(recompute)); }

// What a layout is a choice of, by name; values as text.
using Choice = std::pair<const char*, std::function<std::string(const Layout&)>>;
const std::vector<Choice>& choices() {
  static const std::vector<Choice> all{
      {"tensor", [](const Layout& l) { return std::to_string(l.tensor); }},
      {"pipeline", [](const Layout& l) { return std::to_string(l.pipeline); }},
      {"stage", [](const Layout& l) { return std::to_string(l.zero_stage); }},
      {"schedule", [](const Layout& l) { return std::string(name_of(l.schedule)); }},
      {"microbatch", [](const Layout& l) { return std::to_string(l.microbatch); }},
      {"recompute", [](const Layout& l) { return name_of_recompute(l.recompute); }},
  };
  return all;
}

// The part of the step that grew most.
std::string reason(const StepSeconds& best, const StepSeconds& other) {
  struct Part {
    const char* name;
    double StepSeconds::*seconds;
  };
  static constexpr Part parts[] = {{"exposed tensor axis", &StepSeconds::tensor}, {"pipeline bubble", &StepSeconds::bubble},
                                   {"exposed data axis", &StepSeconds::data},     {"recomputation", &StepSeconds::recompute},
                                   {"optimizer", &StepSeconds::optimizer},        {"kernels", &StepSeconds::compute}};
  const auto growth = [&](const Part& part) { return other.*part.seconds - best.*part.seconds; };
  const Part& worst = *std::ranges::max_element(parts, {}, growth);
  return fmt::format("{} {:.0f} % of the step, {:.3g} s more", worst.name, 100 * other.*worst.seconds / other.total(),
                     growth(worst));
}

double memory_limit(const Cluster& cluster) { return static_cast<double>(cluster.device.memory_bytes); }

class Search {
 public:
  Search(const Cluster& cluster, size_t ranked) : cluster_(cluster), ranked_(ranked) {}

  void add(const Layout& layout, const StepModel& steps) {
    ++result_.tried;
    Candidate candidate{layout, {.seconds = {}, .bytes = steps.bytes(layout)}};
    if (result_.tried == 1 || candidate.step.bytes.total() < result_.smallest.step.bytes.total()) result_.smallest = candidate;
    const bool fits = candidate.step.bytes.total() <= memory_limit(cluster_);
    if (fits) candidate.step = steps.predict(layout);
    const StepPrediction& step = candidate.step;
    for (size_t c = 0; c < choices().size(); ++c) note(by_value_[c][in_order(choices()[c].second(layout))], candidate, fits);
    if (!fits) return;
    ++result_.fitting;
    auto& ranking = result_.ranking;
    const auto place = std::ranges::upper_bound(ranking, step.seconds.total(), {},
                                                [](const Candidate& other) { return other.step.seconds.total(); });
    if (place == ranking.end() && ranking.size() >= ranked_) return;
    ranking.insert(place, candidate);
    if (ranking.size() > ranked_) ranking.pop_back();
  }

  SearchResult finish() {
    if (!result_.ranking.empty()) compare();
    return std::move(result_);
  }

 private:
  struct Best {
    std::optional<Candidate> fastest, smallest;  // that fit; of all
  };
  static void note(Best& best, const Candidate& candidate, bool fits) {
    if (!best.smallest || candidate.step.bytes.total() < best.smallest->step.bytes.total()) best.smallest = candidate;
    if (fits && (!best.fastest || candidate.step.seconds.total() < best.fastest->step.seconds.total()))
      best.fastest = candidate;
  }

  void compare() {
    const Candidate& best = result_.ranking.front();
    for (size_t c = 0; c < choices().size(); ++c)
      for (const auto& [value, of_value] : by_value_[c]) {
        if (value.second == choices()[c].second(best.layout)) continue;
        Alternative alternative{.choice = fmt::format("{} {}", choices()[c].first, value.second)};
        alternative.fits = of_value.fastest.has_value();
        alternative.best = alternative.fits ? *of_value.fastest : *of_value.smallest;
        const StepPrediction& step = alternative.best.step;
        alternative.why = alternative.fits
                              ? fmt::format("{:.1f} % slower: {}", 100 * (step.seconds.total() / best.step.seconds.total() - 1),
                                            reason(best.step.seconds, step.seconds))
                              : fmt::format("{:.1f} GiB over at best", (step.bytes.total() - memory_limit(cluster_)) / kGib);
        result_.alternatives.push_back(std::move(alternative));
      }
  }

  const Cluster& cluster_;
  size_t ranked_;
  SearchResult result_;
  // Numbers by their size: 2 before 16.
  using Value = std::pair<size_t, std::string>;
  static Value in_order(const std::string& value) { return {std::isdigit(value.front()) ? value.size() : 0, value}; }

  std::map<size_t, std::map<Value, Best>> by_value_;  // [choice][value]
};

// Whether some layout divides so many devices.
bool divides(const std::vector<int64_t>& tensors, int64_t blocks, const SearchSpace& space, int64_t devices) {
  for (const int64_t tensor : tensors)
    for (int64_t pipeline = 1; devices % tensor == 0 && pipeline <= std::min(blocks, devices / tensor); ++pipeline)
      if (devices / tensor % pipeline == 0 && space.train_batch_size % (devices / tensor / pipeline) == 0) return true;
  return false;
}

// With the nearest numbers of devices that would do.
[[noreturn]] void refuse(const model::Model& model, const Cluster& cluster, const SearchSpace& space) {
  const std::vector<int64_t> tensors = tensor_sizes(model, cluster, space);
  const auto blocks = static_cast<int64_t>(model.layers.size());
  int64_t below = space.devices - 1, above = space.devices + 1;
  while (below > 1 && !divides(tensors, blocks, space, below)) --below;
  const int64_t most = blocks * tensors.back() * space.train_batch_size;  // beyond it there is none
  while (above <= most && !divides(tensors, blocks, space, above)) ++above;
  throw ConfigError(fmt::format(
      "search: no layout divides {} devices among {} blocks and a batch of {}: the data axis must divide train_batch_size, "
      "the pipeline cannot have more ranks than blocks; {}{} devices would do, or another train_batch_size",
      space.devices, blocks, space.train_batch_size, below, above <= most ? fmt::format(" or {}", above) : ""));
}

}  // namespace

SearchSpace search_space(const Config& config, int64_t devices) {
  if (config.batch.train_batch_size == 0)
    throw ConfigError(config.source +
                      ": train_batch_size: --search needs it: a layout must not change what is trained; give it");
  const bool fixed_sums = config.reproducible == Reproducible::Layout;
  return {.devices = devices,
          .train_batch_size = config.batch.train_batch_size,
          .most_tensor = config.optimizer.type == OptimizerType::Muon ? 1 : 0,
          .sequence_parallel = !fixed_sums,
          .fixed_sums = fixed_sums,
          .types = state_types(config)};
}

SearchResult search(const model::Model& model, const Cluster& cluster, const SearchSpace& space, size_t ranked) {
  if (cluster.most_devices() > 0 && space.devices > cluster.most_devices())
    throw ConfigError(fmt::format("search: {} devices are more than cluster \"{}\" has ({} nodes of {}); use at most {}",
                                  space.devices, cluster.name, cluster.nodes, cluster.devices_per_node,
                                  cluster.most_devices()));
  const auto begin = std::chrono::steady_clock::now();
  const StepModel steps(model, cluster, space.types);
  Search search(cluster, ranked);
  bool any = false;
  for_each_layout(model, cluster, space, [&](const Layout& layout) {
    any = true;
    search.add(layout, steps);
  });
  if (!any) refuse(model, cluster, space);
  SearchResult result = search.finish();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

std::string to_string(const Layout& layout) {
  std::string text = fmt::format("pipeline {} x data {} x tensor {}", layout.pipeline, layout.data, layout.tensor);
  if (layout.pipeline > 1)
    text +=
        fmt::format(", {}{}", name_of(layout.schedule), layout.chunks > 1 ? fmt::format(" with {} chunks", layout.chunks) : "");
  text += fmt::format(", ZeRO-{}, microbatch {} x {}", layout.zero_stage, layout.microbatch, layout.microbatches);
  if (layout.recompute != Recompute::None) text += ", recompute " + name_of_recompute(layout.recompute);
  if (layout.sequence_parallel) text += ", sequence parallel";
  return text;
}

}  // namespace trivet::autotune
