#include "autotune/tune/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <optional>

#include "comm/participants.h"
#include "core/clock.h"
#include "core/error.h"
#include "data/made_up_source.h"
#include "engine/config/curriculum.h"
#include "engine/engine.h"
#include "engine/optimizer/lr_schedule.h"
#include "model/dropped_tokens.h"

namespace trivet::autotune {
namespace {

// Thrown to end a trial on every rank: an engine that is destroyed while an exception propagates does not wait for the other
// ranks (engine.cpp).
struct GivenUp {
  TrialResult result;
};

// The digit of the status ("0" for Ok), followed by the text.
std::string told(TrialStatus status, const std::string& text) { return std::to_string(static_cast<int>(status)) + text; }

// Returns on every rank the worst status of any rank; if several are equally bad, that of the lowest rank.
TrialResult agreed(comm::World& world, TrialStatus status, const std::string& text) {
  TrialResult result;
  const auto all = comm::over_group(world.group()).gather(told(status, text));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto of_rank = static_cast<TrialStatus>(all[rank][0] - '0');
    if (of_rank <= result.status) continue;
    result.status = of_rank;
    result.message = fmt::format("rank {}: {}", rank, all[rank].substr(1));
  }
  return result;
}

// The time of each measured step on this rank.
std::vector<int64_t> measured_nanoseconds(Engine& engine, const std::vector<data::HostMicrobatch>& microbatches,
                                          const TrialOptions& options) {
  std::vector<Microbatch> views;
  for (const data::HostMicrobatch& one : microbatches) views.push_back(one.view);
  std::vector<int64_t> measured;
  for (int64_t step = 1; step <= options.steps; ++step) {
    const auto begin = system_clock().now();
    engine.train_batch(views);
    if (step >= options.first_measured) measured.push_back((system_clock().now() - begin).count());
  }
  return measured;
}

// The median, because a single disturbed step would distort a mean.
double median_of_slowest(comm::World& world, const std::vector<int64_t>& mine) {
  const auto count = static_cast<int64_t>(mine.size());
  std::vector<int64_t> slowest = mine;
  const auto stream = make_inline_stream();
  world.group().all_reduce({slowest.data(), DType::Int64, {count}}, comm::ReduceOp::Max, *stream);
  stream->synchronize();
  std::ranges::sort(slowest);
  const size_t middle = slowest.size() / 2;
  const double upper = static_cast<double>(slowest[middle]);
  const double lower = slowest.size() % 2 == 1 ? upper : static_cast<double>(slowest[middle - 1]);
  return (lower + upper) / 2 * 1e-9;
}

// Throws GivenUp on all ranks if one of them cannot build its engine.
void build(std::optional<Engine>& engine, const Config& config, const model::Description& description, comm::World& world,
           const TrialOptions& options) {
  bool met = false;
  const auto meet = [&](TrialStatus status, const std::string& text) {
    met = true;
    TrialResult result = agreed(world, status, text);
    if (result.status != TrialStatus::Ok) throw GivenUp{std::move(result)};
  };
  const EngineOptions engine_options{
      .threads = options.threads, .local_rank = options.local_rank, .files = options.files, .memory_taken = [&] {
        meet(TrialStatus::Ok, "");
      }};
  try {
    model::Model model = model::build(model::with_most_tokens(description));
    Plan plan = make_plan(config, model, world.size());
    use_constant_rate(plan.config);
    use_longest_samples(plan.config.curriculum);
    engine.emplace(std::move(plan), std::move(model), world, engine_options);
  } catch (const CommError&) {
    throw;
  } catch (const OutOfMemoryError& error) {
    if (met) throw;
    meet(TrialStatus::OutOfMemory, error.what());
  } catch (const std::bad_alloc&) {
    if (met) throw;
    meet(TrialStatus::OutOfMemory, "out of host memory");
  } catch (const std::exception& error) {
    if (met) throw;
    meet(TrialStatus::Failed, error.what());
  }
}

}  // namespace

TrialResult run_trial(const Config& config, const model::Description& description, comm::World& world,
                      const TrialOptions& options) {
  try {
    std::optional<Engine> engine;
    build(engine, config, description, world, options);
    const SampleSpec sample = longest_sample(engine->plan().config.curriculum, engine->model().sample);
    const auto microbatches = data::made_up_step(sample, engine->plan().batch_layout(world.rank()));
    const std::vector<int64_t> mine = measured_nanoseconds(*engine, microbatches, options);
    return {.seconds = median_of_slowest(world, mine)};
  } catch (const GivenUp& given_up) {
    return given_up.result;
  }
}

}  // namespace trivet::autotune
