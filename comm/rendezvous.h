// How the processes of a job find each other: all of them connect to rank 0, and continue when the last one has joined.
//
//   others: connect, prove, Join ------> rank 0: checks (member.h), waits for all
//                     Welcome <--------- join received: who rank 0 is
//                       Table <--------- everybody has joined: who they are, and the job's id
//                   or  Refuse <-------- this rank is refused; or, at the join deadline, the missing ranks
//
// A joiner whose connection ends before the Welcome tries again until its deadline: rank 0 drops the oldest visitors when too
// many come at once. The connections stay open for liveness to watch, so there is no moment in which a death goes unseen. A
// rank that is stopped before it joins ends the rendezvous for all.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/admission.h"
#include "comm/stopped_ranks.h"

namespace trivet::comm {

struct RendezvousOptions {
  Member self;
  std::string address = "127.0.0.1";
  int port = 0;
  Descriptor listener;  // rank 0's, when a launcher has reserved it
  Secret secret;
  std::chrono::milliseconds join_deadline{30000};
  std::chrono::milliseconds progress_every{5000};  // how often rank 0 logs who is missing
  // May be empty. Returns the ranks of this job on this host that were stopped; called repeatedly while ranks are missing.
  std::function<std::vector<StoppedRank>()> find_stopped;
};

struct Joined {
  std::vector<Member> members;  // by rank
  std::string job_id;
  std::vector<Connection> connections;   // rank 0: one per rank, its own is closed; others: connections[0] only
  std::unique_ptr<Admission> admission;  // rank 0: turns latecomers away
};

// Throws CommError (Rendezvous or VersionSkew).
Joined rendezvous(RendezvousOptions options);

}  // namespace trivet::comm
