#include "comm/lane.h"

namespace trivet::comm {

Lane::Lane(Line* lines, const Seat& seat) : lines_(lines), seat_(seat) {
  for (int i = 1; i < seat.size(); ++i) {
    peers_.push_back((seat.rank + i) % seat.size());
    counters_.push_back(&lines[peers_.back()].arrived);
  }
}

void Lane::enter(const Entry& mine) {
  ++operations_;
  Entry& own = lines_[seat_.rank].entries[operations_ % 2];
  own = mine;
  own.header.number = operations_;
  step();
  const OperationHeader& first = entry(0).header;
  for (int rank = 1; rank < seat_.size(); ++rank)
    if (entry(rank).header != first) seat_.disagree(0, first, rank, entry(rank).header);
}

std::optional<OperationHeader> Lane::ahead(int rank) const {
  if (!lines_[rank].arrived.reached(steps_ + 1)) return std::nullopt;
  return lines_[rank].entries[(operations_ + 1) % 2].header;
}

void Lane::step() {
  ++steps_;
  lines_[seat_.rank].arrived.advance();
  seat_.await(counters_, peers_, steps_, lines_[seat_.rank].entries[operations_ % 2].header);
}

}  // namespace trivet::comm
