#include "comm/control/meetings.h"

namespace trivet::comm::control {

bool Meetings::arrive(const std::string& meeting, const std::vector<int>& ranks) {
  Meeting& open = open_[meeting];
  for (int rank : ranks) {
    if (!open.arrived.insert(rank).second) return false;
    open.untold.push_back(rank);
  }
  return true;
}

bool Meetings::complete(const std::string& meeting) const {
  const auto open = open_.find(meeting);
  return open != open_.end() && static_cast<int>(open->second.arrived.size()) == ranks_below_;
}

std::vector<Arrive> Meetings::take_untold(bool only_complete) {
  std::vector<Arrive> arrivals;
  for (auto& [name, open] : open_) {
    if (open.untold.empty() || (only_complete && !complete(name))) continue;
    arrivals.push_back({name, std::move(open.untold)});
    open.untold.clear();
  }
  return arrivals;
}

std::vector<int> Meetings::missing(const std::string& meeting, int world_size) const {
  std::vector<int> ranks;
  const auto open = open_.find(meeting);
  for (int rank = 0; rank < world_size; ++rank) {
    if (open == open_.end() || !open->second.arrived.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace trivet::comm::control
