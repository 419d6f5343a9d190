// Brings the processes of a job together: they join the tree of the control plane (control/node.h), and continue when the
// last one has joined. Rank 0 is the root.
//
//   up to kStarRanks ranks   every rank joins at the root: the tree is a star, and nobody else listens
//   more ranks               local rank 0 of every host is the host's node. It listens for other hosts at a port of its
//                            own, and for the ranks of its host at a name that needs no port. A rank that does not know
//                            its place on its host, or finds no node of this job there, joins at the root
//
// A joiner whose connection ends before it is welcome tries again until its deadline: nodes drop the oldest visitors when too
// many come at once. The connections stay open for Liveness, which takes over the Driver, so there is no moment in which a
// death goes unseen. A rank that is stopped before it joins ends the rendezvous for all.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/control/driver.h"
#include "comm/stopped_ranks.h"

namespace trivet::comm {

// So many ranks send the root at most 1,000 heartbeats a second.
constexpr int kStarRanks = 100;

struct RendezvousOptions {
  Member self;
  std::string address = "127.0.0.1";
  int port = 0;
  Descriptor listener;  // rank 0's, when a launcher has reserved it
  Secret secret;
  struct Host {
    int local_rank = 0, local_size = 1;
  };
  std::optional<Host> host;       // this rank's place on its host, if it is known
  std::string network_interface;  // where a node listens for other hosts (network_interface.h)
  int star_ranks = kStarRanks, fan_out = control::Tree::kFanOut;
  std::chrono::milliseconds beat{100}, silence{5000};  // while the job runs
  std::chrono::milliseconds join_deadline{30000};
  std::chrono::milliseconds node_deadline{5000};   // search for the node of its host; then a rank joins at the root
  std::chrono::milliseconds progress_every{5000};  // interval at which rank 0 logs who is missing
  // May be empty. Returns the ranks of this job on this host that were stopped; called repeatedly while ranks are missing.
  std::function<std::vector<StoppedRank>()> find_stopped;
};

struct Joined {
  std::vector<Member> members;  // by rank
  std::string job_id;
  std::unique_ptr<control::Driver> driver;  // runs this rank's node
};

// The name at which the ranks of a host find its node. All of them compute it from what they were started with.
std::string name_of_node(const RendezvousOptions& options);

// Throws CommError (Rendezvous or VersionSkew).
Joined rendezvous(RendezvousOptions options);

}  // namespace trivet::comm
