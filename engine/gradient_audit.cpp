#include "engine/gradient_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/random.h"
#include "engine/rank_names.h"
#include "engine/sharing.h"

namespace trivet {
namespace {

using zero::GradientDigest;

// ---- sums over all parameters, which are compared first

// Sums over the digests of a rank; each is linear, so a sum differs if one of its terms does.
struct Totals {
  uint64_t chosen = 0, recomputed = 0, contributed = 0, accumulated = 0, total = 0;
};

Totals totals_of(const std::vector<GradientDigest>& digests) {
  Totals totals;
  for (const GradientDigest& digest : digests) {
    totals.chosen += digest.chosen;
    totals.recomputed += digest.recomputed;
    totals.contributed += digest.contributed();
    totals.accumulated += digest.accumulated;
    totals.total += digest.total;
  }
  return totals;
}

std::vector<Totals> gather_totals(const Totals& mine, const comm::Participants& all_ranks) {
  std::vector<Totals> of_rank;
  for (const std::string& text :
       all_ranks.gather(fmt::format("{:016x}{:016x}{:016x}{:016x}{:016x}", mine.chosen, mine.recomputed, mine.contributed,
                                    mine.accumulated, mine.total))) {
    const auto number = [&](size_t index) { return std::stoull(text.substr(16 * index, 16), nullptr, 16); };
    of_rank.push_back({number(0), number(1), number(2), number(3), number(4)});
  }
  return of_rank;
}

// The rank that computes the audited microbatch of `rank` again.
int checker_of(const Mesh& mesh, int rank, int distance) {
  const int data_ranks = mesh.size(Axis::Data);
  Coordinates place = mesh.coordinates_of(rank);
  place[Axis::Data] = (place[Axis::Data] + data_ranks - distance) % data_ranks;
  return mesh.rank_at(place);
}

bool contributions_differ(const GradientAudit& audit, const std::vector<Totals>& of_rank) {
  for (int rank = 0; rank < audit.mesh.size(); ++rank)
    if (of_rank[rank].chosen != of_rank[checker_of(audit.mesh, rank, audit.choice.distance)].recomputed) return true;
  return false;
}

bool sums_differ(const GradientAudit& audit, const std::vector<Totals>& of_rank) {
  const Mesh& mesh = audit.mesh;
  for (int tensor = 0; tensor < mesh.size(Axis::Tensor); ++tensor) {
    Totals all;
    for (int data = 0; data < mesh.size(Axis::Data); ++data) {
      Totals sum;
      for (const int rank : mesh.ranks_at({{Axis::Data, data}, {Axis::Tensor, tensor}})) {
        sum.contributed += of_rank[rank].contributed;
        sum.accumulated += of_rank[rank].accumulated;
        all.total += of_rank[rank].total;
      }
      if (sum.contributed != sum.accumulated) return true;
      all.accumulated += sum.accumulated;
    }
    if (all.total != static_cast<uint64_t>(audit.holders) * all.accumulated) return true;
  }
  return false;
}

// ---- what each rank has, when something differs

struct RankDigests {
  std::string host;
  std::vector<GradientDigest> digests;
  std::vector<uint64_t> third;  // [digest] of the third opinion; empty: there is none
};

std::string to_text(const RankDigests& mine) {
  nlohmann::json json{{"host", mine.host}, {"third", mine.third}, {"digests", nlohmann::json::array()}};
  for (const GradientDigest& d : mine.digests)
    json["digests"].push_back(
        {d.block, d.parameter, d.shard, d.chosen, d.others, d.recomputed, d.accumulated, d.total, d.holds_total});
  return json.dump();
}

RankDigests rank_digests_of(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  RankDigests of_rank{.host = json.at("host"), .third = json.at("third")};
  for (const auto& d : json.at("digests"))
    of_rank.digests.push_back({.block = d.at(0),
                               .parameter = d.at(1),
                               .shard = d.at(2),
                               .chosen = d.at(3),
                               .others = d.at(4),
                               .recomputed = d.at(5),
                               .accumulated = d.at(6),
                               .total = d.at(7),
                               .holds_total = d.at(8)});
  return of_rank;
}

// A mistake that an audit found, and the ranks that made it.
struct Mistake {
  std::string what;
  std::vector<int> ranks;
};

// Elements of a parameter in one shard.
using PartName = std::pair<std::string, int>;

// The first rank whose sum over microbatches is not that of its contributions. A parameter that two pipeline ranks use is
// summed on one of them.
std::optional<Mistake> wrong_accumulator(const Mesh& mesh, const std::vector<RankDigests>& of_rank) {
  struct Sum {
    uint64_t contributed = 0, accumulated = 0;
    std::set<int> ranks;
  };
  for (int data = 0; data < mesh.size(Axis::Data); ++data)
    for (int tensor = 0; tensor < mesh.size(Axis::Tensor); ++tensor) {
      std::map<PartName, Sum> sums;
      for (const int rank : mesh.ranks_at({{Axis::Data, data}, {Axis::Tensor, tensor}}))
        for (const GradientDigest& digest : of_rank[rank].digests) {
          Sum& sum = sums[{digest.parameter, digest.shard}];
          sum.contributed += digest.contributed();
          sum.accumulated += digest.accumulated;
          sum.ranks.insert(rank);
        }
      for (const auto& [part, sum] : sums)
        if (sum.contributed != sum.accumulated) {
          const std::vector<int> ranks(sum.ranks.begin(), sum.ranks.end());
          return Mistake{
              fmt::format("the gradient of {} that {} summed over microbatches is not the sum of what they contributed",
                          part.first, ranks_text(ranks)),
              ranks};
        }
    }
  return std::nullopt;
}

// The ranks with a part in the sum over ranks that `holder` has: at ZeRO stages 2 and 3 a pipeline rank that uses a weight of
// another one sums its own gradients of it over ranks, and sends the result to the holder.
std::set<int> makers_of(const Mesh& mesh, const std::vector<RankDigests>& of_rank, int holder, const PartName& part) {
  const Coordinates place = mesh.coordinates_of(holder);
  std::set<int> makers{holder};
  for (const int rank : mesh.ranks_at({{Axis::Data, place[Axis::Data]}, {Axis::Tensor, place[Axis::Tensor]}}))
    for (const GradientDigest& digest : of_rank[rank].digests)
      if (digest.parameter == part.first && digest.shard == part.second && digest.accumulated != 0) makers.insert(rank);
  return makers;
}

// The first parameter of which ranks hold a sum over ranks that is not the sum of what the ranks had.
std::optional<Mistake> wrong_sum(const Mesh& mesh, const std::vector<RankDigests>& of_rank) {
  for (int tensor = 0; tensor < mesh.size(Axis::Tensor); ++tensor) {
    const std::vector<int> ranks = mesh.ranks_at({{Axis::Tensor, tensor}});
    std::map<PartName, uint64_t> accumulated;
    for (const int rank : ranks)
      for (const GradientDigest& digest : of_rank[rank].digests)
        accumulated[{digest.parameter, digest.shard}] += digest.accumulated;
    std::map<std::string, std::set<int>> wrong;
    for (const int rank : ranks)
      for (const GradientDigest& digest : of_rank[rank].digests)
        if (digest.holds_total && digest.total != accumulated.at({digest.parameter, digest.shard}))
          wrong[digest.parameter].merge(makers_of(mesh, of_rank, rank, {digest.parameter, digest.shard}));
    if (wrong.empty()) continue;
    const auto& [parameter, makers] = *wrong.begin();
    const std::vector<int> found(makers.begin(), makers.end());
    return Mistake{
        fmt::format("the gradient of {} that {} received as the sum over ranks is not the sum of what the ranks sent",
                    parameter, ranks_text(found)),
        found};
  }
  return std::nullopt;
}

// ---- a microbatch that ranks computed differently

// One part of a parameter whose gradient is not the same on all ranks that computed it.
struct Difference {
  int block = 0;
  std::string parameter;
  int64_t microbatch = 0;      // number among those of all data ranks
  std::vector<int> differing;  // outvoted by `agreeing`, or all that computed it if there is no majority
  std::vector<int> agreeing;
};

std::optional<Difference> difference_in(const std::vector<std::pair<int, uint64_t>>& computed) {
  std::map<uint64_t, std::vector<int>> by_digest;
  for (const auto& [rank, digest] : computed) by_digest[digest].push_back(rank);
  if (by_digest.size() < 2) return std::nullopt;
  Difference found;
  for (const auto& [digest, ranks] : by_digest) {
    const bool majority = 2 * ranks.size() > computed.size();
    std::vector<int>& side = majority ? found.agreeing : found.differing;
    side.insert(side.end(), ranks.begin(), ranks.end());
  }
  return found;
}

// Context ranks make the gradients of a microbatch together, and the first of them has the sum.
std::vector<int> with_their_context_ranks(const Mesh& mesh, const std::vector<int>& ranks) {
  std::set<int> all;
  for (const int rank : ranks)
    for (const int other : mesh.group_of(rank, Axis::Context)) all.insert(other);
  return {all.begin(), all.end()};
}

std::vector<Difference> find_differences(const GradientAudit& audit, const std::vector<RankDigests>& of_rank) {
  const Mesh& mesh = audit.mesh;
  const int data_ranks = mesh.size(Axis::Data);
  std::vector<Difference> differences;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const int second = checker_of(mesh, rank, audit.choice.distance);
    for (size_t i = 0; i < of_rank[rank].digests.size(); ++i) {
      const GradientDigest& own = of_rank[rank].digests[i];
      std::vector<std::pair<int, uint64_t>> computed{{rank, own.chosen}, {second, of_rank[second].digests[i].recomputed}};
      if (!of_rank[rank].third.empty()) {
        const int third = checker_of(mesh, rank, other_distance(audit.choice.distance, data_ranks));
        computed.emplace_back(third, of_rank[third].third[i]);
      }
      auto found = difference_in(computed);
      if (!found) continue;
      found->differing = with_their_context_ranks(mesh, found->differing);
      found->agreeing = with_their_context_ranks(mesh, found->agreeing);
      found->block = own.block;
      found->parameter = own.parameter;
      found->microbatch = int64_t{audit.choice.microbatch} * data_ranks + mesh.coordinate_of(rank, Axis::Data);
      differences.push_back(std::move(*found));
    }
  }
  return differences;
}

std::vector<int> all_of_their_data_ranks(const Mesh& mesh, const std::set<int>& ranks) {
  std::set<int> all;
  for (const int rank : ranks)
    for (const int other : mesh.ranks_at({{Axis::Data, mesh.coordinate_of(rank, Axis::Data)}})) all.insert(other);
  return {all.begin(), all.end()};
}

// A backward goes from the last block to the first, so of all gradients that differ, those of the last block were computed
// first. If these are the gradients of the last block that has any, the mistake may have been made in the forward of any block.
std::optional<Mistake> wrong_contribution(const GradientAudit& audit, const std::vector<RankDigests>& of_rank) {
  const std::vector<Difference> differences = find_differences(audit, of_rank);
  if (differences.empty()) return std::nullopt;
  const auto by_block = [](const Difference& a, const Difference& b) { return a.block < b.block; };
  const Difference& first = *std::max_element(differences.begin(), differences.end(), by_block);
  std::set<int> differing, agreeing;
  std::set<std::string> parameters;
  for (const Difference& difference : differences) {
    parameters.insert(difference.parameter);
    if (difference.parameter != first.parameter) continue;
    differing.insert(difference.differing.begin(), difference.differing.end());
    agreeing.insert(difference.agreeing.begin(), difference.agreeing.end());
  }
  int last_block = 0;
  for (const RankDigests& digests : of_rank)
    for (const GradientDigest& digest : digests.digests) last_block = std::max(last_block, digest.block);
  std::vector<int> ranks(differing.begin(), differing.end()), others;
  std::set_difference(agreeing.begin(), agreeing.end(), differing.begin(), differing.end(), std::back_inserter(others));
  std::string what = fmt::format("the gradient of {} in microbatch {}", first.parameter, first.microbatch);
  if (audit.mesh.size(Axis::Data) == 1)
    what += fmt::format(" is different when {} computes it again", ranks_text(ranks));
  else if (others.empty())
    what += fmt::format(" is different on each of {}, and no majority says which is right", ranks_text(ranks));
  else
    what += fmt::format(" is different on {} than on {}", ranks_text(ranks), ranks_text(others));
  if (parameters.size() > 1) what += fmt::format(", and so are the gradients of {} other parameters", parameters.size() - 1);
  if (parameters.size() > 1 && first.block == last_block) {
    ranks = all_of_their_data_ranks(audit.mesh, differing);
    if (ranks.size() > differing.size())
      what += fmt::format("; the forward on any of {} may have caused it", ranks_text(ranks));
  }
  return Mistake{what, ranks};
}

[[noreturn]] void throw_mistake(const GradientAudit& audit, const std::vector<RankDigests>& of_rank) {
  std::optional<Mistake> mistake = wrong_accumulator(audit.mesh, of_rank);
  if (!mistake) mistake = wrong_contribution(audit, of_rank);
  if (!mistake) mistake = wrong_sum(audit.mesh, of_rank);
  if (!mistake) throw std::logic_error("gradient audit: the totals differ and no parameter does");
  std::vector<std::string> hosts;
  for (const RankDigests& digests : of_rank) hosts.push_back(digests.host);
  const bool one_host = std::all_of(hosts.begin(), hosts.end(), [&](const std::string& host) { return host == hosts.front(); });
  const char* const cause = one_host ? "the memory or a processor" : "the memory, a processor or the network";
  const char* const advice = mistake->ranks.size() == 1 ? "that host" : "the host that is at fault";
  throw CommError(
      ExitCode::RanksDisagree,
      fmt::format("step {}: {}; {} of host {} changed a value: take {} out of the job and resume from a checkpoint; this "
                  "step changed no weight (audit.every_steps)",
                  audit.step, mistake->what, cause, hosts_text(mistake->ranks, hosts), advice));
}

std::vector<uint64_t> recomputed_of(const std::vector<GradientDigest>& digests) {
  std::vector<uint64_t> recomputed;
  for (const GradientDigest& digest : digests) recomputed.push_back(digest.recomputed);
  return recomputed;
}

}  // namespace

AuditChoice choose_audit(uint64_t seed, int64_t step, int microbatches, int data_ranks) {
  const PhiloxBlock random = philox(random_key(seed, "audit"), static_cast<uint64_t>(step), 0);
  AuditChoice choice{.microbatch = static_cast<int>(random[0] % static_cast<uint32_t>(microbatches))};
  if (data_ranks > 1) choice.distance = 1 + static_cast<int>(random[1] % static_cast<uint32_t>(data_ranks - 1));
  return choice;
}

int other_distance(int distance, int data_ranks) { return 1 + distance % (data_ranks - 1); }

void audit_gradients(const GradientAudit& audit) {
  audit.compare_weights();
  RankDigests mine{.host = audit.host, .digests = audit.recompute(audit.choice.distance)};
  const std::vector<Totals> totals = gather_totals(totals_of(mine.digests), audit.all_ranks);
  const bool contributions = contributions_differ(audit, totals);
  if (!contributions && !sums_differ(audit, totals)) return;
  const int data_ranks = audit.mesh.size(Axis::Data);
  if (contributions && data_ranks > 2)
    mine.third = recomputed_of(audit.recompute(other_distance(audit.choice.distance, data_ranks)));
  std::vector<RankDigests> of_rank;
  for (const std::string& text : audit.all_ranks.gather(to_text(mine))) of_rank.push_back(rank_digests_of(text));
  throw_mistake(audit, of_rank);
}

}  // namespace trivet
