// The messages that frames carry, as types. Each has an encode_ and a decode_ function; decoding is pure.
//
// Input from a peer is not trusted, even if the peer knows the secret: every length, count, rank and exit code is checked here,
// before anything acts on it. Bad input throws a CommError (Rendezvous) whose text begins with "sent"; the caller knows the
// sender.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "comm/frame.h"
#include "comm/job_state.h"
#include "comm/member.h"

namespace trivet::comm {

// Says that all ranks have joined.
struct Table {
  std::string job_id;
  std::vector<Member> members;  // by rank
};

struct StoreEntry {
  std::string key, value;
};

// The name of a message in errors: "a Join", "an Accuse".
std::string to_string(FrameKind kind);

Frame encode_join(const Member& member);
Frame encode_welcome(const Member& rank_zero);
Frame encode_table(const Table& table);
Frame encode_refuse(const Refusal& refusal);  // a long reason is cut
Frame encode_set(const StoreEntry& entry);
Frame encode_accuse(const Accusation& accusation);  // a long cause is cut; the host is not sent

Member decode_join(std::string_view payload);
Member decode_welcome(std::string_view payload);
// Members are in rank order, and all have the same size, epoch and build.
Table decode_table(std::string_view payload);
// The code is that of a failure, never 0.
Refusal decode_refuse(std::string_view payload);
StoreEntry decode_set(std::string_view payload);
// The code is that of a failure, and the rank is in the world. The host is left empty.
Accusation decode_accuse(std::string_view payload, int world_size);

}  // namespace trivet::comm
