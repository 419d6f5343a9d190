#include "comm/handshake.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <string_view>

#include "comm/sha256.h"
#include "core/error.h"

namespace trivet::comm {
namespace {

constexpr std::string_view kGreeting = "TRIVET1\n";
constexpr size_t kHelloBytes = 32, kRandomBytes = 32, kProofBytes = 32;

Digest proof_of(std::string_view who, const std::string& first, const std::string& second, const Secret& secret) {
  return hmac_sha256(secret.key(), std::string(who) + first + second);
}

bool proves(std::string_view proof, const Digest& expected) {
  Digest given;
  std::copy(proof.begin(), proof.end(), given.begin());
  return equal_in_constant_time(given, expected);
}

// A few bytes into an empty send buffer never block.
void send_few(const Descriptor& connection, std::string_view bytes) {
  [[maybe_unused]] const ssize_t sent = ::send(connection.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// Returns nullopt if the connection ends first.
std::optional<std::string> receive_exactly(const Descriptor& connection, size_t bytes, const Patience& patience) {
  std::string out;
  while (out.size() < bytes) {
    if (!wait_readable(connection.number(), patience)) {
      throw CommError(
          ExitCode::Rendezvous,
          fmt::format("rendezvous: {} does not answer the key proof; is it this job's rank 0?", peer_of(connection)));
    }
    char buffer[kHelloBytes + kProofBytes];
    const ssize_t got = ::recv(connection.number(), buffer, bytes - out.size(), 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return std::nullopt;
    out.append(buffer, got);
  }
  return out;
}

}  // namespace

bool prove_to_rank_zero(const Descriptor& connection, const Secret& secret, const Patience& patience) {
  const std::string who = peer_of(connection);
  const std::string hello = std::string(kGreeting) + random_bytes(kHelloBytes - kGreeting.size());
  send_few(connection, hello);
  const auto answer = receive_exactly(connection, kRandomBytes + kProofBytes, patience);
  if (!answer) return false;
  const std::string random = answer->substr(0, kRandomBytes);
  if (!proves(std::string_view(*answer).substr(kRandomBytes), proof_of("rank 0", hello, random, secret))) {
    throw CommError(
        ExitCode::Rendezvous,
        fmt::format("rendezvous: {} failed the key proof: it does not know this job's secret, so it is not this "
                    "job's rank 0; give all ranks the same TRIVET_SECRET_FILE and a port that no other program uses",
                    who));
  }
  send_few(connection, bytes_of(proof_of("joiner", random, hello, secret)));
  return true;
}

Doorkeeper::State Doorkeeper::refuse(std::string why) {
  why_ = std::move(why);
  return State::Refused;
}

bool Doorkeeper::receive(const Descriptor& connection, size_t bytes) {
  while (received_.size() < bytes) {
    char buffer[kHelloBytes];
    const ssize_t got = ::recv(connection.number(), buffer, bytes - received_.size(), MSG_DONTWAIT);
    if (got > 0) {
      received_.append(buffer, got);
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      ended_ = true;
      return false;
    } else if (errno == EAGAIN) {
      return false;
    }
  }
  return true;
}

Doorkeeper::State Doorkeeper::step(const Descriptor& connection, const Secret& secret, TimePoint now) {
  if (hello_.empty() && receive(connection, kHelloBytes)) {
    if (!received_.starts_with(kGreeting)) return refuse("does not speak this protocol");
    hello_ = std::exchange(received_, {});
    random_ = random_bytes(kRandomBytes);
    send_few(connection, random_ + std::string(bytes_of(proof_of("rank 0", hello_, random_, secret))));
  }
  if (!hello_.empty() && receive(connection, kProofBytes)) {
    if (proves(received_, proof_of("joiner", random_, hello_, secret))) return State::Proven;
    return refuse("failed the key proof");
  }
  if (ended_) return refuse("left before the key proof");
  if (now >= deadline_) return refuse("gave no key proof in 2 s");
  return State::Waiting;
}

}  // namespace trivet::comm
