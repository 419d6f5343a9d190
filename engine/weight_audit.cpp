#include "engine/weight_audit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/random.h"
#include "engine/rank_names.h"
#include "engine/sharing.h"
#include "kernels/element_digest.h"

namespace trivet {
namespace {

WeightDigest total_of(std::span<const WeightDigest> digests) {
  WeightDigest total;
  for (const WeightDigest& digest : digests) {
    total.whole += digest.whole;
    total.replicated += digest.replicated;
    total.unsplit += digest.unsplit;
    total.experts += digest.experts;
  }
  return total;
}

// Ranks that should hold equal weights, by the digest of what they hold.
using Holders = std::map<uint64_t, std::vector<int>>;

std::optional<Disagreement> judge(const Holders& holders) {
  if (holders.size() < 2) return std::nullopt;
  size_t all = 0;
  const std::vector<int>* largest = nullptr;
  for (const auto& [digest, ranks] : holders) {
    all += ranks.size();
    if (!largest || ranks.size() > largest->size()) largest = &ranks;
  }
  Disagreement found;
  if (2 * largest->size() > all) found.agreeing = *largest;
  for (const auto& [digest, ranks] : holders)
    if (found.agreeing.empty() || &ranks != largest) found.differing.insert(found.differing.end(), ranks.begin(), ranks.end());
  std::sort(found.differing.begin(), found.differing.end());
  std::sort(found.agreeing.begin(), found.agreeing.end());
  return found;
}

std::optional<Disagreement> compare_in(const std::vector<std::vector<int>>& groups, uint64_t WeightDigest::*digest,
                                       std::span<const WeightDigest> of_rank) {
  for (const std::vector<int>& group : groups) {
    Holders holders;
    for (const int rank : group) holders[of_rank[rank].*digest].push_back(rank);
    if (auto found = judge(holders)) return found;
  }
  return std::nullopt;
}

std::optional<Disagreement> compare_equal_ranks(const Mesh& mesh, int shards, std::span<const WeightDigest> of_rank) {
  const auto groups = mesh.groups(equal_over(Sharing::Dense));
  if (auto found = compare_in(groups, &WeightDigest::whole, of_rank)) return found;
  const auto same_experts = mesh.view(Sharing::Expert).groups(equal_over(Sharing::Expert));
  if (auto found = compare_in(same_experts, &WeightDigest::experts, of_rank)) return found;
  return compare_in(across_runs_of(groups, shards), &WeightDigest::replicated, of_rank);
}

std::optional<Disagreement> compare_along_tensor(const Mesh& mesh, int, std::span<const WeightDigest> of_rank) {
  for (int stage = 0; stage < mesh.size(Axis::Pipeline); ++stage) {
    Holders holders;
    for (int tensor = 0; tensor < mesh.size(Axis::Tensor); ++tensor) {
      const std::vector<int> ranks = mesh.ranks_at({{Axis::Pipeline, stage}, {Axis::Tensor, tensor}});
      uint64_t sum = 0;
      for (const int rank : ranks) sum += of_rank[rank].unsplit;
      auto& same = holders[sum];
      same.insert(same.end(), ranks.begin(), ranks.end());
    }
    if (auto found = judge(holders)) return found;
  }
  return std::nullopt;
}

// The message that a rank sends to the others when the totals differ.
struct Details {
  std::string host;
  std::vector<WeightDigest> digests;
};

std::string to_text(const std::string& host, std::span<const WeightDigest> digests) {
  nlohmann::json json{{"host", host}, {"digests", nlohmann::json::array()}};
  for (const WeightDigest& digest : digests)
    json["digests"].push_back({digest.parameter, digest.whole, digest.replicated, digest.unsplit, digest.experts});
  return json.dump();
}

Details details_of(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  Details details{json.at("host"), {}};
  for (const auto& digest : json.at("digests"))
    details.digests.push_back({digest.at(0), digest.at(1), digest.at(2), digest.at(3), digest.at(4)});
  return details;
}

struct FirstDifference {
  Disagreement ranks;
  std::string parameter;
};

using Compare = std::optional<Disagreement> (*)(const Mesh& mesh, int shards, std::span<const WeightDigest> of_rank);

// The first parameter on which the ranks differ along one axis.
std::optional<FirstDifference> first_difference(const Mesh& mesh, int shards, const std::vector<Details>& of_rank,
                                                Compare compare) {
  size_t most = 0;
  for (const Details& details : of_rank) most = std::max(most, details.digests.size());
  for (size_t i = 0; i < most; ++i) {
    std::vector<WeightDigest> digests;  // pipeline stages have different parameters, but are not compared
    for (const Details& details : of_rank) digests.push_back(i < details.digests.size() ? details.digests[i] : WeightDigest{});
    if (auto found = compare(mesh, shards, digests)) {
      const std::string parameter = digests[found->differing.front()].parameter;
      return FirstDifference{std::move(*found), parameter};
    }
  }
  return std::nullopt;
}

// The data axis comes first, because it identifies the weight that changed. That weight has since affected other weights, which
// the tensor axis would find.
FirstDifference first_difference(const Mesh& mesh, int shards, const std::vector<Details>& of_rank) {
  for (const Compare compare : {&compare_equal_ranks, &compare_along_tensor})
    if (auto first = first_difference(mesh, shards, of_rank, compare)) return std::move(*first);
  throw std::logic_error("weight audit: the totals differ and no parameter does");
}

[[noreturn]] void throw_disagreement(const FirstDifference& first, const std::vector<Details>& of_rank, int64_t step,
                                     int64_t last_equal) {
  const auto& [differing, agreeing] = first.ranks;
  std::vector<std::string> hosts;
  for (const Details& details : of_rank) hosts.push_back(details.host);
  const std::string who =
      agreeing.empty() ? fmt::format("{} hold different weights and no majority says which is right", ranks_text(differing))
                       : fmt::format("{} {} different weights from {}", ranks_text(differing),
                                     differing.size() == 1 ? "holds" : "hold", ranks_text(agreeing));
  throw CommError(
      ExitCode::RanksDisagree,
      fmt::format("after step {}: {}, first in {} (all were equal after step {}); the memory or a processor of host {} "
                  "changed a value: take that host out of the job and resume from a checkpoint; weights are also "
                  "compared before each checkpoint is written (audit.weights_every)",
                  step, who, first.parameter, last_equal, hosts_text(differing, hosts)));
}

// A tensor that has a value for each element of a group, or for a range of them.
struct GroupTensor {
  ConstTensorView view;
  int64_t first = 0;   // element of the group where the view begins
  bool whole = false;  // equal on all ranks of the data axis
};

// The weights as layers see them, then what the optimizer updates.
std::vector<GroupTensor> tensors_of(const zero::HeldWeights& held) {
  std::vector<GroupTensor> tensors{{held.view, held.first, held.whole}};
  for (const ConstTensorView& view : held.updated) tensors.push_back({view, held.owned_first, held.updated_whole});
  return tensors;
}

// The digest of those elements in [first, first + count) of the group that belong to `parameter`.
uint64_t digest_range(kernels::ElementDigest& digest, const GroupTensor& tensor, uint64_t key,
                      const zero::FlatParameter& parameter, int64_t first, int64_t count) {
  const zero::Intersection part = intersection(parameter, first, count);
  if (part.count == 0) return 0;
  const int64_t in_view = parameter.offset + part.first_in_parameter - tensor.first;
  return digest.of(tensor.view.slice(in_view, part.count), key, part.first_in_parameter);
}

}  // namespace

std::vector<WeightDigest> digest_weights(zero::Parameters& parameters, kernels::Kernels& kernels, Device device) {
  const bool tensor_copies = parameters.layout().tensor_size > 1;
  kernels::ElementDigest element_digest(kernels, device);
  std::vector<WeightDigest> digests;
  parameters.for_each_group([&](int, zero::ParameterGroup& group) {
    const zero::HeldWeights held = group.held_weights();
    if (held.view.elements() == 0) return;
    const std::vector<GroupTensor> tensors = tensors_of(held);
    for (const zero::FlatParameter& parameter : group.layout().parameters) {
      WeightDigest digest{.parameter = parameter.name};
      for (size_t i = 0; i < tensors.size(); ++i) {
        const uint64_t key = random_key(i, parameter.name);
        if (tensors[i].whole)
          (group.layout().sharing == Sharing::Expert ? digest.experts : digest.whole) +=
              digest_range(element_digest, tensors[i], key, parameter, 0, group.layout().whole_elements);
        else if (group.axis().replicas)
          digest.replicated += digest_range(element_digest, tensors[i], key, parameter, held.owned_first, held.owned_count);
        if (tensor_copies && parameter.part.shape == parameter.spec.shape)
          digest.unsplit += digest_range(element_digest, tensors[i], key, parameter, held.owned_first, held.owned_count);
      }
      digests.push_back(std::move(digest));
    }
  });
  return digests;
}

std::optional<Disagreement> find_disagreement(const Mesh& mesh, int shards, std::span<const WeightDigest> of_rank) {
  if (auto found = compare_equal_ranks(mesh, shards, of_rank)) return found;
  return compare_along_tensor(mesh, shards, of_rank);
}

void compare_weights(const Mesh& mesh, int shards, std::span<const WeightDigest> mine, const comm::Participants& all_ranks,
                     const std::string& host, int64_t step, int64_t last_equal) {
  const WeightDigest total = total_of(mine);
  std::vector<WeightDigest> totals;
  const auto number = [](const std::string& text, size_t first) { return std::stoull(text.substr(first, 16), nullptr, 16); };
  for (const std::string& text : all_ranks.gather(
           fmt::format("{:016x}{:016x}{:016x}{:016x}", total.whole, total.replicated, total.unsplit, total.experts)))
    totals.push_back({"", number(text, 0), number(text, 16), number(text, 32), number(text, 48)});
  if (!find_disagreement(mesh, shards, totals)) return;
  std::vector<Details> details;
  for (const std::string& text : all_ranks.gather(to_text(host, mine))) details.push_back(details_of(text));
  throw_disagreement(first_difference(mesh, shards, details), details, step, last_equal);
}

}  // namespace trivet
