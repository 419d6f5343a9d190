#include "comm/lane.h"

namespace trivet::comm {

Lane::Lane(Line* lines, const CounterWait& wait) : lines_(lines), wait_(wait) {
  for (int i = 1; i < wait.size(); ++i) {
    peers_.push_back((wait.rank() + i) % wait.size());
    counters_.push_back(&lines[peers_.back()].arrived);
  }
}

void Lane::enter(const Entry& mine) {
  ++operations_;
  Entry& own = lines_[wait_.rank()].entries[operations_ % 2];
  own = mine;
  own.header.number = operations_;
  step();
  const OperationHeader& first = entry(0).header;
  for (int rank = 1; rank < wait_.size(); ++rank)
    if (entry(rank).header != first) wait_.disagree(0, first, rank, entry(rank).header);
}

std::optional<OperationHeader> Lane::ahead(int rank) const {
  if (!lines_[rank].arrived.reached(steps_ + 1)) return std::nullopt;
  return lines_[rank].entries[(operations_ + 1) % 2].header;
}

void Lane::step() {
  ++steps_;
  lines_[wait_.rank()].arrived.advance();
  wait_.await(counters_, peers_, steps_, lines_[wait_.rank()].entries[operations_ % 2].header);
}

}  // namespace trivet::comm
