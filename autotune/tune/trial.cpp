#include "autotune/tune/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <optional>

#include "core/clock.h"
#include "core/error.h"
#include "core/random.h"
#include "engine/checkpoint/participants.h"
#include "engine/engine.h"

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
  const auto all = checkpoint::over_group(world.group()).gather(told(status, text));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto of_rank = static_cast<TrialStatus>(all[rank][0] - '0');
    if (of_rank <= result.status) continue;
    result.status = of_rank;
    result.message = fmt::format("rank {}: {}", rank, all[rank].substr(1));
  }
  return result;
}

struct MadeUpMicrobatch {
  std::vector<int32_t> tokens, targets;
  Microbatch view;
};

std::vector<MadeUpMicrobatch> made_up_microbatches(const Plan& plan, const model::Description& model, int data_rank) {
  const ResolvedBatch& batch = plan.batch;
  const Shape shape{batch.micro_batch_size, model.sequence_length};
  const auto tokens = static_cast<uint64_t>(shape.elements()), vocabulary = static_cast<uint64_t>(model.vocabulary_size);
  std::vector<MadeUpMicrobatch> all(static_cast<size_t>(batch.gradient_accumulation_steps));
  for (size_t m = 0; m < all.size(); ++m) {
    MadeUpMicrobatch& one = all[m];
    const int64_t first_sample =
        (data_rank * batch.gradient_accumulation_steps + static_cast<int64_t>(m)) * batch.micro_batch_size;
    for (uint64_t i = 0; i < tokens; ++i) {
      const PhiloxBlock random = philox(random_key(0, "trial"), i, static_cast<uint64_t>(first_sample));
      one.tokens.push_back(static_cast<int32_t>(random[0] % vocabulary));
      one.targets.push_back(static_cast<int32_t>(random[1] % vocabulary));
    }
    one.view = {.input = {one.tokens.data(), DType::Int32, shape},
                .targets = {one.targets.data(), DType::Int32, shape},
                .first_sample = first_sample};
  }
  return all;
}

// The time of each measured step on this rank.
std::vector<int64_t> measured_nanoseconds(Engine& engine, const std::vector<MadeUpMicrobatch>& microbatches,
                                          const TrialOptions& options) {
  std::vector<Microbatch> views;
  for (const MadeUpMicrobatch& one : microbatches) views.push_back(one.view);
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
    model::Model model = model::build(description);
    Plan plan = make_plan(config, model, world.size());
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
    const auto data_rank = static_cast<int>(engine->plan().batch_layout(world.rank()).data_rank);
    const auto microbatches = made_up_microbatches(engine->plan(), description, data_rank);
    const std::vector<int64_t> mine = measured_nanoseconds(*engine, microbatches, options);
    return {.seconds = median_of_slowest(world, mine)};
  } catch (const GivenUp& given_up) {
    return given_up.result;
  }
}

}  // namespace trivet::autotune
