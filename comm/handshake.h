// Mutual proof that both ends know the job's secret, before anything else is read.
//
//   joiner -> rank 0   "TRIVET1\n" | 24 random bytes                                   32 bytes
//   rank 0 -> joiner   32 random bytes | HMAC(secret, "rank 0" | hello | random)       64 bytes
//   joiner -> rank 0   HMAC(secret, "joiner" | random | hello)                         32 bytes
//
// Rank 0 reads at most 64 bytes from a stranger and gives it 2 seconds. A recorded conversation is useless later, because both
// sides add fresh random bytes. Traffic after the proof is neither encrypted nor authenticated: networks that others can write
// to need more.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "comm/secret.h"
#include "comm/socket.h"

namespace trivet::comm {

constexpr std::chrono::milliseconds kProofDeadline{2000};

// The joiner's side. Returns false if the other end closed the connection before it answered, as rank 0 does with the oldest
// visitor when too many come at once; try again then. Throws CommError (Rendezvous) if the other end does not know the secret
// or does not answer.
bool prove_to_rank_zero(const Descriptor& connection, const Secret& secret, const Patience& patience);

// Rank 0's side of one connection, driven by poll.
class Doorkeeper {
 public:
  enum class State { Waiting, Proven, Refused };
  explicit Doorkeeper(TimePoint deadline) : deadline_(deadline) {}
  // Reads what has arrived, at most what the handshake needs. After Refused, close the connection; why() gives the reason.
  State step(const Descriptor& connection, const Secret& secret, TimePoint now);
  const std::string& why() const { return why_; }

 private:
  State refuse(std::string why);
  bool receive(const Descriptor& connection, size_t bytes);

  TimePoint deadline_;
  std::string received_, hello_, random_, why_;
  bool ended_ = false;
};

}  // namespace trivet::comm
