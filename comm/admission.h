// Lets visitors in at a node that listens: accepts connections, makes each prove that it knows the secret, and reads its first
// message, which must be a Join or an Attach. Strangers are turned away without disturbing anybody.
#pragma once

#include <poll.h>

#include <list>
#include <vector>

#include "comm/control/message.h"
#include "comm/handshake.h"
#include "core/log.h"

namespace trivet::comm {

class Admission {
 public:
  struct Request {
    Connection connection;
    control::Message message;
  };
  struct Options {
    int world_size = 1;
    size_t most_visitors = 256;  // at a time; the oldest without proof is dropped first
    Log log;
  };

  Admission(Descriptor listener, Secret secret, Options options);
  void add_to(std::vector<pollfd>& entries) const;
  // Does what can be done without waiting; call it when poll returns, and at least every 100 ms.
  std::vector<Request> step();

 private:
  struct Visitor {
    Descriptor unproven;    // the socket, until the visitor has proven that it knows the secret
    Connection connection;  // takes over the socket then
    Doorkeeper doorkeeper;
    TimePoint deadline;
  };

  void accept_visitors(TimePoint now);
  void make_room();
  // Advances one visitor. True if it is finished: its request was added to `requests`, or it was turned away.
  bool advance(Visitor& visitor, TimePoint now, std::vector<Request>& requests);
  void complain(const Visitor& visitor, const std::string& why);

  Descriptor listener_;
  Secret secret_;
  Options options_;
  std::list<Visitor> visitors_;
  TimePoint accepts_again_;  // after this process had no descriptor left for another visitor
  int complaints_ = 0;
};

}  // namespace trivet::comm
