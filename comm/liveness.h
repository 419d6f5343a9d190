// Detects which ranks of a job are alive. Every rank has a Liveness with its own thread, so that it sees a death while it
// computes.
//
//        rank 1   rank 2          The connections are those of the rendezvous: a star around rank 0. Rank 0 sees who dies (end
//            \     /              of the connection: at once) or falls silent (no heartbeat: at the deadline) and tells the
//            rank 0               others, so that there is one order of events and all name the same first culprit. The others
//            /     \ .            watch rank 0 in the same way. Nobody else can tell them anything, so if rank 3 leaves because
//        rank 3   rank 4          rank 2 died, rank 2 was named before.
//
// At every heartbeat, a rank looks in /proc (process_state.h) for peers on its host that were stopped. That is evidence, so
// half a second is enough. Silence alone could come from a rank that gets no processor time, so its deadline is longer.
//
// Liveness reports what it finds to the JobState, which every waiting operation checks, and tells all ranks about accusations
// that others put there (a deadline, an abort). All reading and writing happens on its thread. close() is the regular end: all
// ranks meet and send Bye, and from then on the end of a connection is not a loss. If a rank destroys its Liveness without
// close(), the others consider it lost.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/job_state.h"
#include "comm/rendezvous.h"
#include "comm/stopped_for_long.h"
#include "comm/store.h"

namespace trivet::comm {

struct LivenessOptions {
  std::chrono::milliseconds beat{100};
  std::chrono::milliseconds silence{5000};
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
  struct Peer {
    int rank = 0;
    Connection connection;
    TimePoint last_heard;
    bool said_bye = false;
    StoppedForLong stopped = {};
  };
  class Wake;

  void run();
  void wait_for_news(TimePoint until);
  void forgive_own_lateness(TimePoint planned, TimePoint now);
  void read(Peer& peer, TimePoint now);
  void handle(Peer& peer, const Frame& frame);
  void lose(const Peer& peer, const std::string& cause);
  void turn_away_latecomers();
  void send_to_others(const Frame& frame, const Peer* except);
  void announce_accusation();
  void beat(TimePoint now);
  void look_for_silence(TimePoint now);
  void look_for_stopped(TimePoint now);
  void read_last_words(Peer& peer, TimePoint deadline);
  void call_on_lost(TimePoint now);
  void finish();
  void post(Frame frame);
  void take_outbox();
  void stop();

  const int rank_;
  const LivenessOptions options_;
  const std::vector<Member> members_;
  std::shared_ptr<JobState> job_;
  std::unique_ptr<Admission> admission_;
  std::vector<Peer> peers_;  // on rank 0: all other ranks; on the others: rank 0
  std::shared_ptr<Wake> wake_;
  Store store_;

  std::mutex outbox_mutex_;
  std::vector<Frame> outbox_;
  std::atomic<bool> stopping_{false}, closing_{false}, told_{false}, left_{false};
  TimePoint next_beat_, accused_at_;
  bool announced_ = false, noticed_ = false;
  std::thread thread_;
};

// "lost rank 3 (host a, pid 4711) during all_reduce: eof"; `during` may be empty.
std::string lost_message(const Accusation& accusation, const std::string& during);

}  // namespace trivet::comm
