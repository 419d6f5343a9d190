#include "comm/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "comm/process_state.h"
#include "comm/stopped_for_long.h"
#include "comm/wire_messages.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kTick{100};
// The other ranks wait this much longer than rank 0, so that rank 0 is the one to report which ranks are missing.
constexpr milliseconds kLonger{3000};

double seconds(milliseconds time) { return static_cast<double>(time.count()) / 1000; }

// Looks for ranks that were stopped before they joined, and throws if one of the awaited ranks was stopped for long.
class StoppedWatch {
 public:
  explicit StoppedWatch(const RendezvousOptions& options) : options_(options) {}

  void look(const std::vector<int>& awaited) {
    const TimePoint now = steady_clock::now();
    if (!options_.find_stopped || now < next_look_) return;
    next_look_ = now + kLookEvery;
    std::map<int, int64_t> stopped;
    for (const StoppedRank& found : options_.find_stopped()) stopped[found.rank] = found.pid;
    for (int rank : awaited) {
      const auto found = stopped.find(rank);
      if (!stopped_for_long_[rank].look(found != stopped.end(), now)) continue;
      throw CommError(
          ExitCode::Rendezvous,
          fmt::format("rank {} (pid {}) was stopped (SIGSTOP or Ctrl-Z) before it joined; continue it with kill -CONT "
                      "{}, or end it, and start the job again",
                      rank, found->second, found->second));
    }
  }

 private:
  static constexpr milliseconds kLookEvery{200};
  const RendezvousOptions& options_;
  std::map<int, StoppedForLong> stopped_for_long_;
  TimePoint next_look_ = steady_clock::now() + kLookEvery;  // most jobs are complete by then
};

// Rank 0's side of the rendezvous.
class Gathering {
 public:
  explicit Gathering(RendezvousOptions& options)
      : options_(options), held_(options.self.world_size), connections_(held_.size()), log_(0) {
    if (options.self.job_id.empty()) options.self.job_id = hexadecimal(random_bytes(8));
    held_[0] = options.self;
    Descriptor listener = std::move(options.listener);
    if (!listener) {
      wait_for_name(options.address, {steady_clock::now() + options.join_deadline});
      listener = listen_on(options.address, options.port);
    }
    admission_ = std::make_unique<Admission>(std::move(listener), options.secret, log_);
  }

  Joined wait_for_all() {
    const TimePoint start = steady_clock::now(), deadline = start + options_.join_deadline;
    TimePoint report = start + options_.progress_every;
    StoppedWatch stopped(options_);
    while (!missing().empty()) {
      wait_for_news();
      for (auto& request : admission_->step()) consider(request);
      check_those_that_joined();
      try {
        stopped.look(missing());
      } catch (const CommError& error) {
        fail({error.exit_code(), error.what()});
      }
      const TimePoint now = steady_clock::now();
      if (now >= deadline) fail({ExitCode::Rendezvous, missing_text(options_.join_deadline)});
      if (now >= report) {
        report += options_.progress_every;
        log_.info(fmt::format("rendezvous: {}, waiting up to {} s",
                              missing_text(std::chrono::duration_cast<milliseconds>(now - start)),
                              seconds(options_.join_deadline)));
      }
    }
    return announce();
  }

 private:
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (size_t rank = 0; rank < held_.size(); ++rank) {
      if (!held_[rank]) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

  std::string missing_text(milliseconds after) const {
    return fmt::format("{} of {} ranks did not join in {:.3g} s: {}", missing().size(), held_.size(), seconds(after),
                       fmt::join(missing(), ","));
  }

  void wait_for_news() const {
    std::vector<pollfd> entries;
    admission_->add_to(entries);
    for (const Connection& connection : connections_) {
      if (connection) entries.push_back({connection.number(), POLLIN, 0});
    }
    ::poll(entries.data(), entries.size(), static_cast<int>(kTick.count()));
  }

  void consider(Admission::Request& request) {
    if (const auto refusal = refusal_of(request.member, held_)) {
      refuse(request.connection, *refusal);
      if (refusal->ends_the_job) fail(*refusal);
      log_.warning(fmt::format("rendezvous: pid {} was refused: {}", request.member.pid, refusal->reason));
      return;
    }
    const size_t rank = request.member.rank;
    held_[rank] = request.member;
    connections_[rank] = std::move(request.connection);
    connections_[rank].send(encode_welcome(*held_[0]));
    connections_[rank].flush();
  }

  // Ranks that have joined wait for the table and must neither send anything nor leave.
  void check_those_that_joined() {
    for (size_t rank = 1; rank < connections_.size(); ++rank) {
      if (!connections_[rank]) continue;
      const Connection::State state = connections_[rank].fill();
      std::string why = state != Connection::State::Open ? "left during the rendezvous" : "";
      try {
        if (const auto frame = connections_[rank].next())
          why = "sent " + to_string(frame->kind) + " before all ranks had joined";
      } catch (const CommError& error) {
        why = error.what();
      }
      if (why.empty()) continue;
      connections_[rank].reset();
      fail({ExitCode::Rendezvous, fmt::format("rank {} ({}) {}", rank, held_[rank]->where(), why)});
    }
  }

  [[noreturn]] void fail(const Refusal& refusal) {
    for (Connection& connection : connections_) {
      if (connection) refuse(connection, refusal);
    }
    throw CommError(refusal.code, "rendezvous: " + refusal.reason);
  }

  Joined announce() {
    Joined joined;
    for (const auto& member : held_) joined.members.push_back(*member);
    joined.job_id = options_.self.job_id;
    const Frame table = encode_table({joined.job_id, joined.members});
    for (Connection& connection : connections_) {
      if (!connection) continue;
      connection.send(table);
      connection.flush();
    }
    joined.connections = std::move(connections_);
    joined.admission = std::move(admission_);
    return joined;
  }

  RendezvousOptions& options_;
  std::vector<std::optional<Member>> held_;
  std::vector<Connection> connections_;
  Log log_;
  std::unique_ptr<Admission> admission_;
};

// Checks everything that rank 0 sends against what this rank knows.
void check_table(const Table& table, const Member& self, const std::string& who) {
  const auto refuse_table = [&](const std::string& why) {
    throw CommError(ExitCode::Rendezvous, fmt::format("{} sent a Table {}", who, why));
  };
  if (static_cast<int>(table.members.size()) != self.world_size)
    refuse_table(fmt::format("of {} members; this rank expects {}", table.members.size(), self.world_size));
  const Member& here = table.members[self.rank];
  if (here.pid != self.pid || here.host != self.host || here.epoch != self.epoch || here.build != self.build)
    refuse_table(fmt::format("in which this rank is {} instead of {}", here.where(), self.where()));
  if (!self.job_id.empty() && table.job_id != self.job_id) refuse_table("of a different job (TRIVET_JOB_ID differs)");
}

// Rank 0 has refused this rank, or the whole job, and given the reason.
class Refused : public CommError {
 public:
  using CommError::CommError;
};

// Returns the payload of rank 0's answer; throws if it is not of the expected kind.
const std::string& payload_of(const Frame& answer, FrameKind expected) {
  if (answer.kind == expected) return answer.payload;
  if (answer.kind != FrameKind::Refuse) {
    throw CommError(ExitCode::Rendezvous,
                    fmt::format("sent {} where {} or a Refuse is expected", to_string(answer.kind), to_string(expected)));
  }
  const Refusal refusal = decode_refuse(answer.payload);
  throw Refused(refusal.code, "rendezvous: " + escape_control(refusal.reason));
}

// Decodes what rank 0 has sent; errors name rank 0 as the sender.
template <typename Decode>
auto answer_of(const std::string& who, Decode decode) {
  try {
    return decode();
  } catch (const Refused&) {
    throw;
  } catch (const CommError& error) {
    throw CommError(error.exit_code(), who + " " + error.what());
  }
}

// The side of a rank other than 0.
class Joining {
 public:
  explicit Joining(const RendezvousOptions& options)
      : options_(options),
        stopped_(options),
        before_welcome_(steady_clock::now() + options.join_deadline, [this] { look_for_rank_zero(); }),
        before_table_(before_welcome_.deadline + kLonger, [this] { look_for_rank_zero(); }) {}

  Joined run() {
    milliseconds pause{10};
    for (int attempts = 1;; ++attempts) {
      if (auto joined = attempt()) return std::move(*joined);
      if (steady_clock::now() + pause >= before_welcome_.deadline) {
        throw CommError(ExitCode::Rendezvous,
                        fmt::format("rendezvous: {}:{} closed the connection before it answered, {} times in {} s; is it this "
                                    "job's rank 0, and is something flooding its port?",
                                    options_.address, options_.port, attempts, seconds(options_.join_deadline)));
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, milliseconds{200});
    }
  }

 private:
  // Returns nullopt if the connection was closed before rank 0 answered.
  std::optional<Joined> attempt() {
    Descriptor rank_zero = connect_to(options_.address, options_.port, before_welcome_);
    const std::string who = fmt::format("rendezvous: rank 0 at {}", peer_of(rank_zero));
    const auto keys = prove_to_rank_zero(rank_zero, options_.secret, before_table_);
    if (!keys) return std::nullopt;
    Connection connection(std::move(rank_zero), *keys);
    connection.send(encode_join(options_.self));
    flush_until(connection, before_table_.deadline);
    const auto answer = wait_for_frame(connection, before_table_, who);
    if (!answer) return std::nullopt;
    zero_ = answer_of(who, [&] { return decode_welcome(payload_of(*answer, FrameKind::Welcome)); });
    const auto table = wait_for_frame(connection, before_table_, who);
    if (!table) throw CommError(ExitCode::Rendezvous, fmt::format("{} ({}) closed the connection", who, zero_->where()));
    Table read = answer_of(who, [&] { return decode_table(payload_of(*table, FrameKind::Table)); });
    check_table(read, options_.self, who);
    Joined joined{std::move(read.members), std::move(read.job_id), {}, nullptr};
    joined.connections.push_back(std::move(connection));
    return joined;
  }

  void look_for_rank_zero() {
    if (!zero_) {
      try {
        return stopped_.look({0});
      } catch (const CommError& error) {
        throw CommError(error.exit_code(), std::string("rendezvous: ") + error.what());
      }
    }
    if (zero_stopped_.look(is_stopped(zero_->pid, zero_->started), steady_clock::now()))
      throw CommError(ExitCode::Rendezvous,
                      fmt::format("rendezvous: rank 0 ({}) was stopped (SIGSTOP or Ctrl-Z); continue it with kill -CONT {}, or "
                                  "end it, and start the job again",
                                  zero_->where(), zero_->pid));
  }

  const RendezvousOptions& options_;
  StoppedWatch stopped_;
  StoppedForLong zero_stopped_;
  std::optional<Member> zero_;
  const Patience before_welcome_, before_table_;
};

}  // namespace

Joined rendezvous(RendezvousOptions options) {
  if (options.secret.empty()) {
    throw ConfigError(
        fmt::format("MASTER_ADDR: {} is not this machine's loopback address, and there is no secret, so anybody could "
                    "join; set TRIVET_SECRET_FILE to a file of mode 600, or MASTER_ADDR to 127.0.0.1",
                    escape_control(options.address)));
  }
  if (options.self.rank == 0) return Gathering(options).wait_for_all();
  return Joining(options).run();
}

}  // namespace trivet::comm
