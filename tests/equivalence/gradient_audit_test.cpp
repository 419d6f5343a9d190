// Audits of gradients: a healthy run is never accused and keeps its bits, and a flipped bit is found and located.
#include "engine/gradient_audit.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <cstdlib>
#include <map>
#include <set>

#include "core/error.h"
#include "core/random.h"
#include "tests/equivalence/planted_faults.h"

namespace trivet::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

struct AuditedGrid {
  int pipeline = 1, tensor = 1, data = 1;
  int stage = 0;
  int64_t micro_batch = 1;
  int ranks() const { return pipeline * tensor * data; }
};

std::string to_string(const AuditedGrid& layout) {
  return fmt::format("pipeline {}, tensor {}, data {}, stage {}, micro batch {}", layout.pipeline, layout.tensor, layout.data,
                     layout.stage, layout.micro_batch);
}

Config audited(const AuditedGrid& layout, model::Type type = model::Type::Gpt) {
  Config config = tiny_config(type);
  config.reproducible = Reproducible::Layout;
  config.audit = {.weights_every = 0, .every_steps = 1};
  config.parallel.pipeline = layout.pipeline;
  config.parallel.tensor = layout.tensor;
  config.zero.stage = layout.stage;
  config.batch.micro_batch_size = layout.micro_batch;
  return config;
}

// The message of the audit that ends this run; empty: nothing was found.
std::string audit_message(const TinyRun& run) {
  try {
    test::run(run);
  } catch (const CommError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::RanksDisagree) << error.what();
    return error.what();
  }
  return "";
}

// ---- healthy runs

// All layouts have the same bits in this mode, so one run without audits is what all are compared with.
TEST(GradientAudit, NeverAccusesAHealthyRunAndChangesNoBit) {
  for (const model::Type type : {model::Type::Gpt, model::Type::Llama})
    for (const int64_t micro_batch : {1, 4}) {
      Config plain = audited({.micro_batch = micro_batch}, type);
      plain.audit.every_steps = 0;
      const Trace expected = run({.ranks = 1, .steps = 3, .config = plain});
      for (const int stage : {0, 1, 2, 3})
        for (const auto& [pipeline, tensor, data] :
             {std::array{1, 1, 1}, {1, 1, 3}, {1, 2, 1}, {2, 1, 1}, {2, 1, 3}, {1, 2, 3}, {2, 2, 1}}) {
          const AuditedGrid layout{pipeline, tensor, data, stage, micro_batch};
          EXPECT_EQ(difference(expected, run({.ranks = layout.ranks(), .steps = 3, .config = audited(layout, type)})), "")
              << name_of(type) << ", " << to_string(layout);
        }
    }
}

TEST(GradientAudit, NeverAccusesSchedulesRecomputationShardsWithReplicasAndOtherTypes) {
  const AuditedGrid pipeline{2, 1, 2, 1, 1}, data{1, 1, 4, 3, 1};
  const auto expect_equal = [](Config config, int ranks, const std::string& what) {
    config.audit.every_steps = 0;
    const Trace expected = run({.ranks = ranks, .steps = 3, .config = config});
    config.audit.every_steps = 2;
    EXPECT_EQ(difference(expected, run({.ranks = ranks, .steps = 3, .config = config})), "") << what;
  };
  for (const ScheduleKind schedule : {ScheduleKind::Interleaved, ScheduleKind::ZeroBubbleH1, ScheduleKind::ZeroBubbleV}) {
    Config config = audited(pipeline);
    config.model.layers = 4;
    config.pipeline.schedule = schedule;
    config.recompute = Recompute::Full;
    expect_equal(config, 4, std::string(name_of(schedule)));
  }
  for (const int stage : {1, 2, 3}) {
    Config config = audited(data);
    config.zero.stage = stage;
    config.zero.mics_shard_size = 2;
    expect_equal(config, 4, fmt::format("replicas, stage {}", stage));
    config.zero.mics_shard_size = -1;
    config.zero.zero_hpz_partition_size = stage == 3 ? 2 : 1;
    config.zero.overlap_comm = true;
    expect_equal(config, 4, fmt::format("overlap, stage {}", stage));
    config.bf16.enabled = true;
    expect_equal(config, 4, fmt::format("bfloat16, stage {}", stage));
    config.bf16.enabled = false;
    config.fp16.enabled = true;
    config.fp16.initial_scale_power = 30;  // overflows, so that steps are skipped
    expect_equal(config, 4, fmt::format("float16, stage {}", stage));
  }
}

TEST(GradientAudit, ChoosesEveryMicrobatchAndEveryOtherDataRank) {
  std::set<int> microbatches, distances;
  for (int64_t step = 0; step < 200; ++step) {
    const AuditChoice choice = choose_audit(7, step, 3, 4);
    microbatches.insert(choice.microbatch);
    distances.insert(choice.distance);
    EXPECT_NE(other_distance(choice.distance, 4), choice.distance);
    EXPECT_THAT(other_distance(choice.distance, 4), AllOf(testing::Ge(1), testing::Le(3)));
    EXPECT_EQ(choose_audit(7, step, 3, 1).distance, 0);
  }
  EXPECT_THAT(microbatches, testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(distances, testing::ElementsAre(1, 2, 3));
}

TEST(GradientAudit, NeedsASourceOfMicrobatches) {
  const auto take_away = [](Engine& engine, int, int64_t) { engine.set_microbatch_source({}); };
  try {
    run({.before_step = take_away, .config = audited({})});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("audit.every_steps: 1"), HasSubstr("set_microbatch_source")));
  }
}

TEST(GradientAudit, HappensAtTheConfiguredInterval) {
  TinyRun run{.ranks = 3, .steps = 5, .config = audited({.data = 3, .micro_batch = 4})};
  run.config.audit.every_steps = 2;
  Planted planted;
  // Twice as large: the highest bit of the exponent's lower part of one gradient.
  const Placement placement{.fault = Fault::Gradient, .rank = 1, .moment = 5, .place = 3, .bit = 23};
  for (const int64_t step : {0, 1, 2, 3}) {
    Placement at = placement;
    at.step = step;
    planted = {};
    const std::string message = audit_message(with_fault(run, at, planted));
    EXPECT_TRUE(planted.done);
    if (step % 2 == 0)
      EXPECT_EQ(message, "") << step;
    else
      EXPECT_THAT(message, HasSubstr(fmt::format("step {}: ", step + 1)));
  }
}

// Context ranks sum their gradients before they are compared, so the audit cannot tell them apart: it names all of them.
TEST(GradientAudit, NamesAllContextRanksThatMadeAGradient) {
  TinyRun run{.ranks = 6, .steps = 2, .config = audited({.data = 3, .micro_batch = 4})};
  run.config.parallel.context = 2;
  run.config.parallel.context_grain = 2;
  EXPECT_EQ(audit_message(run), "");
  for (const int rank : {2, 3}) {  // the second data rank
    Planted planted;
    const std::string message = audit_message(
        with_fault(run, {.fault = Fault::Gradient, .rank = rank, .step = 1, .moment = 5, .place = 3, .bit = 23}, planted));
    EXPECT_TRUE(planted.done);
    EXPECT_THAT(message, AllOf(HasSubstr("ranks 2, 3"), HasSubstr("host-2"), HasSubstr("host-3"))) << rank;
  }
}

// ---- planted faults

constexpr std::array kLayouts{AuditedGrid{1, 1, 3, 0}, AuditedGrid{1, 1, 3, 1}, AuditedGrid{1, 1, 3, 2},
                              AuditedGrid{1, 1, 3, 3}, AuditedGrid{2, 1, 3, 1}, AuditedGrid{2, 1, 3, 2},
                              AuditedGrid{1, 2, 3, 0}, AuditedGrid{1, 2, 3, 3}};

struct Outcome {
  std::string message;  // empty: nothing was found
  bool planted = false, without_effect = false, names_rank = false, names_tensor = false, knows_tensor = false;
};

const char* fault_name(Fault fault) {
  switch (fault) {
    case Fault::Weight: return "weight";
    case Fault::Gradient: return "gradient";
    case Fault::Accumulator: return "sum over microbatches";
    case Fault::Message: return "message";
  }
  return "";
}

// Plants the fault number `number`, counted over all layouts.
class Campaign {
 public:
  Outcome plant(Fault fault, uint64_t number) {
    AuditedGrid layout = kLayouts[number % kLayouts.size()];
    // A passing mistake is found if its microbatch is the audited one; with one microbatch, it always is.
    layout.micro_batch = fault == Fault::Accumulator ? 2 : 4;
    const TinyRun clean{.ranks = layout.ranks(), .steps = 2, .config = audited(layout)};
    const std::string key = to_string(layout);
    if (!moments_.contains(key)) {
      moments_[key] = count_moments(clean);
      clean_[key] = without_audit(clean);
    }
    const PhiloxBlock random = philox(random_key(11, fault_name(fault)), number, 0);
    Placement placement{.fault = fault, .rank = static_cast<int>(random[0] % layout.ranks()), .step = 1};
    const uint64_t products = moments_[key].products[placement.rank], sums = moments_[key].sums[placement.rank];
    // The product after which memory of sums is changed is in the second half, when these hold something.
    placement.moment = fault == Fault::Message       ? random[1] % sums
                       : fault == Fault::Accumulator ? products / 2 + random[1] % (products / 2)
                                                     : random[1] % products;
    placement.place = random[2];
    placement.bit = static_cast<int>(random[3] % 64);
    Planted planted;
    Outcome outcome{.message = audit_message(with_fault(clean, placement, planted))};
    outcome.planted = planted.done;
    outcome.knows_tensor = !planted.parameter.empty();
    outcome.names_tensor = outcome.knows_tensor && outcome.message.find(planted.parameter) != std::string::npos;
    outcome.names_rank = outcome.message.find(fmt::format("host-{}", placement.rank)) != std::string::npos;
    if (outcome.message.empty() && planted.done) {
      Planted again;
      outcome.without_effect = difference(clean_[key], without_audit(with_fault(clean, placement, again))).empty();
    }
    where_ = fmt::format("{} {}: {}, rank {}, moment {}, place {}, bit {}, tensor {}", fault_name(fault), number, key,
                         placement.rank, placement.moment, placement.place, placement.bit, planted.parameter);
    return outcome;
  }
  const std::string& where() const { return where_; }

 private:
  static Trace without_audit(TinyRun run) {
    run.config.audit.every_steps = 0;
    return test::run(run);
  }

  std::map<std::string, Moments> moments_;
  std::map<std::string, Trace> clean_;
  std::string where_;
};

// TRIVET_PLACEMENTS: how many faults of each kind are planted, for measurements (bench/results/gradient_audit.md).
uint64_t placements() {
  const char* const given = std::getenv("TRIVET_PLACEMENTS");
  return given ? std::strtoull(given, nullptr, 10) : 16;
}

void expect_found(Fault fault) {
  Campaign campaign;
  uint64_t planted = 0, found = 0, rank = 0, known = 0, tensor = 0, without_effect = 0;
  for (uint64_t number = 0; planted < placements() && number < 10 * placements(); ++number) {
    const Outcome outcome = campaign.plant(fault, number);
    if (!outcome.planted) continue;
    if (outcome.without_effect) {
      ++without_effect;
      continue;
    }
    ++planted;
    EXPECT_NE(outcome.message, "") << campaign.where();
    EXPECT_TRUE(outcome.names_rank) << campaign.where() << "\n" << outcome.message;
    found += !outcome.message.empty();
    rank += outcome.names_rank;
    known += outcome.knows_tensor;
    tensor += outcome.names_tensor;
  }
  fmt::print("| {} | {} | {} | {} | {} of {} | {} |\n", fault_name(fault), planted, found, rank, tensor, known, without_effect);
}

TEST(GradientAudit, FindsAFlippedBitInAWeight) { expect_found(Fault::Weight); }
TEST(GradientAudit, FindsAFlippedBitInAGradient) { expect_found(Fault::Gradient); }
TEST(GradientAudit, FindsAFlippedBitInASumOverMicrobatches) { expect_found(Fault::Accumulator); }
TEST(GradientAudit, FindsAFlippedBitInAMessage) { expect_found(Fault::Message); }

}  // namespace
}  // namespace trivet::test
