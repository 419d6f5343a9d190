// Messages between the ranks of a job: what a network has to provide so that process groups run over it (transport_group.h). A
// transport moves bytes. It knows nothing of groups, operations, deadlines or lost ranks.
//
// There is one Transport per rank and job; all ranks are world ranks. A message goes to the oldest receive that its receiver
// has posted for its sender and tag, so messages of the same sender, receiver and tag arrive in the order in which they were
// sent; messages of different tags overtake each other. A receive has exactly the size of its message. A message may arrive
// before its receive was posted, and then waits in the transport's memory or at its sender; groups keep such messages short.
//
// Messages make progress at least while any thread of the rank is in PendingMessage::wait, and in progress(). Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace trivet::comm {

enum class MessageState {
  Complete,  // sent: the bytes may be changed; received: the bytes are here
  Pending,
  PeerGone,  // the connection to the peer has ended, and the message will never be complete
};

// A message on its way. Its bytes must stay valid, and those to send unchanged, until it is complete or destroyed. Destroying
// it earlier cancels it: afterwards the transport does not touch the bytes any more. A send that is cancelled may still arrive,
// in full or not at all. If a part of a message is on its way, cancelling it may end all connections of this rank: a message is
// cancelled only when a job fails.
class PendingMessage {
 public:
  virtual ~PendingMessage() = default;
  // Returns as soon as the message is not pending any more, otherwise after `slice`; with 0 it does not wait. Several threads
  // may wait for the same message. Throws std::logic_error if a message has another size than its receive.
  virtual MessageState wait(std::chrono::milliseconds slice) = 0;
};

class Transport {
 public:
  static constexpr int kTagBits = 44;  // the lowest bits of a tag; an implementation may use the others

  // All pending messages must be destroyed before. Ends the connections: peers see PeerGone.
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Neither of them waits. `bytes` is not empty; `peer` is another rank.
  virtual std::unique_ptr<PendingMessage> send(int peer, uint64_t tag, std::span<const std::byte> bytes) = 0;
  virtual std::unique_ptr<PendingMessage> receive(int peer, uint64_t tag, std::span<std::byte> bytes) = 0;
  // Does what can be done now, for a rank that waits for something else.
  virtual void progress() = 0;
  // Checks whether this rank has ended all of its connections itself, by cancelling a message.
  virtual bool has_given_up() const = 0;
  // After PeerGone, what an error says: "its connection ended: Connection reset by peer".
  virtual std::string why_gone(int peer) const = 0;
};

}  // namespace trivet::comm
