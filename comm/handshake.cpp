#include "comm/handshake.h"

#include <fmt/format.h>
#include <sodium.h>
#include <sys/socket.h>

#include <algorithm>
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

// Compares in a time that does not depend on where they differ. Both have kProofBytes.
bool proves(std::string_view proof, const std::string& expected) {
  return ::sodium_memcmp(proof.data(), expected.data(), kProofBytes) == 0;
}

// A few bytes into an empty send buffer never block.
void send_few(const Descriptor& connection, std::string_view bytes) {
  [[maybe_unused]] const ssize_t sent = ::send(connection.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// Reads until `out` has so many bytes. False if they have not all arrived; `ended` says whether they never will.
bool receive_up_to(const Descriptor& connection, size_t bytes, std::string& out, bool& ended) {
  while (out.size() < bytes) {
    char buffer[kKeyBytes + kProofBytes];
    const ssize_t got = ::recv(connection.number(), buffer, std::min(sizeof buffer, bytes - out.size()), MSG_DONTWAIT);
    if (got > 0) {
      out.append(buffer, got);
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      ended = true;
      return false;
    } else if (errno == EAGAIN) {
      return false;
    }
  }
  return true;
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

std::string hidden_name(const Secret& secret, std::string_view text) {
  return hexadecimal(proof_of("name", text, {}, secret)).substr(0, 32);
}

Prover::State Prover::step(const Descriptor& connection, const Secret& secret) {
  if (hello_.empty()) {
    own_ = std::make_unique<KeyPair>();
    hello_ = fmt::format("{}{}", kGreeting, own_->public_key());
    send_few(connection, hello_);
  }
  bool ended = false;
  if (!receive_up_to(connection, kKeyBytes + kProofBytes, answer_, ended)) return ended ? State::SentAway : State::Waiting;
  const std::string_view theirs = std::string_view(answer_).substr(0, kKeyBytes);
  keys_ = own_->keys_of_joiner(theirs);
  if (!keys_ || !proves(std::string_view(answer_).substr(kKeyBytes), proof_of("rank 0", hello_, theirs, secret)))
    return State::Refused;
  send_few(connection, proof_of("joiner", theirs, hello_, secret));
  return State::Proven;
}

Doorkeeper::State Doorkeeper::refuse(std::string why) {
  why_ = std::move(why);
  return State::Refused;
}

Doorkeeper::State Doorkeeper::step(const Descriptor& connection, const Secret& secret, TimePoint now) {
  if (hello_.empty() && receive_up_to(connection, kHelloBytes, received_, ended_)) {
    if (!received_.starts_with(kGreeting)) return refuse("does not speak this protocol");
    hello_ = std::exchange(received_, {});
    own_ = std::make_unique<KeyPair>();
    keys_ = own_->keys_of_rank_zero(std::string_view(hello_).substr(kGreeting.size()));
    if (!keys_) return refuse("sent a public key that is not valid");
    send_few(connection, std::string(own_->public_key()) + proof_of("rank 0", hello_, own_->public_key(), secret));
  }
  if (!hello_.empty() && receive_up_to(connection, kProofBytes, received_, ended_)) {
    if (proves(received_, proof_of("joiner", own_->public_key(), hello_, secret))) return State::Proven;
    return refuse("failed the key proof");
  }
  if (ended_) return refuse("left before the key proof");
  if (now >= deadline_) return refuse("gave no key proof in 2 s");
  return State::Waiting;
}

}  // namespace trivet::comm
