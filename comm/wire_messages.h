// The messages that frames carry, as types. Each has an encode_ and a decode_ function; decoding is pure.
//
// What a peer sends is not trusted, even if it knows the secret: every length, count, rank and exit code is checked here,
// before anything acts on it. Whatever is wrong is CommError (Rendezvous) whose text begins with "sent": the caller knows who.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "comm/frame.h"
#include "comm/job_state.h"
#include "comm/member.h"

namespace trivet::comm {

// Everybody is here.
struct Table {
  std::string job_id;
  std::vector<Member> members;  // by rank
};

struct StoreEntry {
  std::string key, value;
};

// "a Join", "an Accuse": how errors call a message.
std::string name_of(FrameKind kind);

Frame encode_join(const Member& member);
Frame encode_welcome(const Member& rank_zero);
Frame encode_table(const Table& table);
Frame encode_refuse(const Refusal& refusal);  // a long reason is cut
Frame encode_set(const StoreEntry& entry);
Frame encode_accuse(const Accusation& accusation);  // a long cause is cut; the host is not sent

Member decode_join(std::string_view payload);
Member decode_welcome(std::string_view payload);
// Members are in the order of their ranks, and all say the same size, epoch, build and host.
Table decode_table(std::string_view payload);
// The code is one that a failure ends with, never 0.
Refusal decode_refuse(std::string_view payload);
StoreEntry decode_set(std::string_view payload);
// As decode_refuse; the rank is one of the world's. The host is left empty.
Accusation decode_accuse(std::string_view payload, int world_size);

}  // namespace trivet::comm
