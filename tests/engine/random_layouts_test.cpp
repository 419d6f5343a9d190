// Plans of random layouts with context ranks. Every rank of the job is rehearsed, and what it would do with each of its groups
// is compared with what the other ranks of the group would do. A sample of them runs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "comm/arguments.h"
#include "comm/traffic.h"
#include "core/error.h"
#include "engine/channels.h"
#include "engine/config/context_kind.h"
#include "engine/config/load.h"
#include "engine/make_plan.h"
#include "engine/rehearsal.h"
#include "pipeline/validate.h"
#include "tests/engine/measured_run.h"
#include "tests/engine/random_configs.h"
#include "tests/support/optimizer_types.h"

namespace trivet {
namespace {

using comm::ExchangeCounts;
using comm::Operation;
using comm::OperationHeader;
using comm::ProcessGroup;
using comm::ReduceOp;

const std::vector<Choice>& keys_of_layouts() {
  static const std::vector<Choice> all{
      {"model.type", {"gpt", "llama"}},
      {"model.layers", {"2", "4", "7"}},
      {"model.key_value_heads", {"1", "2", "4", "8"}},
      {"model.attention_window", {"0", "0", "0", "0", "0", "5"}},
      {"model.tied_embedding", {"true", "false"}},
      {"model.dropout", {"0", "0.1"}},
      {"model.experts.count", {"0", "0", "4"}},
      {"parallel.expert", {"1", "1", "1", "1", "2"}},
      {"model.experts.feed_forward_size", {"16"}},
      {"model.experts.balance_loss", {"0", "0.01"}},
      {"parallel.pipeline", {"1", "2", "2", "3", "4"}},
      {"parallel.tensor", {"1", "1", "2", "4"}},
      {"parallel.sequence_parallel", {"true", "false"}},
      {"parallel.context", {"2", "2", "3", "4", "8"}},
      {"parallel.context_kind", {"auto", "ulysses", "gather", "ring", "ring", "ulysses_ring"}},
      {"parallel.context_grain", {"1", "1", "4", "8"}},
      {"parallel.rank_order",
       {R"(["pipeline","data","context","expert","tensor"])", R"(["data","tensor","pipeline","context","expert"])",
        R"(["context","expert","tensor","data","pipeline"])"}},
      {"data.packing", {"stream", "stream", "stream", "isolated"}},
      {"pipeline.schedule", {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-2p", "zb-v"}},
      {"pipeline.chunks", {"0", "0", "1", "2", "3"}},
      {"train_batch_size", {"6", "12", "24"}},
      {"train_micro_batch_size_per_gpu", {"1", "2", "3"}},
      {"bf16.enabled", {"true", "false"}},
      {"fp16.enabled", {"true", "false", "false"}},
      {"data_types.grad_accum_dtype", {"fp32", "bf16", "null", "null"}},
      {"optimizer.type", test::optimizer_names()},
      {"reproducible", {"run", "run", "run", "layout"}},
      {"activation_checkpointing.mode", {"none", "selective", "full"}},
      {"activation_checkpointing.every", {"1", "2"}},
      {"activation_checkpointing.partition_activations", {"true", "false"}},
      {"activation_checkpointing.mlp_slice_tokens", {"0", "0", "0", "1", "3"}},
      {"zero_optimization.stage", {"0", "1", "2", "3", "3"}},
      {"zero_optimization.mics_shard_size", {"-1", "-1", "-1", "-1", "1", "2"}},
      {"zero_optimization.zero_hpz_partition_size", {"1", "2"}},
      {"zero_optimization.zero_quantized_weights", {"false", "false", "true"}},
      {"zero_optimization.zero_quantized_gradients", {"false", "false", "true"}},
      {"zero_optimization.overlap_comm", {"true", "false"}},
      {"zero_optimization.reduce_bucket_size", {"1500", "500000000"}},
      {"zero_optimization.allgather_bucket_size", {"1500", "500000000"}},
      {"zero_optimization.stage3_param_persistence_threshold", {"0", "100"}},
      {"zero_optimization.stage3_prefetch_bucket_size", {"0", "6000"}},
      {"zero_optimization.stage3_max_reuse_distance", {"0", "1000000000"}},
      {"zero_optimization.stage3_release", {"distance", "use", "microbatch", "step"}}};
  return all;
}

constexpr std::array kRanks{2, 3, 4, 6, 8, 8, 12, 16, 16};
constexpr int64_t kTokens = 24, kHeads = 8, kHeadSize = 4;

// An operation that a rank starts, as real groups compare it. For all_to_all_v, `counts` too.
struct Started {
  int group = 0;  // among those of the rank, in the order in which they are made
  OperationHeader header;
  ExchangeCounts counts;
};

// Passes everything on to a group that only counts, and writes it down.
class WatchedGroup final : public ProcessGroup {
 public:
  WatchedGroup(std::unique_ptr<ProcessGroup> inner, int number, std::vector<Started>& started)
      : inner_(std::move(inner)), number_(number), started_(started) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  comm::Traffic traffic() const override { return inner_->traffic(); }

  void all_reduce(TensorView data, ReduceOp op, Stream& stream) override {
    note(comm::all_reduce_header(*this, data, op));
    inner_->all_reduce(data, op, stream);
  }
  void reduce_scatter(ConstTensorView whole, TensorView shard, ReduceOp op, Stream& stream) override {
    note(comm::reduce_scatter_header(*this, whole, shard, op));
    inner_->reduce_scatter(whole, shard, op, stream);
  }
  void all_gather(ConstTensorView shard, TensorView whole, Stream& stream) override {
    note(comm::all_gather_header(*this, shard, whole));
    inner_->all_gather(shard, whole, stream);
  }
  void broadcast(TensorView data, int root, Stream& stream) override {
    note(comm::broadcast_header(*this, data, root));
    inner_->broadcast(data, root, stream);
  }
  void all_to_all(ConstTensorView in, TensorView out, Stream& stream) override {
    note(comm::all_to_all_header(*this, in, out));
    inner_->all_to_all(in, out, stream);
  }
  void all_to_all_v(ConstTensorView in, TensorView out, const ExchangeCounts& counts, Stream& stream) override {
    note(comm::all_to_all_v_header(*this, in, out, counts), counts);
    inner_->all_to_all_v(in, out, counts, stream);
  }
  void send(ConstTensorView data, int peer, Stream& stream) override {
    note(comm::message_header(*this, Operation::Send, data, peer));
    inner_->send(data, peer, stream);
  }
  void receive(TensorView data, int peer, Stream& stream) override {
    note(comm::message_header(*this, Operation::Receive, data, peer));
    inner_->receive(data, peer, stream);
  }
  void barrier(Stream& stream) override {
    note({});
    inner_->barrier(stream);
  }
  std::unique_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks, const std::string& name) override {
    return inner_->subgroup(ranks, name);
  }

 private:
  void note(const OperationHeader& header, const ExchangeCounts& counts = {}) { started_.push_back({number_, header, counts}); }

  const std::unique_ptr<ProcessGroup> inner_;
  const int number_;
  std::vector<Started>& started_;
};

// A world of which a rank makes its groups; remembers the members of the last one.
class NamedMembers final : public ProcessGroup {
 public:
  NamedMembers(int rank, int size) : inner_(comm::make_meta_group(rank, size, "world")), members({rank}) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  comm::Traffic traffic() const override { return {}; }
  void all_reduce(TensorView, ReduceOp, Stream&) override {}
  void reduce_scatter(ConstTensorView, TensorView, ReduceOp, Stream&) override {}
  void all_gather(ConstTensorView, TensorView, Stream&) override {}
  void broadcast(TensorView, int, Stream&) override {}
  void all_to_all(ConstTensorView, TensorView, Stream&) override {}
  void all_to_all_v(ConstTensorView, TensorView, const ExchangeCounts&, Stream&) override {}
  void send(ConstTensorView, int, Stream&) override {}
  void receive(TensorView, int, Stream&) override {}
  void barrier(Stream&) override {}
  std::unique_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks, const std::string& name) override {
    std::unique_ptr<ProcessGroup> group = inner_->subgroup(ranks, name);
    if (group) members = ranks;
    return group;
  }

 private:
  const std::unique_ptr<ProcessGroup> inner_;

 public:
  std::vector<int> members;
};

// A group of the job: the channel's name, and the world ranks.
using GroupName = std::pair<std::string, std::vector<int>>;

struct RehearsedRank {
  RankPlan measured;
  std::vector<GroupName> groups;
  std::vector<std::string> traffic_lines;      // [group] the line of the plan that counts what it sends; empty: none
  std::vector<pipeline::Queue> queues;         // [group]
  std::vector<Started> started;                // in a step, an evaluation and the start of a run
  std::vector<comm::Traffic> counted_in_step;  // [group]
};

// The groups of a rank, in the order in which they are placed.
void name_groups(const Plan& plan, int world_rank, RehearsedRank& rank) {
  NamedMembers world(world_rank, plan.mesh.size());
  const std::vector<ChannelSpec> table = plan.channels();
  ChannelMakers makers{.place = [&](Group group) {
    rank.groups.emplace_back(group->name(), group->size() == 1 ? std::vector{world_rank} : world.members);
    return group;
  }};
  const Channels channels(world, plan.mesh, table, makers);
  for (const Channel& channel : channels.all()) {
    rank.traffic_lines.push_back(channel.spec.traffic);
    rank.queues.push_back(channel.spec.queue);
  }
}

RehearsedRank rehearse(const Plan& plan, const model::Model& model, int world_rank) {
  RehearsedRank rank{.measured = plan.rank(world_rank)};
  rank.measured.coordinates = plan.mesh.coordinates_of(world_rank);
  name_groups(plan, world_rank, rank);
  int groups = 0;
  Rehearsal rehearsal(plan, rank.measured, model, {.place = [&](Group group) -> Group {
                        return std::make_unique<WatchedGroup>(std::move(group), groups++, rank.started);
                      }});
  rehearsal.measure(rank.measured);
  EXPECT_EQ(groups, rank.groups.size());
  return rank;
}

std::string text_of(const OperationHeader& header) { return comm::to_string(header); }

// What member `from` of the group sends to member `to`, or receives from it.
std::vector<OperationHeader> messages(const std::vector<Started>& started, Operation operation, int peer) {
  std::vector<OperationHeader> messages;
  for (const Started& one : started)
    if (one.header.operation == operation && one.header.root == peer) {
      messages.push_back(one.header);
      messages.back().operation = Operation::Send, messages.back().root = 0;
    }
  return messages;
}

bool is_message(const Started& one) {
  return one.header.operation == Operation::Send || one.header.operation == Operation::Receive;
}

// [member] what each member of a group starts in it.
using StartedByMembers = std::vector<std::vector<Started>>;

void expect_members_agree(const GroupName& name, const StartedByMembers& members) {
  std::vector<std::vector<Started>> collectives;
  for (const std::vector<Started>& started : members) {
    collectives.emplace_back();
    std::ranges::copy_if(started, std::back_inserter(collectives.back()), [](const Started& one) { return !is_message(one); });
  }
  for (size_t member = 0; member < members.size(); ++member) {
    const std::string where = fmt::format("group {}, world ranks {} and {}", name.first, name.second[0], name.second[member]);
    ASSERT_EQ(collectives[member].size(), collectives[0].size()) << where;
    for (size_t i = 0; i < collectives[0].size(); ++i)
      ASSERT_EQ(collectives[member][i].header, collectives[0][i].header)
          << where << ", operation " << i << ": " << text_of(collectives[member][i].header) << " and "
          << text_of(collectives[0][i].header);
    for (size_t peer = 0; peer < members.size(); ++peer) {
      ASSERT_EQ(messages(members[member], Operation::Send, static_cast<int>(peer)),
                messages(members[peer], Operation::Receive, static_cast<int>(member)))
          << where;
      for (size_t i = 0; i < collectives[0].size(); ++i) {
        if (collectives[0][i].header.operation != Operation::AllToAllV) continue;
        ASSERT_EQ(collectives[member][i].counts.sent[peer], collectives[peer][i].counts.received[member]) << where;
      }
    }
  }
}

// Lets the ranks run their collective operations, those of a queue one after another: an operation ends when it is the next one
// of all members of its group. Returns what is left, by rank; empty: nobody waits forever.
std::string blocked(const std::vector<RehearsedRank>& ranks) {
  std::vector<std::map<pipeline::Queue, std::vector<int>>> queues(ranks.size());  // the groups of operations, in order
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (const Started& one : ranks[rank].started)
      if (!is_message(one)) queues[rank][ranks[rank].queues[one.group]].push_back(one.group);
  std::vector<std::map<pipeline::Queue, size_t>> next(ranks.size());
  const auto waits_for = [&](size_t rank, pipeline::Queue queue) -> const GroupName* {
    const std::vector<int>& groups = queues[rank][queue];
    return next[rank][queue] < groups.size() ? &ranks[rank].groups[groups[next[rank][queue]]] : nullptr;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      for (const auto& [queue, groups] : queues[rank])
        while (const GroupName* const name = waits_for(rank, queue)) {
          const bool together = std::ranges::all_of(name->second, [&, queue = queue](int member) {
            const GroupName* const other = waits_for(member, queue);
            return other && *other == *name;
          });
          if (!together) break;
          const std::vector<int> members = name->second;
          for (const int member : members) ++next[member][queue];
          moved = true;
        }
  }
  std::string left;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (const auto& [queue, groups] : queues[rank])
      if (const GroupName* const name = waits_for(rank, queue)) left += fmt::format(" rank {} in {};", rank, name->first);
  return left;
}

void expect_ranks_agree(const std::vector<RehearsedRank>& ranks) {
  std::map<GroupName, StartedByMembers> groups;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    std::set<GroupName> seen;
    for (const GroupName& name : ranks[rank].groups) {
      ASSERT_TRUE(seen.insert(name).second) << name.first << " is there twice";
      groups[name].resize(name.second.size());
    }
    for (const Started& one : ranks[rank].started) {
      const GroupName& name = ranks[rank].groups[one.group];
      const auto member = std::ranges::find(name.second, static_cast<int>(rank)) - name.second.begin();
      groups[name][member].push_back(one);
    }
  }
  for (const auto& [name, members] : groups) {
    ASSERT_NO_FATAL_FAILURE(expect_members_agree(name, members));
  }
  EXPECT_EQ(blocked(ranks), "");
}

// The plan has one RankPlan for all ranks that differ along data and context only.
void expect_as_planned(const Plan& plan, const std::vector<RehearsedRank>& ranks) {
  for (int rank = 0; rank < plan.mesh.size(); ++rank) {
    const RankPlan &planned = plan.rank(rank), &measured = ranks[rank].measured;
    for (const auto& [line, traffic] : planned.traffic) {
      EXPECT_EQ(measured.traffic_of(line).bytes_sent, traffic.bytes_sent) << line << " of rank " << rank;
      EXPECT_EQ(measured.traffic_of(line).operations, traffic.operations) << line << " of rank " << rank;
    }
    for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
      EXPECT_EQ(measured.memory[category], planned.memory[category]) << name << " of rank " << rank;
    EXPECT_EQ(measured.activation_arena_bytes, planned.activation_arena_bytes) << rank;
    EXPECT_EQ(measured.buffer_arena_bytes, planned.buffer_arena_bytes) << rank;
  }
}

// Checks all pipelines; make_plan has checked those of the first tensor rank.
void expect_no_deadlock(const Plan& plan) {
  for (int tensor = 0; tensor < plan.mesh.size(Axis::Tensor); ++tensor) {
    pipeline::Schedule train, evaluate;
    for (const RankPlan& rank : plan.ranks) {
      if (rank.coordinates[Axis::Tensor] != tensor || rank.coordinates[Axis::Expert] != 0) continue;
      train.push_back(rank.programs.train);
      evaluate.push_back(rank.programs.evaluate);
    }
    EXPECT_NO_THROW(pipeline::validate(train, static_cast<int>(plan.batch.gradient_accumulation_steps)));
    EXPECT_NO_THROW(pipeline::validate_forward(evaluate, 1));
  }
}

// Bytes that attention of one layer sends for a microbatch (docs/long_sequences.md), forward and backward.
std::pair<double, double> bytes_of_attention(const Plan& plan) {
  const Config& config = plan.config;
  const auto c = static_cast<double>(plan.mesh.size(Axis::Context)), t = static_cast<double>(plan.mesh.size(Axis::Tensor));
  const auto tokens = static_cast<double>(plan.batch.micro_batch_size * kTokens);
  const double heads = kHeads / t, keys = std::max(1.0, static_cast<double>(config.model.key_value_heads) / t);
  const auto element = static_cast<double>(size_of(config.model_dtype())), statistic = 4.0;
  switch (config::context_kind(config)) {
    case ContextKind::Ulysses: {
      const double sent = (c - 1) / c / c * tokens * (2 * heads + 2 * std::max(keys, c)) * kHeadSize * element;
      return {sent, sent};
    }
    case ContextKind::Gather:
      return {(c - 1) / c * tokens * 2 * keys * kHeadSize * element,
              (c - 1) / c * tokens * ((3 * heads + 2 * keys) * kHeadSize * element + heads * statistic)};
    case ContextKind::UlyssesRing: {
      const auto run = static_cast<double>(config::context_neighbours(config)), runs = c / run;
      const double exchanged = (run - 1) / run / c * tokens * (2 * heads + 2 * std::max(keys, run)) * kHeadSize * element;
      const double travelling = tokens * 2 * std::max(keys, run) / run * kHeadSize;
      return {exchanged + (runs - 1) / runs * travelling * element,
              exchanged + travelling * ((runs - 1) / runs * element + statistic)};
    }
    default:
      return {(c - 1) / c * tokens * 2 * keys * kHeadSize * element,
              tokens * 2 * keys * kHeadSize * ((c - 1) / c * element + statistic)};
  }
}

// Returns whether the formula covers the plan: layout mode also sends leaves of sums, and selective recomputation runs only
// the core again.
bool expect_context_traffic_of_formula(const Plan& plan) {
  const Config& config = plan.config;
  const bool full = config.recompute == Recompute::Full;
  if (config.model.experts.enabled() && config.model.experts.balance_loss > 0) return false;  // it sends counts of tokens
  if (config.fixes_token_sums() || config.recompute == Recompute::Selective || (full && config.recompute_every > 1))
    return false;
  const auto [forward, backward] = bytes_of_attention(plan);
  const auto microbatches = static_cast<double>(plan.batch.gradient_accumulation_steps);
  double sent = 0;  // by the pipeline ranks of one tensor rank together
  for (const RankPlan& rank : plan.ranks)
    if (rank.coordinates[Axis::Tensor] == 0) sent += static_cast<double>(rank.traffic_of("context").bytes_sent);
  EXPECT_DOUBLE_EQ(sent, static_cast<double>(config.model.layers) * microbatches * ((full ? 2 : 1) * forward + backward));
  return true;
}

// Null if the engine refuses the draw.
std::optional<Plan> plan_of(const Draw& draw, std::optional<model::Model>& model) {
  constexpr const char* kFixed = R"({
    "model": {"hidden_size": 32, "heads": 8, "sequence_length": 24, "vocabulary": 37},
    "fp16": {"initial_scale_power": 4}
  })";
  try {
    const Config config = parse_config(kFixed, "drawn.json", draw.overrides);
    model = model_as_configured(config);
    return make_plan(config, *model, draw.ranks);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

std::set<std::string> situations(const Plan& plan) {
  const Config& config = plan.config;
  const std::string kind(name_of(config::context_kind(config)));
  const int tensor = plan.mesh.size(Axis::Tensor), pipeline = plan.mesh.size(Axis::Pipeline);
  std::set<std::string> names{fmt::format("{} of {} ranks", kind, plan.mesh.size(Axis::Context))};
  const auto add_if = [&](bool holds, const std::string& with) {
    if (holds) names.insert(kind + " with " + with);
  };
  add_if(plan.mesh.size(Axis::Data) > 1, "data ranks");
  add_if(tensor > 1, "tensor ranks");
  add_if(tensor > 1 && config.parallel.sequence_parallel, "sequence parallelism");
  add_if(config.model.isolated_documents, "documents");
  add_if(config.fixes_token_sums(), "leaves");
  add_if(config.mlp_slice_tokens > 0, "slices");
  add_if(config.model.type == model::Type::Llama && config.model.experts.enabled(), "experts");
  add_if(config.recompute == Recompute::Full, "recomputed blocks");
  add_if(config.recompute == Recompute::Selective, "recomputed attention");
  add_if(pipeline > 1, std::string(name_of(config.pipeline.schedule)));
  add_if(true, fmt::format("stage {}", config.zero.stage));
  add_if(plan.sharding().replicas > 1, "replicas");
  return names;
}

std::set<std::string> wanted_situations() {
  std::set<std::string> names;
  for (const std::string kind : {"ulysses", "gather", "ring"}) {
    for (const char* ranks : {"2", "4", "8"}) names.insert(kind + " of " + ranks + " ranks");
    for (const char* with : {"data ranks", "tensor ranks", "sequence parallelism", "slices", "experts", "recomputed blocks",
                             "recomputed attention", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-2p", "zb-v", "stage 0",
                             "stage 1", "stage 2", "stage 3", "replicas"})
      names.insert(kind + " with " + with);
    if (kind == "ring") continue;
    names.insert({kind + " with documents", kind + " with leaves"});
  }
  names.insert({"gather of 3 ranks", "ring of 3 ranks"});
  return names;
}

TEST(RandomLayouts, WithContextRanksSendWhatThePlanCountsAndNobodyWaitsForever) {
  const int wanted = number_from("TRIVET_CONTEXT_LAYOUTS", 200);
  Dice dice;
  std::set<std::string> reached;
  int layouts = 0, with_formula = 0, draws = 0, rehearsed = 0;
  for (; layouts < wanted && draws < 100 * wanted; ++draws) {
    const int ranks = kRanks[dice.below(kRanks.size())];
    const Draw draw{ranks, dice.overrides(keys_of_layouts())};
    std::optional<model::Model> model;
    const std::optional<Plan> plan = plan_of(draw, model);
    if (!plan) continue;
    ++layouts;
    reached.merge(situations(*plan));
    std::vector<RehearsedRank> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(rehearse(*plan, *model, rank));
    rehearsed += ranks;
    expect_as_planned(*plan, all);
    expect_ranks_agree(all);
    expect_no_deadlock(*plan);
    with_formula += expect_context_traffic_of_formula(*plan);
    ASSERT_FALSE(HasFailure()) << "draw " << draws << ", " << ranks << " ranks of\n"
                               << fmt::format("{}", fmt::join(draw.overrides, "\n"));
  }
  EXPECT_EQ(layouts, wanted);
  EXPECT_GT(with_formula, wanted / 4);
  for (const std::string& situation : wanted_situations())
    EXPECT_TRUE(reached.contains(situation)) << "no layout of " << wanted << " has " << situation;
  fmt::print("{} layouts of {} draws, {} ranks rehearsed, {} compared with the formula\n", layouts, draws, rehearsed,
             with_formula);
}

// Three ranks, of which each two share a group, and each begins with another one: nobody's first operation has both members.
TEST(RandomLayouts, ACircleOfGroupsIsFound) {
  const auto rank_in = [](const GroupName& first, const GroupName& second) {
    RehearsedRank rank;
    rank.groups = {first, second};
    rank.queues = {pipeline::Queue::Meet, pipeline::Queue::Meet};
    rank.started = {{.group = 0}, {.group = 1}};
    return rank;
  };
  const GroupName a{"a", {0, 1}}, b{"b", {1, 2}}, c{"c", {0, 2}};
  EXPECT_EQ(blocked({rank_in(a, c), rank_in(a, b), rank_in(b, c)}), "");
  EXPECT_EQ(blocked({rank_in(a, c), rank_in(b, a), rank_in(c, b)}), " rank 0 in a; rank 1 in b; rank 2 in c;");
}

// Runs a sample of these layouts: those of few ranks, which are threads.
TEST(RandomLayouts, WithContextRanksNeedAndSendWhatThePlanSays) {
  const int wanted = number_from("TRIVET_CONTEXT_RUNS", 12);
  Dice dice;
  std::set<std::string> reached;
  int runs = 0;
  for (int draws = 0; runs < wanted && draws < 100 * wanted; ++draws) {
    Draw draw{4 + 4 * static_cast<int>(dice.below(2)), dice.overrides(keys_of_layouts())};
    draw.overrides.emplace_back("comms_logger.enabled=true");
    std::optional<model::Model> model;
    const std::optional<Plan> plan = plan_of(draw, model);
    if (!plan) continue;
    ++runs;
    reached.merge(situations(*plan));
    EXPECT_NO_THROW(expect_measured_as_planned(*plan));
    ASSERT_FALSE(HasFailure()) << "draw " << draws << ", " << draw.ranks << " ranks of\n"
                               << fmt::format("{}", fmt::join(draw.overrides, "\n"));
  }
  EXPECT_EQ(runs, wanted);
  for (const char* situation : {"ulysses of 2 ranks", "gather of 2 ranks", "ring of 2 ranks"})
    EXPECT_TRUE(reached.contains(situation)) << "no layout of " << wanted << " has " << situation;
}

}  // namespace
}  // namespace trivet
