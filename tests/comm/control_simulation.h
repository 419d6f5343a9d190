// A job's control plane in virtual time: the nodes of comm/control, the network between them, and what goes wrong with both.
//
// Each rank is a process that does one thing at a time, and every thing takes it a while (Costs). It joins, comes to a meeting,
// works, comes to another one, and so on until the last. A process that has heard why the job ends leaves a little later, as a
// program does. Everything is a function of the seed.
//
// Connections keep the order of messages. What a process has sent before its end still arrives; what a host has sent before it
// vanishes may not.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "comm/control/node.h"

namespace trivet::comm::control {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// What things take. A handshake is two scalar multiplications on X25519 and some hashes.
struct Costs {
  microseconds handshake{200}, message{5}, on_host{30}, between_hosts{100};
  double bytes_per_second = 1.25e9;  // out of a host
};

struct World {
  int hosts = 1, ranks_per_host = 1;
  NodeOptions options;  // fan-out, deadlines
  Costs costs;
  milliseconds start_within{500};  // processes start at random times
  int meetings = 2;                // before the last one
  bool with_store = false;         // every rank sets a key before each meeting, and all must know all keys after it
  milliseconds work{300};          // at most, before each meeting
  int ranks() const { return hosts * ranks_per_host; }
};

class Simulation {
 public:
  enum class State { NotStarted, Runs, Stopped, Ended, Vanished };
  struct Process {
    std::unique_ptr<Node> node;
    State state = State::NotStarted;
    TimePoint started, joined, told, left;
    std::optional<Refusal> refusal;  // it did not join
    std::optional<Accusation> verdict;
    bool closed = false;                      // has left in order
    int meetings = 0;                         // that it has come to
    int keys = 0;                             // of the store, that others have set
    std::optional<std::vector<int>> missing;  // the answer to ask()
  };

  Simulation(World world, uint64_t seed);

  // Before or during run(): `what` happens at this time after the beginning.
  void at(nanoseconds after, std::function<void()> what);
  void run(nanoseconds until);

  void kill(int rank);   // its connections end
  void stop(int rank);   // it does nothing, and its connections stay open
  void go_on(int rank);  // after stop()
  void never_start(int rank) { never_.insert(rank); }
  void never_come(int rank) { absent_.insert(rank); }  // to a meeting
  void ask(int rank);                                  // who is missing at the first meeting
  void vanish(int host);                               // with all its ranks; nobody is told
  // These hosts and the others cannot reach each other any more.
  void cut_off(const std::set<int>& hosts) { cut_off_ = hosts; }
  void accuse(int rank, const Accusation& accusation);
  // From now on, with these probabilities: a message between hosts is late, nothing answers a connection between hosts, and a
  // joiner's connection is ended before its Join is read (as a host does with the oldest visitors during a flood).
  struct Trouble {
    double late = 0, lost = 0, sent_away = 0;
    milliseconds delay{0};  // at most
  };
  void disturb(const Trouble& trouble) { trouble_ = trouble; }

  const Process& process(int rank) const { return processes_[rank]; }
  int ranks() const { return static_cast<int>(processes_.size()); }
  int ranks_per_host() const { return world_.ranks_per_host; }
  int host_of(int rank) const { return rank / world_.ranks_per_host; }
  TimePoint now() const { return now_; }
  TimePoint start() const { return TimePoint{} + std::chrono::hours(1); }
  // The most heartbeats, and the most messages of any kind, that reached the root within a second of the clock after it joined.
  int most_heartbeats() const { return most_heartbeats_; }
  int most_messages() const { return most_messages_; }
  // What no run may show: a meeting that ended before all had come, for example.
  const std::vector<std::string>& broken_promises() const { return broken_; }
  int64_t events() const { return sequence_; }

 private:
  struct Wire {
    int caller = 0, callee = 0;
    enum class Stage { Calling, Open, Over } stage = Stage::Calling;
    Purpose purpose = Purpose::Join;
    TimePoint arrives[2];  // the last thing on its way to the caller, and to the callee
  };
  struct Thing {  // what happens to a process
    enum class Kind { Start, Tick, Accept, Connected, NotConnected, Received, Ended, Come, Leave, TimeOut, Outside } kind{};
    int process = -1, wire = -1;
    bool refused = false;
    Message message = Heartbeat{};
    std::function<void()> what;
  };
  struct Later {
    TimePoint when;
    int64_t number = 0;
    std::shared_ptr<Thing> thing;  // null: the process goes on with its inbox
    int process = -1;
    bool operator<(const Later& other) const { return std::tie(other.when, other.number) < std::tie(when, number); }
  };
  struct Inbox {
    std::deque<std::shared_ptr<Thing>> things;
    bool scheduled = false;
    int visitors = 0;  // whose connection is not accepted yet
    TimePoint free, link_free;
  };

  void schedule(TimePoint when, Thing thing);
  void deliver(std::shared_ptr<Thing> thing);
  void work(int process);
  void handle(int rank, const Thing& thing);
  void start(int rank);
  void do_actions(int rank);
  void call(int rank, const Actions::Call& call);
  void accept(int rank, int wire);
  void send(int rank, int wire, const Message& message);
  void end_wire(int rank, int wire);
  void end_process(int rank, State state);
  void happened(int rank, const Message& event);
  void come_to_next_meeting(int rank);
  std::string meeting(int number) const;
  bool reachable(int from, int to) const;
  nanoseconds latency(int from, int to);
  nanoseconds cost_of(const Thing& thing) const;
  int other_end(const Wire& wire, int rank) const { return wire.caller == rank ? wire.callee : wire.caller; }
  bool happens(double probability) { return probability > 0 && std::bernoulli_distribution(probability)(random_); }
  TimePoint& arrival(Wire& wire, int to) { return wire.arrives[wire.caller == to ? 0 : 1]; }
  void count(const Message& message);
  nanoseconds random(nanoseconds most);

  World world_;
  std::mt19937_64 random_;
  std::vector<Process> processes_;
  std::vector<Inbox> inboxes_;
  std::vector<Wire> wires_;
  std::vector<std::set<int>> wires_of_;
  std::priority_queue<Later> later_;
  int64_t sequence_ = 0;
  TimePoint now_;
  std::set<int> never_, absent_, cut_off_;
  Trouble trouble_;
  std::map<std::string, int> arrived_;
  int64_t second_ = 0;
  int heartbeats_ = 0, messages_ = 0, most_heartbeats_ = 0, most_messages_ = 0;
  std::vector<std::string> broken_;
};

}  // namespace trivet::comm::control
