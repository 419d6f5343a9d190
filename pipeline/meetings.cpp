#include "pipeline/meetings.h"

#include <fmt/format.h>

#include <map>
#include <stdexcept>

namespace trivet::pipeline {

std::vector<Meeting> find_meetings(const Schedule& schedule) {
  std::map<std::pair<Op, int>, Meeting> found;  // by op and block
  for (size_t rank = 0; rank < schedule.size(); ++rank)
    for (size_t at = 0; at < schedule[rank].size(); ++at) {
      const Instruction& i = schedule[rank][at];
      if (i.op != Op::Tie && i.op != Op::SumLoss) continue;
      Meeting& meeting = found[{i.op, i.block}];
      if (!meeting.empty() && meeting.back().first == rank)
        throw std::logic_error(fmt::format("schedule: {} runs twice on rank {}", to_string(i), rank));
      meeting.emplace_back(rank, at);
    }
  std::vector<Meeting> meetings;
  for (const auto& [key, meeting] : found) {
    if (key.first == Op::SumLoss && meeting.size() != schedule.size())
      throw std::logic_error(fmt::format("schedule: ranks disagree: {} of {} ranks have a SUM_LOSS; all must have one",
                                         meeting.size(), schedule.size()));
    meetings.push_back(meeting);
  }
  return meetings;
}

}  // namespace trivet::pipeline
