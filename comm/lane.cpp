#include "comm/lane.h"

#include <algorithm>
#include <numeric>

namespace trivet::comm {
namespace {

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Lane::Lane(Line* lines, const CounterWait& wait) : Lane(lines, all_ranks(wait.size()), wait, wait) {}

Lane::Lane(Line* lines, std::vector<int> ranks, const CounterWait& enters, const CounterWait& steps)
    : lines_(lines),
      ranks_(std::move(ranks)),
      line_(static_cast<int>(std::find(ranks_.begin(), ranks_.end(), enters.rank()) - ranks_.begin())),
      enters_(enters),
      step_wait_(steps) {
  const int size = static_cast<int>(ranks_.size());
  for (int i = 1; i < size; ++i) {
    const int line = (line_ + i) % size;
    peers_.push_back(ranks_[line]);
    counters_.push_back(&lines[line].arrived);
  }
}

void Lane::enter(const Entry& mine) {
  ++operations_;
  Entry& own = lines_[line_].entries[operations_ % 2];
  own = mine;
  own.header.number = operations_;
  meet(enters_);
  const OperationHeader& first = entry(0).header;
  for (int line = 1; line < static_cast<int>(ranks_.size()); ++line)
    if (entry(line).header != first) enters_.disagree(ranks_[0], first, ranks_[line], entry(line).header);
}

std::optional<OperationHeader> Lane::ahead(int line) const {
  if (!lines_[line].arrived.reached(steps_ + 1)) return std::nullopt;
  return lines_[line].entries[(operations_ + 1) % 2].header;
}

void Lane::step() { meet(step_wait_); }

void Lane::meet(const CounterWait& wait) {
  ++steps_;
  lines_[line_].arrived.advance();
  wait.await(counters_, peers_, steps_, lines_[line_].entries[operations_ % 2].header);
}

}  // namespace trivet::comm
