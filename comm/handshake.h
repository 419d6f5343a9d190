// Mutual proof that both ends know the job's secret, before anything else is read.
//
//   joiner -> rank 0   hello:  "TRIVET2\n" | the joiner's public key                    40 bytes
//   rank 0 -> joiner   answer: rank 0's public key | HMAC(secret, "rank 0" | hello | rank 0's public key)   64 bytes
//   joiner -> rank 0   HMAC(secret, "joiner" | rank 0's public key | hello)             32 bytes
//
// Both key pairs are new for every connection (X25519). The keys that encrypt the rest of the connection (record_cipher.h) are
// derived from them by libsodium's crypto_kx, so a recorded connection cannot be replayed, nor be read by somebody who learns
// the secret later. HMAC is HMAC-SHA256. Any other node that takes visitors acts as rank 0 does here. It reads at most 72 bytes
// from a stranger and gives it 2 seconds.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "comm/record_cipher.h"
#include "comm/secret.h"
#include "comm/socket.h"

namespace trivet::comm {

constexpr std::chrono::milliseconds kProofDeadline{2000};

// A key pair of X25519 that one end of one connection uses. The secret key is overwritten when it is destroyed.
class KeyPair {
 public:
  KeyPair();
  ~KeyPair();
  KeyPair(const KeyPair&) = delete;
  KeyPair& operator=(const KeyPair&) = delete;
  std::string_view public_key() const { return {reinterpret_cast<const char*>(public_.data()), public_.size()}; }
  // Nullopt if the other public key is not valid.
  std::optional<SessionKeys> keys_of_joiner(std::string_view rank_zero) const;
  std::optional<SessionKeys> keys_of_rank_zero(std::string_view joiner) const;

 private:
  std::array<unsigned char, 32> public_{}, secret_{};
};

// A name for `text` that nobody can predict, and so occupy, who does not know the secret.
std::string hidden_name(const Secret& secret, std::string_view text);

// The joiner's side of one connection, driven by poll.
class Prover {
 public:
  // SentAway: the other end closed the connection before it answered, as happens to the oldest visitors when too many come at
  // once; try again then. Refused: it does not know the secret.
  enum class State { Waiting, Proven, SentAway, Refused };
  State step(const Descriptor& connection, const Secret& secret);
  const SessionKeys& keys() const { return *keys_; }  // after Proven

 private:
  std::string hello_, answer_;
  std::unique_ptr<KeyPair> own_;  // from the hello on
  std::optional<SessionKeys> keys_;
};

// The side of rank 0, or of another node that takes visitors: one connection, driven by poll.
class Doorkeeper {
 public:
  enum class State { Waiting, Proven, Refused };
  explicit Doorkeeper(TimePoint deadline) : deadline_(deadline) {}
  // Reads what has arrived, at most what the handshake needs. After Refused, close the connection; why() gives the reason.
  State step(const Descriptor& connection, const Secret& secret, TimePoint now);
  const std::string& why() const { return why_; }
  const SessionKeys& keys() const { return *keys_; }  // after Proven

 private:
  State refuse(std::string why);

  TimePoint deadline_;
  std::string received_, hello_, why_;
  std::unique_ptr<KeyPair> own_;  // from the hello on
  std::optional<SessionKeys> keys_;
  bool ended_ = false;
};

}  // namespace trivet::comm
