#include "engine/links.h"

#include <fmt/format.h>

#include <stdexcept>

namespace trivet {

StageLinks::StageLinks(const Channels& channels) {
  for (const Channel& channel : channels.all()) {
    const bool forward = channel.spec.purpose == Purpose::Forward;
    if (!forward && channel.spec.purpose != Purpose::Backward) continue;
    Link& link = links_[{forward ? Direction::Forward : Direction::Backward, channel.peer}];
    link.group = channel.group.get();
    link.peer = 1 - channel.group->rank();
    link.sends = channels.make_stream(channel.spec.queue, channel.spec.overlaps);
    link.receives = channels.make_stream(channel.spec.queue, channel.spec.overlaps);
  }
}

StageLinks::Link& StageLinks::link(Direction direction, int pipeline_rank) {
  const auto found = links_.find({direction, pipeline_rank});
  if (found == links_.end()) throw std::logic_error(fmt::format("pipeline: no link to pipeline rank {}", pipeline_rank));
  return found->second;
}

void StageLinks::send(Direction direction, int to_pipeline_rank, ScopedTensor tensor) {
  Link& l = link(direction, to_pipeline_rank);
  if (l.in_flight.size() >= pipeline::kSendsInFlight) {
    l.in_flight.front().first.synchronize();
    l.in_flight.pop_front();
  }
  l.group->send(tensor.view(), l.peer, *l.sends);
  l.in_flight.emplace_back(l.sends->record(), std::move(tensor));
}

Event StageLinks::receive(Direction direction, int from_pipeline_rank, TensorView tensor) {
  Link& l = link(direction, from_pipeline_rank);
  l.group->receive(tensor, l.peer, *l.receives);
  return l.receives->record();
}

void StageLinks::finish() {
  for (auto& [key, l] : links_) {
    for (auto& [event, tensor] : l.in_flight) event.synchronize();
    l.in_flight.clear();
  }
}

}  // namespace trivet
