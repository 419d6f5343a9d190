// Detects which ranks of a job are alive. Every rank has a Liveness with its own thread, so that it sees a death while it
// computes. The thread drives the rank's node in the tree of the control plane (control/node.h), with the connections of the
// rendezvous. The node sees which of its neighbours dies (end of the connection: at once) or falls silent (no heartbeat: at the
// deadline). Rank 0 decides whom all ranks name, so if rank 3 leaves because rank 2 died, rank 2 was named before.
//
// At every heartbeat, a rank looks in /proc (process_state.h) for neighbours on its host that were stopped. That is evidence,
// so half a second is enough. Silence alone could come from a rank that gets no processor time, so its deadline is longer.
//
// Liveness reports what it finds to the JobState, which every waiting operation checks, and tells all ranks about accusations
// that others put there (a deadline, an abort). All reading and writing happens on its thread. close() is the regular end: all
// ranks meet and send Bye, and from then on the end of a connection is not a loss. If a rank destroys its Liveness without
// close(), the others consider it lost. The root of a tree with several levels stays for half a second after an accusation, for
// ranks that have lost the connection to it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/job_state.h"
#include "comm/rendezvous.h"
#include "comm/stopped_for_long.h"
#include "comm/store.h"

namespace trivet::comm {

struct LivenessOptions {
  std::chrono::milliseconds notice_grace{300};
  std::function<void(const Accusation&)> on_lost;  // see WorldOptions
};

class Liveness {
 public:
  Liveness(Joined joined, int rank, LivenessOptions options, std::shared_ptr<JobState> job);
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  Store& store() { return store_; }
  // Returns when all ranks have called it with this name. Throws CommError if a rank was lost, or NoProgress with the missing
  // ranks at the deadline.
  void meet(const std::string& name, std::chrono::milliseconds deadline);
  void close(std::chrono::milliseconds deadline);
  // Accuses, and returns when the others have been told, at most 200 ms later.
  void accuse(Accusation accusation) noexcept;
  const Member& member(int rank) const { return members_[rank]; }

 private:
  using Order = std::function<void(control::Node&, TimePoint now)>;
  class Wake;

  void run();
  void handle(const control::Message& event, TimePoint now);
  void learn(const control::Set& set, TimePoint now);
  void pass_on_accusation(TimePoint now);
  void look_for_stopped(TimePoint now);
  void call_on_lost(TimePoint now);
  TimePoint stays_until() const;
  void finish();
  void post(Order order);
  void take_orders(TimePoint now);
  void stop();
  std::vector<int> ask_who_is_missing(const std::string& name);
  [[noreturn]] void throw_missing(const std::string& name, std::chrono::milliseconds deadline);
  bool wait_until_met(const std::string& name, std::chrono::milliseconds time);

  const int rank_;
  const LivenessOptions options_;
  const std::vector<Member> members_;
  std::shared_ptr<JobState> job_;
  std::unique_ptr<control::Driver> driver_;
  std::map<int, StoppedForLong> stopped_;  // by rank
  std::shared_ptr<Wake> wake_;
  Store store_;

  std::mutex orders_mutex_;
  std::vector<Order> orders_;

  std::mutex meetings_mutex_;
  std::condition_variable meetings_changed_;
  std::set<std::string> met_;
  std::map<std::string, std::vector<int>> missing_;  // the answers to Ask
  bool over_ = false;                                // no meeting will end any more

  std::atomic<bool> stopping_{false}, closing_{false}, told_{false}, left_{false};
  TimePoint next_look_, accused_at_;
  bool announced_ = false, noticed_ = false;
  std::thread thread_;
};

// "lost rank 3 (host a, pid 4711) during all_reduce: eof"; `during` may be empty.
std::string lost_message(const Accusation& accusation, const std::string& during);

}  // namespace trivet::comm
