#include "hvd/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <utility>

#include "core/printable.h"

namespace trivet::hvd {
namespace {

using ByRank = std::vector<std::optional<Request>>;
using TextOf = std::function<std::string(const Request&)>;

// The dims in which the tensors of all ranks must agree: all, or all but the first one.
std::string shape_text(const Request& request) {
  const bool rows_differ = request.collective == Collective::Allgather || request.collective == Collective::Alltoall;
  if (!rows_differ || request.shape.dims() == 0) return to_string(request.shape);
  return "[rows" + std::string(request.shape.dims() > 1 ? ", " : "") +
         to_string(Shape(request.shape.span().subspan(1))).substr(1);
}

std::string what_differs(const char* what, const TextOf& text_of, const ByRank& by_rank, const std::vector<int>& world_ranks) {
  std::vector<std::pair<std::string, std::vector<int>>> ranks_with;  // in the order of the ranks
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (!by_rank[rank]) continue;
    const std::string text = text_of(*by_rank[rank]);
    auto found = ranks_with.begin();
    while (found != ranks_with.end() && found->first != text) ++found;
    if (found == ranks_with.end()) found = ranks_with.insert(found, {text, {}});
    found->second.push_back(world_ranks[rank]);
  }
  if (ranks_with.size() < 2) return "";
  std::vector<std::string> parts;
  for (const auto& [text, ranks] : ranks_with) parts.push_back(text + " on " + ranks_text(ranks));
  return fmt::format("{} is {}", what, fmt::join(parts, " and "));
}

std::string scale_text(const Request& request) {
  return fmt::format("{} before and {} after", request.prescale_factor, request.postscale_factor);
}

// A joined rank has no data that others need.
std::string problem_of_join(const Request& request, const ByRank& by_rank, const std::vector<int>& world_ranks) {
  if (request.collective == Collective::Broadcast && !by_rank[request.root])
    return fmt::format("its root, rank {}, has called join()", world_ranks[request.root]);
  if (request.collective != Collective::Alltoall) return "";
  std::vector<int> joined;
  for (size_t rank = 0; rank < by_rank.size(); ++rank)
    if (!by_rank[rank]) joined.push_back(world_ranks[rank]);
  return joined.empty() ? "" : fmt::format("{} called join(), and alltoall needs rows from all ranks", ranks_text(joined));
}

}  // namespace

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string find_disagreement(const ByRank& by_rank, const std::vector<int>& world_ranks) {
  static const std::vector<std::pair<const char*, TextOf>> kMustAgree{
      {"the operation", [](const Request& r) { return std::string(name_of(r.collective)); }},
      {"dtype", [](const Request& r) { return std::string(name_of(r.dtype)); }},
      {"shape", shape_text},
      {"op", [](const Request& r) { return std::string(name_of(r.op)); }},
      {"compression", [](const Request& r) { return std::string(name_of(r.compression)); }},
      {"the scale", scale_text},
      {"the root's rank in the process set", [](const Request& r) { return std::to_string(r.root); }}};
  const Request* first = nullptr;
  for (const auto& request : by_rank)
    if (request && !first) first = &*request;
  if (!first) return "";
  const auto begin = fmt::format("hvd: {} of \"{}\": ", name_of(first->collective), printable(first->name));
  for (const auto& [what, text_of] : kMustAgree)
    if (const std::string text = what_differs(what, text_of, by_rank, world_ranks); !text.empty())
      return begin + text + "; all ranks must submit the same under one name";
  const std::string text = problem_of_join(*first, by_rank, world_ranks);
  return text.empty() ? "" : begin + text;
}

}  // namespace trivet::hvd
