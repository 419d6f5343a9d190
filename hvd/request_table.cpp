#include "hvd/request_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "core/printable.h"
#include "hvd/agreement.h"
#include "hvd/bytes.h"

namespace trivet::hvd {

const Request& Agreed::any() const {
  for (const auto& request : by_rank)
    if (request) return *request;
  throw std::logic_error("hvd: an entry without a request");
}

RequestTable::RequestTable(std::vector<int> world_ranks)
    : world_ranks_(std::move(world_ranks)), joined_(world_ranks_.size()), left_(world_ranks_.size()) {}

bool RequestTable::add(int rank, Request request, std::chrono::nanoseconds now) {
  const bool known_root = request.root >= 0 && request.root < static_cast<int>(world_ranks_.size());
  if (!known_root || (request.collective == Collective::Alltoall && request.splits.size() != world_ranks_.size()))
    ByteReader::refuse();
  const auto [found, is_new] = entries_.try_emplace(request.name);
  Entry& entry = found->second;
  if (is_new) entry = {.number = next_number_++, .since = now, .by_rank = {}};
  entry.by_rank.resize(world_ranks_.size());
  entry.by_rank[rank] = std::move(request);
  return is_new;
}

void RequestTable::end_join() { std::fill(joined_.begin(), joined_.end(), false); }

bool RequestTable::ready(const Entry& entry) const {
  for (size_t rank = 0; rank < world_ranks_.size(); ++rank)
    if (!entry.by_rank[rank] && !joined_[rank] && !left_[rank]) return false;
  return true;
}

std::vector<int> RequestTable::missing(const Entry& entry) const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < world_ranks_.size(); ++rank)
    if (!entry.by_rank[rank] && !joined_[rank]) ranks.push_back(world_ranks_[rank]);
  return ranks;
}

std::string RequestTable::left_problem(const Entry& entry) const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < world_ranks_.size(); ++rank)
    if (!entry.by_rank[rank] && !joined_[rank] && left_[rank]) ranks.push_back(world_ranks_[rank]);
  return ranks.empty() ? "" : ranks_text(ranks) + " called shutdown() without submitting it";
}

std::vector<Agreed> RequestTable::take_ready() {
  std::vector<std::pair<int64_t, Agreed>> taken;
  for (auto at = entries_.begin(); at != entries_.end();) {
    Entry& entry = at->second;
    if (!ready(entry)) {
      ++at;
      continue;
    }
    Agreed agreed{.name = at->first};
    agreed.problem = find_disagreement(entry.by_rank, world_ranks_);
    if (const std::string left = left_problem(entry); !left.empty())
      agreed.problem = fmt::format("hvd: \"{}\": {}", printable(at->first), left);
    agreed.by_rank = std::move(entry.by_rank);
    taken.emplace_back(entry.number, std::move(agreed));
    at = entries_.erase(at);
  }
  std::sort(taken.begin(), taken.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Agreed> ready;
  for (auto& [number, agreed] : taken) ready.push_back(std::move(agreed));
  return ready;
}

std::vector<Waiting> RequestTable::waiting() const {
  std::vector<Waiting> list;
  for (const auto& [name, entry] : entries_) {
    const auto known = std::find_if(entry.by_rank.begin(), entry.by_rank.end(), [](const auto& r) { return r.has_value(); });
    list.push_back({name, (*known)->collective, missing(entry), entry.since});
  }
  return list;
}

std::vector<Agreed> RequestTable::take_stalled() {
  std::vector<Agreed> taken;
  for (auto& [name, entry] : entries_) {
    Agreed agreed{.name = name, .code = ExitCode::NoProgress};
    agreed.problem = fmt::format("hvd: \"{}\": {} did not submit it in time (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)",
                                 printable(name), ranks_text(missing(entry)));
    agreed.by_rank = std::move(entry.by_rank);
    taken.push_back(std::move(agreed));
  }
  entries_.clear();
  return taken;
}

}  // namespace trivet::hvd
