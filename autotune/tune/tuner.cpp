#include "autotune/tune/tuner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

#include "autotune/search_space.h"
#include "autotune/tune/gaussian_process.h"
#include "core/random.h"

namespace trivet::autotune {
namespace {

bool is_tried(std::span<const Observation> history, size_t point) {
  return std::ranges::any_of(history, [&](const Observation& o) { return o.point == point; });
}

// The best cost so far; infinite without one.
double best_cost(std::span<const Observation> history) {
  double best = std::numeric_limits<double>::infinity();
  for (const Observation& observation : history) best = std::min(best, observation.cost.value_or(best));
  return best;
}

class InOrder final : public Tuner {
 public:
  explicit InOrder(std::vector<size_t> order) : order_(std::move(order)) {}

  std::optional<size_t> next(std::span<const Observation> history) override {
    for (const size_t point : order_)
      if (!is_tried(history, point)) return point;
    return std::nullopt;
  }

 private:
  std::vector<size_t> order_;
};

std::vector<size_t> grid_order(size_t points) {
  std::vector<size_t> order(points);
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

// Fisher-Yates.
std::vector<size_t> random_order(size_t points, uint64_t seed) {
  std::vector<size_t> order = grid_order(points);
  for (size_t i = points; i > 1; --i) std::swap(order[i - 1], order[philox(random_key(seed, "tuner.random"), i, 0)[0] % i]);
  return order;
}

// The expected improvement below `best` of a normal distribution with this mean and deviation.
double expected_improvement(const GaussianProcess::Estimate& estimate, double best) {
  if (estimate.deviation <= 0) return std::max(best - estimate.mean, 0.0);
  const double z = (best - estimate.mean) / estimate.deviation;
  const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
  const double probability = std::erfc(-z / std::numbers::sqrt2) / 2;
  return (best - estimate.mean) * probability + estimate.deviation * density;
}

class ModelBased final : public Tuner {
 public:
  explicit ModelBased(std::vector<Point> points) : points_(std::move(points)) {}

  std::optional<size_t> next(std::span<const Observation> history) override {
    std::vector<size_t> open;
    for (size_t point = 0; point < points_.size(); ++point)
      if (!is_tried(history, point)) open.push_back(point);
    if (open.empty()) return std::nullopt;
    const double best = best_cost(history);
    if (std::isinf(best))
      return *std::ranges::min_element(open, {},
                                       [&](size_t p) { return std::pair(points_[p].predicted, points_[p].memory_bytes); });
    const GaussianProcess corrections = learned(history);
    return *std::ranges::min_element(open, {}, [&](size_t p) {
      GaussianProcess::Estimate estimate = corrections.at(points_[p].features);
      estimate.mean += points_[p].predicted;
      return std::pair(-expected_improvement(estimate, best), points_[p].memory_bytes);
    });
  }

 private:
  GaussianProcess learned(std::span<const Observation> history) const {
    std::vector<std::vector<double>> where;
    std::vector<double> differences;
    for (const Observation& observation : history) {
      if (!observation.cost) continue;
      where.push_back(points_[observation.point].features);
      differences.push_back(*observation.cost - points_[observation.point].predicted);
    }
    return {std::move(where), std::move(differences)};
  }

  std::vector<Point> points_;
};

}  // namespace

std::unique_ptr<Tuner> make_tuner(TunerType type, std::vector<Point> points, uint64_t seed) {
  switch (type) {
    case TunerType::GridSearch: return std::make_unique<InOrder>(grid_order(points.size()));
    case TunerType::Random: return std::make_unique<InOrder>(random_order(points.size(), seed));
    case TunerType::ModelBased: return std::make_unique<ModelBased>(std::move(points));
  }
  return nullptr;
}

bool stops_early(std::span<const Observation> history, int64_t limit) {
  const size_t last = limit;
  if (limit == 0 || history.size() <= last) return false;
  const double before = best_cost(history.first(history.size() - last));
  return !std::isinf(before) && best_cost(history.last(last)) >= before;
}

std::vector<double> features_of(const Config& config, int world_size) {
  const ParallelConfig& parallel = config.parallel;
  const double data = static_cast<double>(world_size / parallel.context / parallel.tensor / parallel.pipeline);
  const ResolvedBatch batch = resolve_batch(config.batch, static_cast<int64_t>(data), config.source);
  const auto log2 = [](int64_t value) { return std::log2(static_cast<double>(value)); };
  const auto is = [](bool condition) { return condition ? 1.0 : 0.0; };
  const bool shares = data > 1 || parallel.context > 1, pipelines = parallel.pipeline > 1;
  std::vector<double> features{std::log2(data),
                               log2(parallel.context),
                               log2(parallel.tensor),
                               log2(parallel.pipeline),
                               log2(batch.micro_batch_size) / 2,
                               log2(batch.gradient_accumulation_steps) / 2,
                               is(shares && config.zero.stage >= 1),
                               is(shares && config.zero.stage >= 2),
                               is(shares && config.zero.stage >= 3),
                               is(shares && config.zero.overlap_comm),
                               is(config.recompute == Recompute::Selective),
                               is(config.recompute == Recompute::Full),
                               is(parallel.tensor > 1 && parallel.sequence_parallel)};
  // 1F1B is the schedule with none of these; the number of chunks tells interleaved from it.
  for (const ScheduleKind kind : searched_schedules())
    if (kind != ScheduleKind::OneForwardOneBackward && !traits_of(kind).any_chunks)
      features.push_back(is(pipelines && config.pipeline.schedule == kind));
  features.push_back(pipelines ? std::log2(static_cast<double>(std::max<int64_t>(chunks_of(config.pipeline), 1))) : 0.0);
  return features;
}

}  // namespace trivet::autotune
