// Drives a Node: the sockets and the clock around it. One loop accepts visitors, makes connections, carries messages and ends
// connections, as the node says, and waits for nothing but poll.
//
//   rendezvous, on the caller's thread:   step() until the node runs
//   Liveness, on its own thread:          step() until the process leaves; then finish()
//
// Both use the same Driver, so there is no moment in which nobody sees a death. One thread at a time.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/admission.h"
#include "comm/control/node.h"
#include "comm/control/outgoing.h"

namespace trivet::comm::control {

struct DriverOptions {
  NodeOptions node;
  Secret secret;
  std::vector<Descriptor> listeners;  // for other hosts and for the ranks of this host; a rank that takes nobody has none
  size_t most_visitors = 256;         // at each listener
};

class Driver {
 public:
  explicit Driver(DriverOptions options);

  Node& node() { return node_; }
  // Waits until something happens, at most until `until` or until `wake` can be read. Returns the node's events; if Announce is
  // among them it is the last, because what follows it is for whoever drives the node from then on.
  std::vector<Message> step(TimePoint until, int wake = -1);
  // Does what the node says after the caller has told it something. step() does that, too.
  void act();
  bool has_unsent() const;
  // While joining: why this rank is not connected yet, for people.
  std::string why_not_joined(std::chrono::milliseconds after) const;
  // While joining, for a rank that may have to appeal to the root later: it must not wait for a name then.
  void look_up_root();
  // When the node runs: a rank that makes and takes no more connections forgets the secret.
  void has_joined();
  // Sends what is unsent, and ends all connections. `politely`: reads until the other ends have ended theirs. A connection that
  // is closed with unread data is reset, and a reset may overtake this rank's last messages.
  void finish(TimePoint deadline, bool politely);

 private:
  struct Link {
    Connection connection;
    bool joins = false;  // where this rank joins
  };
  struct Ending {
    Connection connection;
    TimePoint deadline;
    bool finished = false;  // everything is sent
    bool ended = false;     // nothing more is received
  };

  std::vector<Message> take_events();
  void wait(TimePoint until, int wake);
  void take_visitors(TimePoint now);
  void make_connections(TimePoint now);
  void start_call(const Actions::Call& call);
  void connection_failed(const Outgoing& call, TimePoint now);
  void note_failed_join(const Outgoing& call);
  void read(LinkId id, TimePoint now);
  void read_messages(LinkId id, TimePoint now);
  void send(const Actions::Send& action, TimePoint now);
  void end(LinkId id);
  void step_endings(TimePoint now);
  const Frame& frame_of(const Message& message);
  const std::vector<SocketAddress>& addresses_of(const std::string& address);

  const int world_size_;
  const std::string root_;
  const TimePoint join_deadline_;
  Secret secret_;
  const Log log_;
  std::list<Admission> admissions_;
  Node node_;
  std::map<LinkId, Link> links_;
  std::vector<LinkId> readable_;
  std::list<Outgoing> calls_;
  std::list<Ending> endings_;
  std::vector<Message> events_;
  LinkId next_link_ = 0;

  struct LookUp {
    std::vector<SocketAddress> addresses;
    TimePoint when;
  };
  std::map<std::string, LookUp> known_addresses_;

  // State of the last attempt to join.
  std::string joining_at_;
  std::string joining_error_;
  int sent_away_ = 0;

  std::shared_ptr<const Table> encoded_;  // the table of encoded_table_
  Frame frame_;
  Frame encoded_table_;
};

}  // namespace trivet::comm::control
