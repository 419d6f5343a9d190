// The messages between nodes of the control plane (node.h). "Up" is towards the root.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "comm/control/tree.h"
#include "comm/job_state.h"
#include "comm/member.h"

namespace trivet::comm::control {

using TimePoint = std::chrono::steady_clock::time_point;

// A rank and its place. Whoever receives a Join fills in what only it knows: a rank that has no node of its own hangs below the
// receiver.
struct Seat {
  Member member;
  int node = -1;        // the node of its host
  std::string address;  // where other nodes reach this one; empty if it takes no other nodes
};

struct Table {
  std::string job_id;
  std::vector<Seat> seats;  // by rank
  Tree tree;
};

constexpr size_t kMostSeats = 512;  // seats in a Join
struct Join {                       // up: these ranks ask to be let in; one message for a host, or more if some ranks come late
  std::vector<Seat> seats;
};
struct Welcome {  // down: the Join was received, by this one; from now on, the end of the connection is a loss
  Member by;
};
struct Refuse {  // down: this process is not let in, or with rank -1: the whole job is not
  int rank = -1;
  int64_t pid = 0;
  Refusal refusal;
};
struct Parent {  // root -> node: connect to this one, and stay there
  int rank = 0;
  std::string address;
};
struct Attach {  // node -> its parent; or, with an accusation, from a node that has lost its parent to the root
  int rank = 0;
  std::optional<Accusation> lost;
};
struct Announce {  // down: everybody has joined
  std::shared_ptr<const Table> table;
};
struct Heartbeat {                          // both ways, on every connection of the tree
  std::chrono::milliseconds since_root{0};  // down: how long ago the sender knew the root to be alive
};
struct Set {  // from the rank that sets a key of the store, to all others
  std::string key, value;
};
struct Accuse {  // up: this rank is lost, says the sender; down: the job ends because of this, the same for all
  Accusation accusation;
};
struct Arrive {  // up: these ranks have come to the meeting
  std::string meeting;
  std::vector<int> ranks;
};
struct Met {  // down: all ranks have
  std::string meeting;
};
struct Ask {  // up: who is missing?
  std::string meeting;
};
struct Missing {  // down, to those who asked
  std::string meeting;
  std::vector<int> ranks;
};
struct Bye {};  // the end of the connection is no loss from now on

using Message =
    std::variant<Join, Welcome, Refuse, Parent, Attach, Announce, Heartbeat, Set, Accuse, Arrive, Met, Ask, Missing, Bye>;

// "a Join", "an Accuse": as errors name it.
std::string name_of(const Message& message);
const char* name_of(size_t kind);  // by its place in Message

}  // namespace trivet::comm::control
