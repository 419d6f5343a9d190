// Exchanges with the neighbours of a pipeline rank: activations forward, gradients backward.
//
// A send returns at once, and its tensor is kept until the neighbour has it; at most pipeline::kSendsInFlight sends of a link
// are in flight, and the next one waits. A receive is posted and returns at once; its event says when the tensor has arrived.
// Every link has a stream for its sends and one for its receives, because transfers are rendezvous and the two directions must
// not wait for each other (pipeline/validate.h proves freedom from deadlock under exactly these rules).
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "core/arena.h"
#include "core/stream.h"
#include "engine/channels.h"
#include "pipeline/transfers.h"

namespace trivet {

enum class Direction { Forward, Backward };

class StageLinks {
 public:
  // `channels` must outlive it.
  explicit StageLinks(const Channels& channels);

  void send(Direction direction, int to_pipeline_rank, ScopedTensor tensor);
  Event receive(Direction direction, int from_pipeline_rank, TensorView tensor);
  // Waits until everything that was sent has arrived.
  void finish();

 private:
  struct Link {
    comm::ProcessGroup* group = nullptr;
    int peer = 0;  // in the group
    std::unique_ptr<Stream> sends, receives;
    std::deque<std::pair<Event, ScopedTensor>> in_flight;
  };
  Link& link(Direction direction, int pipeline_rank);

  std::map<std::pair<Direction, int>, Link> links_;  // key: direction and the neighbour's pipeline rank
};

}  // namespace trivet
