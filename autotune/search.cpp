#include "autotune/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

#include "autotune/units.h"
#include "core/error.h"
#include "report/monitor/number_text.h"

namespace trivet::autotune {
namespace {

constexpr size_t kMaxRefuted = 4;           // the most plans that a search makes
constexpr int64_t kMaxDevices = 1'000'000;  // the most that --world-size accepts

// The choices that make up a layout, by name, with their values as text.
using Choice = std::pair<const char*, std::function<std::string(const Layout&)>>;
const std::vector<Choice>& choices() {
  static const std::vector<Choice> all{
      {"tensor", [](const Layout& l) { return std::to_string(l.tensor); }},
      {"context", [](const Layout& l) { return std::to_string(l.context); }},
      {"expert", [](const Layout& l) { return std::to_string(l.expert); }},
      {"pipeline", [](const Layout& l) { return std::to_string(l.pipeline); }},
      {"stage", [](const Layout& l) { return std::to_string(l.zero_stage); }},
      {"schedule", [](const Layout& l) { return std::string(name_of(l.schedule)); }},
      {"microbatch", [](const Layout& l) { return std::to_string(l.microbatch); }},
      {"chunks", [](const Layout& l) { return std::to_string(l.chunks); }},
      {"recompute", [](const Layout& l) { return std::string(name_of(l.recompute)); }},
      {"offload", [](const Layout& l) { return std::string(l.offload_optimizer ? "optimizer" : "none"); }},
      {"prefetch", [](const Layout& l) { return std::string(l.prefetch ? "a block" : "none"); }},
  };
  return all;
}

// The parts of the step that grew, the most first, until they make up nine tenths of the difference; and those that shrank, if
// what grew is more than the difference.
std::string reason(const StepSeconds& best, const StepSeconds& other) {
  struct NamedSeconds {
    const char* name;
    double StepSeconds::*seconds;
  };
  std::array<NamedSeconds, 9> parts{{{"exposed tensor axis", &StepSeconds::tensor},
                                     {"context axis", &StepSeconds::context},
                                     {"expert axis", &StepSeconds::expert},
                                     {"pipeline bubble", &StepSeconds::bubble},
                                     {"exposed data axis", &StepSeconds::data},
                                     {"recomputation", &StepSeconds::recompute},
                                     {"optimizer", &StepSeconds::optimizer},
                                     {"offload", &StepSeconds::offload},
                                     {"kernels", &StepSeconds::compute}}};
  const auto growth = [&](const NamedSeconds& part) { return other.*part.seconds - best.*part.seconds; };
  const double difference = other.total() - best.total();
  double named = 0;
  std::vector<std::string> reasons;
  const auto name = [&](const NamedSeconds& part) {
    named += growth(part);
    reasons.push_back(fmt::format("{} {:.0f} % of the step, {:.3g} s {}", part.name, 100 * other.*part.seconds / other.total(),
                                  std::fabs(growth(part)), growth(part) > 0 ? "more" : "less"));
  };
  std::ranges::stable_sort(parts, std::ranges::greater(), growth);
  for (const NamedSeconds& part : parts)
    if (named < 0.9 * difference) name(part);
  for (auto part = parts.rbegin(); part != parts.rend(); ++part)
    if (named > 1.1 * difference && growth(*part) < 0) name(*part);
  return fmt::to_string(fmt::join(reasons, "; "));
}

ConfigKeys keys_of(const StepModel& steps, const SearchSpace& space, const Layout& layout) {
  return config_keys(layout, {.largest_block = steps.largest_block(layout),
                              .max_live = static_cast<int64_t>(space.types.max_live),
                              .sets_device = space.sets_device && (layout.expert == 1 || space.expert_problem_on_gpus.empty()),
                              .other_names = space.other_names,
                              .has_experts = steps.has_experts()});
}

double seconds(const Candidate& candidate) { return candidate.step.seconds.total(); }

// Checks whether two times are equal as far as a prediction can tell.
bool as_fast(double seconds, double fastest) {
  constexpr double kTie = 5e-4;
  return seconds / fastest - 1 < kTie;
}

// Puts the fastest first. Candidates that are as fast as the fastest of them are ordered by the memory of a device that they
// need, the least first; if two need the same, the one that was tried first stays first.
void order_by_preference(std::vector<Candidate>& candidates) {
  const auto bytes = [](const Candidate& candidate) { return candidate.step.bytes.total(); };
  std::ranges::stable_sort(candidates, {}, seconds);
  for (auto begin = candidates.begin(); begin != candidates.end();) {
    const double fastest = seconds(*begin);
    const auto end = std::find_if(begin, candidates.end(), [&](const Candidate& c) { return !as_fast(seconds(c), fastest); });
    std::ranges::stable_sort(begin, end, {}, bytes);
    begin = end;
  }
}

class Search {
 public:
  Search(const StepModel& steps, const Cluster& cluster, const SearchSpace& space, size_t ranked)
      : steps_(steps), cluster_(cluster), space_(space), ranked_(ranked) {}

  void add(const Layout& layout, const StepBytes& bytes) {
    ++result_.tried;
    Candidate candidate{.layout = layout, .step = {.bytes = bytes}};
    if (result_.tried == 1 || over(candidate) < over(result_.smallest)) result_.smallest = candidate;
    for (size_t c = 0; c < choices().size(); ++c) {
      auto& smallest = by_value_[c][in_order(choices()[c].second(layout))].smallest;
      if (!smallest || over(candidate) < over(*smallest)) smallest = candidate;
    }
    if (over(candidate) > 0) return;
    candidate.step = steps_.predict(layout);
    fitting_.push_back(std::move(candidate));
  }

  SearchResult finish(const PlannedBytes& planned) {
    order_by_preference(fitting_);
    result_.fitting = std::ssize(fitting_);
    note_preferred();
    if (planned) refute(planned);
    if (refuted() == fitting_.size() && refuted() > 0) result_.smallest = result_.refuted.front().candidate;
    rank();
    if (!result_.ranking.empty()) compare();
    if (result_.smallest.config.empty()) complete(result_.smallest);
    for (Candidate& candidate : result_.ranking)
      if (candidate.config.empty()) complete(candidate);
    for (Candidate& candidate : result_.fastest) complete(candidate);
    for (Alternative& alternative : result_.alternatives) complete(alternative.best);
    return std::move(result_);
  }

 private:
  // The best layouts with one value of a choice.
  struct OfValue {
    std::optional<Candidate> smallest;  // the smallest of all that were tried
    std::optional<size_t> preferred;    // the first in fitting_
  };
  double over(const Candidate& candidate) const { return bytes_over(candidate.step.bytes, cluster_); }
  size_t refuted() const { return result_.refuted.size(); }  // the first of fitting_
  // While layouts are tried, the time of those that do not fit is not predicted, and no config keys are made, because only few
  // are shown.
  void complete(Candidate& candidate) const {
    candidate.step = steps_.predict(candidate.layout);
    candidate.config = keys_of(steps_, space_, candidate.layout);
  }

  void note_preferred() {
    std::map<std::pair<int64_t, int64_t>, Candidate> fastest;  // [tensor, pipeline]
    for (size_t i = 0; i < fitting_.size(); ++i) {
      const Layout& layout = fitting_[i].layout;
      fastest.try_emplace({layout.tensor, layout.pipeline}, fitting_[i]);
      for (size_t c = 0; c < choices().size(); ++c) {
        auto& preferred = by_value_[c][in_order(choices()[c].second(layout))].preferred;
        if (!preferred) preferred = i;
      }
    }
    for (const auto& [sizes, candidate] : fastest) result_.fastest.push_back(candidate);
  }

  // The StepModel's memory is close to the plan's, so a layout that fits according to it may be a little over.
  void refute(const PlannedBytes& planned) {
    while (refuted() < std::min(fitting_.size(), kMaxRefuted)) {
      Candidate& first = fitting_[refuted()];
      complete(first);
      std::string why;
      try {
        predicted_ = first.step.bytes;
        first.step.bytes = planned(first.config);
        result_.planned = over(first) <= 0;
        if (!result_.planned) why = shortage(first.step.bytes, cluster_) + " by its plan";
      } catch (const ConfigError& error) {
        why = error.what();
      }
      if (result_.planned) return;
      result_.refuted.push_back({first, std::move(why)});
    }
  }

  static std::string slower(const Candidate& best, const Candidate& other) {
    if (as_fast(seconds(other), seconds(best))) {
      const double bytes = other.step.bytes.total() - best.step.bytes.total();
      return fmt::format("as fast, with {:.2f} GiB {}", std::abs(bytes) / kGib, bytes < 0 ? "less" : "more");
    }
    return fmt::format("{:.1f} % slower: {}", 100 * (seconds(other) / seconds(best) - 1),
                       reason(best.step.seconds, other.step.seconds));
  }

  void rank() {
    const auto but_for_chunks = [](Layout layout) {
      layout.chunks = 0;
      return layout;
    };
    for (size_t i = refuted(); i < fitting_.size(); ++i) {
      const Layout& layout = fitting_[i].layout;
      const auto same = std::ranges::find_if(
          result_.ranking, [&](const Candidate& ranked) { return but_for_chunks(ranked.layout) == but_for_chunks(layout); });
      if (same != result_.ranking.end())
        same->other_chunks.push_back(layout.chunks);
      else if (result_.ranking.size() < ranked_)
        result_.ranking.push_back(fitting_[i]);
    }
  }

  void compare() {
    Candidate best = result_.ranking.front();
    if (result_.planned) best.step.bytes = predicted_;  // as the memory of those that it is compared with
    for (size_t c = 0; c < choices().size(); ++c)
      for (const auto& [value, of_value] : by_value_[c]) {
        if (value.second == choices()[c].second(best.layout)) continue;
        Alternative alternative{.choice = fmt::format("{} {}", choices()[c].first, value.second)};
        alternative.fits = of_value.preferred.has_value();
        alternative.best = alternative.fits ? fitting_[*of_value.preferred] : *of_value.smallest;
        const bool is_refuted = alternative.fits && *of_value.preferred < refuted();
        if (is_refuted)
          alternative.why =
              std::string(seconds(alternative.best) < seconds(best) ? "faster" : "as fast") + ", but refuted by its plan";
        else
          alternative.why =
              alternative.fits ? slower(best, alternative.best) : shortage(alternative.best.step.bytes, cluster_) + " at best";
        result_.alternatives.push_back(std::move(alternative));
      }
  }

  const StepModel& steps_;
  const Cluster& cluster_;
  const SearchSpace& space_;
  size_t ranked_;
  SearchResult result_;
  std::vector<Candidate> fitting_;  // as tried, then by preference
  StepBytes predicted_;             // for the layout that was planned last
  // Orders numbers by size: 2 before 16.
  using Value = std::pair<size_t, std::string>;
  static Value in_order(const std::string& value) { return {std::isdigit(value.front()) ? value.size() : 0, value}; }

  std::map<size_t, std::map<Value, OfValue>> by_value_;  // [choice][value]
};

// Calls use(layout, its bytes) for each layout of the space.
template <typename Use>
void try_all(const StepModel& steps, const model::Model& model, const Cluster& cluster, const SearchSpace& space,
             const SearchProgress& progress, Use&& use) {
  int64_t tried = 0;
  for_each_layout(model, cluster, space, [&](const Layout& layout) {
    for_each_variant(steps, cluster, space, layout, [&](const Layout& variant, const StepBytes& bytes) {
      if (progress) progress(space.devices, tried++);
      use(variant, bytes);
    });
  });
}

// The layout that a search would rank first, if any fits.
std::optional<Candidate> preferred_layout(const StepModel& steps, const model::Model& model, const Cluster& cluster,
                                          const SearchSpace& space, const SearchProgress& progress) {
  std::vector<Candidate> fitting;
  try_all(steps, model, cluster, space, progress, [&](const Layout& layout, const StepBytes& bytes) {
    if (fits(bytes, cluster)) fitting.push_back({.layout = layout, .step = steps.predict(layout)});
  });
  if (fitting.empty()) return std::nullopt;
  order_by_preference(fitting);
  return fitting.front();
}

// Doubles the devices until some layout fits, with the same batch or, if none fits with that, with as many samples per
// device.
std::optional<Candidate> nearest_that_fits(const StepModel& steps, const model::Model& model, const Cluster& cluster,
                                           SearchSpace space, const SearchProgress& progress) {
  const SearchSpace asked = space;
  const int64_t most = cluster.most_devices() > 0 ? std::min(cluster.most_devices(), kMaxDevices) : kMaxDevices;
  for (space.devices = 2 * asked.devices; space.devices <= most; space.devices *= 2)
    for (const int64_t growth : {int64_t{1}, space.devices / asked.devices}) {
      space.train_batch_size = growth * asked.train_batch_size;
      if (auto preferred = preferred_layout(steps, model, cluster, space, progress)) {
        preferred->config = keys_of(steps, space, preferred->layout);
        return preferred;
      }
    }
  return std::nullopt;
}

void predict_with_half_network(const model::Model& model, Cluster cluster, const SearchSpace& space, SearchResult& result) {
  cluster.outside.beta *= 2;
  const StepModel steps(model, cluster, space.types);
  for (const Candidate& candidate : result.ranking) {
    const double seconds = steps.predict(candidate.layout).seconds.total();
    const bool is_first = &candidate == &result.ranking.front();
    if (is_first) result.with_half_network = seconds;
    if (!is_first && seconds >= result.best_with_half_network) continue;
    result.best_with_half_network = seconds;
    result.best_layout_with_half_network = candidate.layout;
  }
}

// Whether a space has layouts with context ranks, and why, in words.
struct ContextChoice {
  bool tried = false;
  std::string why;
};
ContextChoice context_choice(const model::Model& model, const Cluster& cluster, const SearchSpace& space) {
  const std::string tokens = monitor::with_commas(model.sample.is_sequence() ? model.sample.input[0] : 1);
  switch (space.context) {
    case ContextSearch::Never: return {false, "ranks are not tried with reproducible \"layout\""};
    case ContextSearch::Always: return {true, "ranks are tried, because parallel.context is given"};
    case ContextSearch::WhereItHelps: break;
  }
  if (is_long(model)) return {true, fmt::format("ranks are tried, because sequences have {} tokens", tokens)};
  if (!has_layouts(model, cluster, space)) return {true, "ranks are tried, because no layout divides the devices without them"};
  return {false, fmt::format("ranks are not tried, because some layout fits without them and sequences have {} tokens, less "
                             "than {}; --set parallel.context=2 tries them",
                             tokens, monitor::with_commas(kLongSequence))};
}

// Says which sizes of parallel.expert are tried, and what is refused; nothing if there is no choice.
std::string expert_choice(const model::Model& model, const SearchSpace& space) {
  if (!model.description || !model.description->experts.enabled() || space.devices == 1) return "";
  if (!space.expert_problem.empty())
    return "ranks that share experts are not tried, as they do not go together with " + space.expert_problem;
  std::vector<int64_t> sizes = expert_sizes(model, space, space.devices);
  sizes.erase(sizes.begin());
  if (sizes.empty())
    return fmt::format("ranks that share experts are not tried: no size divides {} experts and {} devices",
                       model.description->experts.count, space.devices);
  return fmt::format(
      "{} ranks that share experts are tried, as far as they divide the data and context ranks; not with zero-bubble "
      "schedules, which the engine refuses{}",
      fmt::join(sizes, ", "), space.expert_problem_on_gpus.empty() ? "" : ", as it does " + space.expert_problem_on_gpus);
}

}  // namespace

std::string shortage(const StepBytes& bytes, const Cluster& cluster) {
  const double device = bytes.total() - as_double(cluster.device.usable_bytes());
  const double host = bytes.host - as_double(cluster.host.memory_bytes);
  if (device <= 0) return fmt::format("{:.2f} GiB over in host memory", host / kGib);
  return fmt::format("{:.2f} GiB over{}", device / kGib,
                     bytes.host > 0 && host > 0 ? fmt::format(", and {:.2f} in host memory", host / kGib) : "");
}

SearchResult search(const model::Model& model, const Cluster& cluster, const SearchSpace& space, size_t ranked,
                    const PlannedBytes& planned, const SearchProgress& progress) {
  check_devices(cluster, space.devices);
  const bool can_share = space.devices > 1 && can_share_sequences(model);
  ContextChoice choice = can_share ? context_choice(model, cluster, space) : ContextChoice{};
  SearchSpace tried = space;
  tried.context = choice.tried ? ContextSearch::Always : ContextSearch::Never;
  check_divides(model, cluster, tried);
  const auto begin = std::chrono::steady_clock::now();
  const StepModel steps(model, cluster, space.types);
  const auto search_layouts = [&] {
    Search search(steps, cluster, tried, ranked);
    try_all(steps, model, cluster, tried, progress,
            [&](const Layout& layout, const StepBytes& bytes) { search.add(layout, bytes); });
    return search.finish(planned);
  };
  SearchResult result = search_layouts();
  if (result.ranking.empty() && can_share && space.context == ContextSearch::WhereItHelps && !choice.tried) {
    choice.why = "ranks are tried, because no layout fits without them";
    tried.context = ContextSearch::Always;
    result = search_layouts();
  }
  if (result.ranking.empty())
    result.nearest = nearest_that_fits(steps, model, cluster, tried, progress);
  else
    predict_with_half_network(model, cluster, tried, result);
  result.context = choice.why;
  result.expert = expert_choice(model, space);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace trivet::autotune
