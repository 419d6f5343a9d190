#include "comm/wire_messages.h"

#include <fmt/format.h>

#include <stdexcept>

namespace trivet::comm::control {
namespace {

constexpr size_t kLongestName = 255, kLongestId = 64, kLongestReason = 4096, kLongestKey = 1024, kLongestValue = 65536,
                 kLongestAddress = 300;
static_assert(std::variant_size_v<Message> == static_cast<size_t>(FrameKind::Bye));

bool is_job_id(const std::string& text) { return text.find_first_not_of("0123456789abcdef") == std::string::npos; }

std::string cut(const std::string& text) {
  return text.size() <= kLongestReason ? text : text.substr(0, kLongestReason - 3) + "...";
}

// Checks whether a failed rank may exit with `code`. Others would be read as success, or as something unknown.
bool is_failure(int64_t code) {
  if (code < 0 || code > 255) return false;
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::Done: return false;
    case ExitCode::Usage:
    case ExitCode::PeerLost:
    case ExitCode::NoProgress:
    case ExitCode::RanksDisagree:
    case ExitCode::Rendezvous:
    case ExitCode::CheckpointNotWritten:
    case ExitCode::CheckpointCorrupt:
    case ExitCode::Numerics:
    case ExitCode::DataChanged:
    case ExitCode::OutOfMemory:
    case ExitCode::VersionSkew:
    case ExitCode::Storage:
    case ExitCode::Device:
    case ExitCode::Internal: return true;
  }
  return false;
}

ExitCode read_failure(PayloadReader& in) {
  const int64_t code = in.number("exit code", INT64_MIN, INT64_MAX);
  if (!is_failure(code))
    in.refuse(fmt::format("with exit code {}, which is not a failure code of a rank (docs/exit_codes.md)", code));
  return static_cast<ExitCode>(code);
}

int read_rank(PayloadReader& in, int ranks, int least = 0) { return static_cast<int>(in.number("rank", least, ranks - 1)); }

void write(PayloadWriter& out, const Member& member) {
  out.number(member.rank).number(member.world_size).text(member.job_id).number(member.epoch);
  out.text(member.build).text(member.host).text(member.boot_id).number(member.pid).number(member.started);
}

void read_process(PayloadReader& in, Member& member) {
  member.host = in.text("host", kLongestName);
  member.boot_id = in.text("boot id", kLongestId);
  member.pid = in.number("pid", 1, INT32_MAX);
  member.started = in.number("start time", 0, INT64_MAX);
}

Member read_member(PayloadReader& in) {
  Member member;
  member.rank = read_rank(in, kMaxRanks);
  member.world_size = static_cast<int>(in.number("world size", 1, kMaxRanks));
  member.job_id = in.text("job id", kLongestId);
  member.epoch = in.number("epoch", 0, INT64_MAX);
  member.build = in.text("build", kLongestId);
  read_process(in, member);
  if (!is_job_id(member.job_id)) in.refuse("whose job id is not hexadecimal");
  return member;
}

void write(PayloadWriter& out, const Accusation& accusation) {
  out.number(accusation.world_rank).number(static_cast<int>(accusation.code)).text(cut(accusation.cause));
}

Accusation read_accusation(PayloadReader& in, int ranks) {
  Accusation accusation;
  accusation.world_rank = read_rank(in, ranks);
  accusation.code = read_failure(in);
  accusation.cause = in.text("cause", kLongestReason);
  return accusation;
}

void write(PayloadWriter& out, const std::vector<int>& ranks) {
  out.number(static_cast<int64_t>(ranks.size()));
  for (int rank : ranks) out.number(rank);
}

std::vector<int> read_ranks(PayloadReader& in, int world_size) {
  std::vector<int> ranks;
  for (int64_t count = in.number("number of ranks", 0, world_size); count > 0; --count)
    ranks.push_back(read_rank(in, world_size));
  return ranks;
}

// One overload for each message writes its payload, in the order in which read_...() reads it.
void write(PayloadWriter& out, const Join& join) {
  out.number(static_cast<int64_t>(join.seats.size()));
  for (const Seat& seat : join.seats) {
    write(out, seat.member);
    out.number(seat.node).text(seat.address);
  }
}

Join read_join(PayloadReader& in) {
  Join join;
  for (int64_t count = in.number("number of ranks", 1, kMostSeats); count > 0; --count) {
    Seat& seat = join.seats.emplace_back();
    seat.member = read_member(in);
    seat.node = static_cast<int>(in.number("node", -1, kMaxRanks - 1));
    seat.address = in.text("address", kLongestAddress);
  }
  return join;
}

void write(PayloadWriter& out, const Welcome& welcome) { write(out, welcome.by); }

void write(PayloadWriter& out, const Refuse& refuse) {
  out.number(refuse.rank).number(refuse.pid).number(static_cast<int>(refuse.refusal.code)).text(cut(refuse.refusal.reason));
}

Refuse read_refuse(PayloadReader& in) {
  Refuse refuse;
  refuse.rank = read_rank(in, kMaxRanks, -1);
  refuse.pid = in.number("pid", 0, INT32_MAX);
  refuse.refusal.code = read_failure(in);
  refuse.refusal.reason = in.text("reason", kLongestReason);
  return refuse;
}

void write(PayloadWriter& out, const Parent& parent) { out.number(parent.rank).text(parent.address); }

void write(PayloadWriter& out, const Attach& attach) {
  out.number(attach.rank).number(attach.lost ? 1 : 0);
  if (attach.lost) write(out, *attach.lost);
}

Attach read_attach(PayloadReader& in, int world_size) {
  Attach attach{.rank = read_rank(in, world_size), .lost = std::nullopt};
  if (in.number("number of accusations", 0, 1) == 1) attach.lost = read_accusation(in, world_size);
  return attach;
}

// Writes data that all members share only once.
void write(PayloadWriter& out, const Announce& announce) {
  const Table& table = *announce.table;
  const Member& zero = table.seats.at(0).member;
  out.text(table.job_id).number(zero.epoch).text(zero.build);
  out.number(table.tree.fan_out()).number(static_cast<int64_t>(table.seats.size()));
  for (const Seat& seat : table.seats) {
    out.text(seat.member.host).text(seat.member.boot_id).number(seat.member.pid).number(seat.member.started);
    out.number(seat.node).text(seat.address);
  }
}

void check_nodes(const PayloadReader& in, const std::vector<Seat>& seats) {
  for (const Seat& seat : seats) {
    if (seats[seat.node].node == seat.node && (seat.member.rank != 0 || seat.node == 0)) continue;
    in.refuse(fmt::format("in which rank {} is below rank {}, which is not the node of its host", seat.member.rank, seat.node));
  }
}

Announce read_announce(PayloadReader& in) {
  auto table = std::make_shared<Table>();
  Member common;
  common.job_id = table->job_id = in.text("job id", kLongestId);
  if (table->job_id.empty() || !is_job_id(table->job_id)) in.refuse("whose job id is not hexadecimal");
  common.epoch = in.number("epoch", 0, INT64_MAX);
  common.build = in.text("build", kLongestId);
  const auto fan_out = static_cast<int>(in.number("fan-out", 1, kMaxRanks));
  common.world_size = static_cast<int>(in.number("number of ranks", 2, kMaxRanks));
  std::vector<int> node_of;
  for (common.rank = 0; common.rank < common.world_size; ++common.rank) {
    Seat seat{.member = common, .node = -1, .address = {}};
    read_process(in, seat.member);
    seat.node = static_cast<int>(in.number("node", 0, common.world_size - 1));
    seat.address = in.text("address", kLongestAddress);
    node_of.push_back(seat.node);
    table->seats.push_back(std::move(seat));
  }
  check_nodes(in, table->seats);
  table->tree = Tree(node_of, fan_out);
  return {std::move(table)};
}

void write(PayloadWriter& out, const Heartbeat& heartbeat) { out.number(heartbeat.since_root.count()); }

void write(PayloadWriter& out, const Set& set) {
  if (set.key.size() > kLongestKey || set.value.size() > kLongestValue)
    throw std::logic_error(fmt::format("comm: the store's key \"{}\" or its value is too long", cut(set.key)));
  out.text(set.key).text(set.value);
}

void write(PayloadWriter& out, const Accuse& accuse) { write(out, accuse.accusation); }

void write(PayloadWriter& out, const Arrive& arrive) {
  out.text(arrive.meeting);
  write(out, arrive.ranks);
}

void write(PayloadWriter& out, const Missing& missing) {
  out.text(missing.meeting);
  write(out, missing.ranks);
}

void write(PayloadWriter& out, const Met& met) { out.text(met.meeting); }
void write(PayloadWriter& out, const Ask& ask) { out.text(ask.meeting); }
void write(PayloadWriter&, const Bye&) {}

std::string read_meeting(PayloadReader& in) { return in.text("meeting", kLongestKey); }

Message read_message(PayloadReader& in, FrameKind kind, int world_size) {
  switch (kind) {
    case FrameKind::Join: return read_join(in);
    case FrameKind::Welcome: return Welcome{read_member(in)};
    case FrameKind::Refuse: return read_refuse(in);
    case FrameKind::Parent: {
      const int rank = read_rank(in, world_size);
      return Parent{rank, in.text("address", kLongestAddress)};
    }
    case FrameKind::Attach: return read_attach(in, world_size);
    case FrameKind::Announce: return read_announce(in);
    case FrameKind::Heartbeat: return Heartbeat{std::chrono::milliseconds(in.number("time", 0, INT32_MAX))};
    case FrameKind::Set: {
      std::string key = in.text("key", kLongestKey);
      return Set{std::move(key), in.text("value", kLongestValue)};
    }
    case FrameKind::Accuse: return Accuse{read_accusation(in, world_size)};
    case FrameKind::Arrive: {
      std::string meeting = read_meeting(in);
      return Arrive{std::move(meeting), read_ranks(in, world_size)};
    }
    case FrameKind::Met: return Met{read_meeting(in)};
    case FrameKind::Ask: return Ask{read_meeting(in)};
    case FrameKind::Missing: {
      std::string meeting = read_meeting(in);
      return Missing{std::move(meeting), read_ranks(in, world_size)};
    }
    case FrameKind::Bye: return Bye{};
  }
  throw std::logic_error("comm: a frame of no kind was read");
}

}  // namespace

Frame encode(const Message& message) {
  PayloadWriter out;
  std::visit([&](const auto& content) { write(out, content); }, message);
  return {static_cast<FrameKind>(message.index() + 1), out.take()};
}

Message decode(const Frame& frame, int world_size) {
  PayloadReader in(frame.payload, name_of(static_cast<size_t>(frame.kind) - 1));
  Message message = read_message(in, frame.kind, world_size);
  in.finish();
  return message;
}

}  // namespace trivet::comm::control
