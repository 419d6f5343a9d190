#include "comm/wire_messages.h"

#include <fmt/format.h>

#include <stdexcept>

#include "core/log.h"

namespace trivet::comm {
namespace {

constexpr size_t kLongestName = 255, kLongestId = 64, kLongestReason = 4096, kLongestKey = 1024, kLongestValue = 65536;

bool is_job_id(const std::string& text) { return text.find_first_not_of("0123456789abcdef") == std::string::npos; }

void write(PayloadWriter& out, const Member& member) {
  out.number(member.rank).number(member.world_size).text(member.job_id).number(member.epoch);
  out.text(member.build).text(member.host).text(member.boot_id).number(member.pid).number(member.started);
}

Member read_member(PayloadReader& in) {
  Member member;
  member.rank = static_cast<int>(in.number("rank", 0, kMaxRanks - 1));
  member.world_size = static_cast<int>(in.number("world size", 1, kMaxRanks));
  member.job_id = in.text("job id", kLongestId);
  member.epoch = in.number("epoch", 0, INT64_MAX);
  member.build = in.text("build", kLongestId);
  member.host = in.text("host", kLongestName);
  member.boot_id = in.text("boot id", kLongestId);
  member.pid = in.number("pid", 1, INT32_MAX);
  member.started = in.number("start time", 0, INT64_MAX);
  if (!is_job_id(member.job_id)) in.refuse("whose job id is not hexadecimal");
  return member;
}

Frame member_frame(FrameKind kind, const Member& member) {
  PayloadWriter out;
  write(out, member);
  return {kind, out.take()};
}

Member decode_member(std::string_view payload, FrameKind kind) {
  PayloadReader in(payload, to_string(kind));
  Member member = read_member(in);
  in.finish();
  return member;
}

// Whether a failed rank may exit with `code`. Any other number would be read as success, or as something unknown.
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

std::string cut(const std::string& text) {
  return text.size() <= kLongestReason ? text : text.substr(0, kLongestReason - 3) + "...";
}

}  // namespace

std::string to_string(FrameKind kind) {
  switch (kind) {
    case FrameKind::Join: return "a Join";
    case FrameKind::Table: return "a Table";
    case FrameKind::Refuse: return "a Refuse";
    case FrameKind::Heartbeat: return "a Heartbeat";
    case FrameKind::Set: return "a Set";
    case FrameKind::Accuse: return "an Accuse";
    case FrameKind::Bye: return "a Bye";
    case FrameKind::Welcome: return "a Welcome";
  }
  return "an unknown message";
}

Frame encode_join(const Member& member) { return member_frame(FrameKind::Join, member); }
Frame encode_welcome(const Member& rank_zero) { return member_frame(FrameKind::Welcome, rank_zero); }

Frame encode_table(const Table& table) {
  PayloadWriter out;
  out.text(table.job_id).number(static_cast<int64_t>(table.members.size()));
  for (const Member& member : table.members) write(out, member);
  return {FrameKind::Table, out.take()};
}

Frame encode_refuse(const Refusal& refusal) {
  return {FrameKind::Refuse, PayloadWriter().number(static_cast<int>(refusal.code)).text(cut(refusal.reason)).take()};
}

Frame encode_set(const StoreEntry& entry) {
  if (entry.key.size() > kLongestKey || entry.value.size() > kLongestValue)
    throw std::logic_error(fmt::format("comm: the store's key \"{}\" or its value is too long", cut(entry.key)));
  return {FrameKind::Set, PayloadWriter().text(entry.key).text(entry.value).take()};
}

Frame encode_accuse(const Accusation& accusation) {
  PayloadWriter out;
  out.number(accusation.world_rank).number(static_cast<int>(accusation.code)).text(cut(accusation.cause));
  return {FrameKind::Accuse, out.take()};
}

Member decode_join(std::string_view payload) { return decode_member(payload, FrameKind::Join); }
Member decode_welcome(std::string_view payload) { return decode_member(payload, FrameKind::Welcome); }

Table decode_table(std::string_view payload) {
  PayloadReader in(payload, to_string(FrameKind::Table));
  Table table;
  table.job_id = in.text("job id", kLongestId);
  if (table.job_id.empty() || !is_job_id(table.job_id)) in.refuse("whose job id is not hexadecimal");
  const int64_t count = in.number("number of members", 2, kMaxRanks);
  for (int64_t rank = 0; rank < count; ++rank) {
    const Member &member = table.members.emplace_back(read_member(in)), &zero = table.members.front();
    if (member.rank != rank) in.refuse(fmt::format("with rank {} in the place of rank {}", member.rank, rank));
    if (member.world_size != count)
      in.refuse(fmt::format("of {} members in which rank {} says {}", count, rank, member.world_size));
    if (member.epoch != zero.epoch || member.build != zero.build)
      in.refuse(fmt::format("in which rank {} has a different epoch or build than rank 0", rank));
  }
  in.finish();
  return table;
}

Refusal decode_refuse(std::string_view payload) {
  PayloadReader in(payload, to_string(FrameKind::Refuse));
  Refusal refusal;
  refusal.code = read_failure(in);
  refusal.reason = in.text("reason", kLongestReason);
  in.finish();
  return refusal;
}

StoreEntry decode_set(std::string_view payload) {
  PayloadReader in(payload, to_string(FrameKind::Set));
  StoreEntry entry;
  entry.key = in.text("key", kLongestKey);
  entry.value = in.text("value", kLongestValue);
  in.finish();
  return entry;
}

Accusation decode_accuse(std::string_view payload, int world_size) {
  PayloadReader in(payload, to_string(FrameKind::Accuse));
  Accusation accusation;
  accusation.world_rank = static_cast<int>(in.number("rank", 0, world_size - 1));
  accusation.code = read_failure(in);
  accusation.cause = in.text("cause", kLongestReason);
  in.finish();
  return accusation;
}

}  // namespace trivet::comm
