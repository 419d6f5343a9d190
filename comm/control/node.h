// One rank's part in the control plane: joining, heartbeats, blame, meetings, the store and the orderly end, as a state machine
// without sockets, threads and clocks. Whoever drives it tells it what happens and when, and does the actions that it returns.
//
//   driver --- accepted, connected, receive, ended, tick, accuse, arrive, set ... ---> Node
//   driver <-- take_actions(): send, call, end, and events for its own process ------- Node
//
// The ranks form a tree (tree.h). Every rank is a Node; the ranks of a host hang below one of them, because srun and mpirun
// start no agent that could be their parent. All messages go along the edges of the tree, except where said.
//
// Joining
//   rank ------- Join ----> its host's node: collects the ranks of its host
//   node ------- Join ----> root: checks every rank (member.h), waits for all
//   each <------ Welcome -- before it, an end of the connection is harmless and the rank tries again; after it, a loss
//   node <------ Parent --- root: everybody has joined. Only to nodes whose parent is not the root:
//   node ------- Attach --> its parent. When it has the table from there, it says Bye to the root, so that until then the root
//                           sees if it ends, and after that its parent does
//   each <------ Announce - its parent: the table of all ranks. The node is running
//   each <------ Refuse --- this rank is refused; or, at the join deadline, the missing ranks
//
// Blame. Every edge carries heartbeats in both directions. A node that loses a child, or whose process makes an accusation,
// sends Accuse up. The first accusation at the root wins; the root sends it down, and that alone is what ranks report (the
// event Accuse). So all survivors name the same culprit.
//   * A node that loses its parent appeals: it connects to the root and says whom it has lost; the root answers like a parent.
//     It also appeals when it has accused somebody and hears nothing for 300 ms.
//   * If the root refuses the connection or ends it, the root has left because of a verdict, and the node's own accusation is
//     final. If the root cannot be reached within 1.3 s, or is itself the lost parent, the culprit is rank 0.
//   * The silence deadline of a parent is a beat shorter for every level of depth below the first. So the children of a host
//     that vanishes appeal before the root decides and leaves.
//   * A node whose own tick is late extends its patience with others by as much. A node that was stopped and goes on finds in
//     its connections that it was accused, before it finds that they have ended.
//   * A process stays for half a second after a verdict if it is the root of a tree with more than one level, because others
//     may appeal to it. If the root dies together with another node, those below that node name it, and all others rank 0.
//
// Meetings are counted in the tree (meetings.h): a node tells its parent when everybody below it has come, and otherwise at
// every beat who has. The root answers Met, or to an Ask who is missing. After the meeting kLastMeeting all say Bye.
//
// The store: a key that a rank sets goes to all others, once over each edge.
//
// In a job, comm/control/driver.h drives it, over encrypted connections. In the tests, whole jobs run in virtual time
// (scripts/control_plane).
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/control/gathering.h"
#include "comm/control/meetings.h"
#include "comm/control/message.h"

namespace trivet::comm::control {

inline constexpr const char* kLastMeeting = "close";

using LinkId = int;  // a connection, as the driver numbers it

// The reason why a node connects to another one. It makes at most one call for each purpose at a time.
enum class Purpose { Join, Parent, Appeal };

struct Actions {
  struct Send {
    LinkId link = 0;
    Message message;
  };
  struct Call {
    Purpose purpose = Purpose::Join;
    std::string address;
  };
  std::vector<Send> sends;   // do these first
  std::vector<LinkId> ends;  // then end these connections; the node forgets them
  std::vector<Call> calls;
  // For its own process, in the words of the messages: Announce (joined), Refuse (it did not join), Accuse, Set, Met, Missing.
  std::vector<Message> events;
};

struct NodeOptions {
  // This node, with its own address if others may connect to it; `node` is then its own rank, otherwise -1.
  Seat self;
  // Where to join: at the node of its host, or at the root; the root has none. A rank that finds no node joins at the root.
  std::string entrance;
  std::string root;                               // where to appeal
  int ranks_here = 0;                             // on its host, with itself, if known: then their Join waits for all of them
  std::chrono::milliseconds node_deadline{5000};  // longest search of a rank for the node of its host
  int fan_out = Tree::kFanOut;
  std::chrono::milliseconds beat{100}, silence{5000}, join_deadline{30000};
};

class Node {
 public:
  Node(NodeOptions options, TimePoint now);

  // Connections, of proven peers only. The driver ends those that are accepted and then say nothing.
  void accepted(LinkId link, TimePoint now);
  void connected(Purpose purpose, LinkId link, TimePoint now);
  // `refused`: nobody listens there; otherwise nothing has answered.
  void not_connected(Purpose purpose, bool refused, TimePoint now);
  void receive(LinkId link, const Message& message, TimePoint now);
  void ended(LinkId link, const std::string& cause, TimePoint now);
  // The peer has sent something wrong, so nothing more from it is trusted. `why` follows its name: "sent ...".
  void reject(LinkId link, const CommError& why, TimePoint now);
  // Call it at next_tick().
  void tick(TimePoint now);
  TimePoint next_tick() const { return next_tick_; }

  // This rank's own process.
  void accuse(const Accusation& accusation, TimePoint now);
  // A rank that is connected to this one is lost, whatever its connection says: its process was stopped.
  void lose(int rank, const std::string& cause, TimePoint now);
  // While joining: this rank gives up, with all below it.
  void give_up(const Refusal& refusal) { end_rendezvous(refusal); }
  void arrive(const std::string& meeting, TimePoint now);
  void ask(const std::string& meeting);
  void set(const std::string& key, const std::string& value);
  void leave();

  bool running() const { return table_ != nullptr; }
  int rank() const { return options_.self.member.rank; }
  bool is_root() const { return rank() == 0; }
  const std::optional<Accusation>& verdict() const { return verdict_; }
  const Table& table() const { return *table_; }                                      // when it runs
  const Gathering* gathering() const { return gathering_ ? &*gathering_ : nullptr; }  // at the root
  const std::optional<Member>& welcome() const { return welcome_; }                   // elsewhere: who has received its Join
  bool has_way_in() const;                              // while joining: it is connected to who lets it in
  std::vector<int> neighbours() const;                  // ranks that are connected to it, when it runs
  TimePoint root_heard() const { return root_heard_; }  // when the root was known to be alive
  Actions take_actions() { return std::exchange(actions_, {}); }

 private:
  enum class Role {
    Visitor,   // has said nothing yet
    Entrance,  // where this node joins
    Parent,
    Below,   // a child, or what may become one
    Moving,  // at the root: a node that was told its parent and has not left yet
    Orphan,  // at the root: it has lost its parent
    Appeal,  // to the root: this node has lost its parent
  };
  struct Link {
    Role role = Role::Visitor;
    int rank = -1;
    int64_t pid = 0;
    bool attached = false, said_bye = false;
    TimePoint last_heard;
  };

  // Messages. node_join.cpp has those of the rendezvous, node.cpp the others.
  void on(LinkId id, Link& link, const Join& join, TimePoint now);
  void on(LinkId id, Link& link, const Welcome& welcome, TimePoint now);
  void on(LinkId id, Link& link, const Refuse& refuse, TimePoint now);
  void on(LinkId id, Link& link, const Parent& parent, TimePoint now);
  void on(LinkId id, Link& link, const Attach& attach, TimePoint now);
  void on(LinkId id, Link& link, const Announce& announce, TimePoint now);
  void on(LinkId id, Link& link, const Heartbeat& heartbeat, TimePoint now);
  void on(LinkId id, Link& link, const Set& set, TimePoint now);
  void on(LinkId id, Link& link, const Accuse& accuse, TimePoint now);
  void on(LinkId id, Link& link, const Arrive& arrive, TimePoint now);
  void on(LinkId id, Link& link, const Met& met, TimePoint now);
  void on(LinkId id, Link& link, const Ask& ask, TimePoint now);
  void on(LinkId id, Link& link, const Missing& missing, TimePoint now);
  void on(LinkId id, Link& link, const Bye& bye, TimePoint now);

  // Joining.
  void call(Purpose purpose, const std::string& address);
  void send_join(TimePoint now);
  std::optional<std::string> fault_of(const Link& link, const Join& join) const;
  void add_at_root(LinkId id, Link& link, const Join& join, TimePoint now);
  void refuse_latecomer(LinkId id, const Member& late);
  void announce(TimePoint now);
  void check(const Announce& announced) const;
  void run(std::shared_ptr<const Table> table, TimePoint now);
  bool is_child(const Link& link) const;
  void bring_up_to_date(LinkId id);
  void end_rendezvous(const Refusal& refusal);
  void ended_while_joining(const Link& link, const std::string& why);
  void reject_while_joining(const Link& link, const CommError& why);
  const std::string& way_in(TimePoint now) const;
  std::string name_of_entrance() const;
  void tick_while_joining(TimePoint now);

  // Running.
  void propose(const Accusation& accusation, TimePoint now);
  void appeal(const Accusation& accusation, TimePoint now);
  void decide(Accusation accusation);
  void lost(const Link& link, const std::string& cause, TimePoint now);
  void look_for_silence(TimePoint now);
  std::chrono::nanoseconds patience_with(const Link& link) const;
  void tell_arrivals(bool only_complete);
  void end_meeting(const std::string& meeting);
  bool apply(const std::string& key, const std::string& value);
  void reject(LinkId id, const std::string& why, TimePoint now) { reject(id, CommError(ExitCode::Rendezvous, why), now); }
  void require(bool holds, const Message& message) const;
  void require_rank(int rank, const Message& message) const;
  void require_few_meetings(const Message& message) const;

  void send(LinkId link, Message message) { actions_.sends.push_back({link, std::move(message)}); }
  void send_below(const Message& message, LinkId except = -1);
  void send_up(const Message& message);
  void drop(LinkId id);
  LinkId link_of(Role role) const;  // -1 if there is none

  const NodeOptions options_;
  Actions actions_;
  std::map<LinkId, Link> links_;
  TimePoint next_tick_;

  // While joining.
  std::optional<Gathering> gathering_;  // at the root
  std::vector<Seat> seats_;             // elsewhere: this host's, own first
  size_t seats_sent_ = 0;
  TimePoint started_, send_join_at_, call_again_at_[2];
  std::string joining_at_, parent_address_;
  int parent_rank_ = -1;
  std::optional<Member> welcome_;
  bool failed_ = false, found_entrance_ = false;
  std::set<Purpose> calling_;

  // While running.
  std::shared_ptr<const Table> table_;
  Meetings meetings_;
  std::map<std::string, std::set<LinkId>> askers_;  // kSelf for this process
  std::map<std::string, std::string> store_;
  size_t store_bytes_ = 0;
  std::optional<Accusation> proposed_, appealed_, verdict_;
  TimePoint proposed_at_, appealed_at_, root_heard_;
  bool last_meeting_over_ = false, left_ = false;
};

}  // namespace trivet::comm::control
