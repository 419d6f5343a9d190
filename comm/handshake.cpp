#include "comm/handshake.h"

#include <fmt/format.h>
#include <sodium.h>
#include <sys/socket.h>

#include <cerrno>
#include <string_view>

#include "core/error.h"

namespace trivet::comm {
namespace {

constexpr std::string_view kGreeting = "TRIVET2\n";
constexpr size_t kKeyBytes = crypto_kx_PUBLICKEYBYTES, kHelloBytes = 8 + kKeyBytes, kProofBytes = crypto_auth_hmacsha256_BYTES;

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

std::string proof_of(std::string_view who, std::string_view first, std::string_view second, const Secret& secret) {
  crypto_auth_hmacsha256_state state;
  ::crypto_auth_hmacsha256_init(&state, bytes_of(secret.key()), secret.key().size());
  for (const std::string_view part : {who, first, second}) ::crypto_auth_hmacsha256_update(&state, bytes_of(part), part.size());
  std::string proof(kProofBytes, '\0');
  ::crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(proof.data()));
  ::sodium_memzero(&state, sizeof state);
  return proof;
}

// In a time that does not depend on where they differ. Both have kProofBytes.
bool proves(std::string_view proof, const std::string& expected) {
  return ::sodium_memcmp(proof.data(), expected.data(), kProofBytes) == 0;
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
    char buffer[kKeyBytes + kProofBytes];
    const ssize_t got = ::recv(connection.number(), buffer, bytes - out.size(), 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return std::nullopt;
    out.append(buffer, got);
  }
  return out;
}

}  // namespace

KeyPair::KeyPair() {
  static_assert(sizeof public_ == kKeyBytes && sizeof secret_ == crypto_kx_SECRETKEYBYTES);
  if (::sodium_init() < 0) throw std::logic_error("libsodium does not start");
  ::crypto_kx_keypair(public_.data(), secret_.data());
}

KeyPair::~KeyPair() { ::sodium_memzero(secret_.data(), secret_.size()); }

std::optional<SessionKeys> KeyPair::keys_of_joiner(std::string_view rank_zero) const {
  SessionKeys keys;
  if (::crypto_kx_client_session_keys(keys.receive.data(), keys.send.data(), public_.data(), secret_.data(),
                                      bytes_of(rank_zero)) != 0)
    return std::nullopt;
  return keys;
}

std::optional<SessionKeys> KeyPair::keys_of_rank_zero(std::string_view joiner) const {
  SessionKeys keys;
  if (::crypto_kx_server_session_keys(keys.receive.data(), keys.send.data(), public_.data(), secret_.data(),
                                      bytes_of(joiner)) != 0)
    return std::nullopt;
  return keys;
}

std::optional<SessionKeys> prove_to_rank_zero(const Descriptor& connection, const Secret& secret, const Patience& patience) {
  const std::string who = peer_of(connection);
  const KeyPair own;
  const std::string hello = fmt::format("{}{}", kGreeting, own.public_key());
  send_few(connection, hello);
  const auto answer = receive_exactly(connection, kKeyBytes + kProofBytes, patience);
  if (!answer) return std::nullopt;
  const std::string_view theirs = std::string_view(*answer).substr(0, kKeyBytes);
  const auto keys = own.keys_of_joiner(theirs);
  if (!keys || !proves(std::string_view(*answer).substr(kKeyBytes), proof_of("rank 0", hello, theirs, secret))) {
    throw CommError(
        ExitCode::Rendezvous,
        fmt::format("rendezvous: {} failed the key proof: it does not know this job's secret, so it is not this "
                    "job's rank 0; give all ranks the same TRIVET_SECRET_FILE and a port that no other program uses",
                    who));
  }
  send_few(connection, proof_of("joiner", theirs, hello, secret));
  return keys;
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
    own_ = std::make_unique<KeyPair>();
    keys_ = own_->keys_of_rank_zero(std::string_view(hello_).substr(kGreeting.size()));
    if (!keys_) return refuse("sent a public key that is not valid");
    send_few(connection, std::string(own_->public_key()) + proof_of("rank 0", hello_, own_->public_key(), secret));
  }
  if (!hello_.empty() && receive(connection, kProofBytes)) {
    if (proves(received_, proof_of("joiner", own_->public_key(), hello_, secret))) return State::Proven;
    return refuse("failed the key proof");
  }
  if (ended_) return refuse("left before the key proof");
  if (now >= deadline_) return refuse("gave no key proof in 2 s");
  return State::Waiting;
}

}  // namespace trivet::comm
