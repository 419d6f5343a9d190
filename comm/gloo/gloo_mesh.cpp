#include "comm/gloo/gloo_mesh.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <sodium.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "comm/transport/transport_module.h"
#include "core/error.h"
#include "core/pipe_signal.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using SocketAddress = ::gloo::transport::tcp::Address;

constexpr milliseconds kGlooTimeout{2000};  // gloo waits five times as long for a connection
constexpr milliseconds kConnectFor{10000};
constexpr milliseconds kProveFor{10000};
constexpr uint64_t kRandomSlot = 0, kProofSlot = 1;
constexpr const char* kNoProof = "whoever is at the other end of its connection does not know this job's key";

uint16_t& port_in(sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(address).sin_port;
}

// "PORT.NUMBER": the number tells connections apart in versions of gloo in which they share a port.
std::string port_text(const std::vector<char>& bytes) {
  const SocketAddress address(bytes);
  sockaddr_storage storage = address.getSockaddr();
  return fmt::format(" {}.{}", ntohs(port_in(storage)), address.getSeq());
}

// The address for `rank` in what another rank has published: "10.0.0.7 PORT.NUMBER PORT.NUMBER ...".
std::optional<std::vector<char>> published_for(int rank, const std::string& text) {
  const size_t end_of_host = text.find(' ');
  const std::string host = text.substr(0, end_of_host);
  size_t at = end_of_host;
  for (int i = 0; i < rank && at != std::string::npos; ++i) at = text.find(' ', at + 1);
  if (at == std::string::npos) return std::nullopt;
  uint16_t port = 0;
  ssize_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [dot, bad_port] = std::from_chars(text.data() + at + 1, last, port);
  if (bad_port != std::errc() || dot == last || *dot != '.') return std::nullopt;
  if (std::from_chars(dot + 1, last, number).ec != std::errc()) return std::nullopt;
  sockaddr_storage storage{};
  auto& four = reinterpret_cast<sockaddr_in&>(storage);
  auto& six = reinterpret_cast<sockaddr_in6&>(storage);
  if (::inet_pton(AF_INET, host.c_str(), &four.sin_addr) == 1)
    storage.ss_family = AF_INET;
  else if (::inet_pton(AF_INET6, host.c_str(), &six.sin6_addr) == 1)
    storage.ss_family = AF_INET6;
  else
    return std::nullopt;
  port_in(storage) = htons(port);
  return SocketAddress(storage, number).bytes();
}

using Random = std::array<unsigned char, 32>;
using Proof = std::array<unsigned char, crypto_auth_hmacsha256_BYTES>;

struct End {
  int64_t rank = 0;
  Random random{};
};

Proof proof_of(const End& sender, const End& receiver, uint64_t key) {
  constexpr std::string_view kPurpose = "trivet gloo";
  Proof proof;
  crypto_auth_hmacsha256_state state;
  const auto add = [&](const void* bytes, size_t count) {
    ::crypto_auth_hmacsha256_update(&state, static_cast<const unsigned char*>(bytes), count);
  };
  ::crypto_auth_hmacsha256_init(&state, reinterpret_cast<const unsigned char*>(&key), sizeof key);
  add(kPurpose.data(), kPurpose.size());
  add(&sender.rank, sizeof sender.rank);
  add(&receiver.rank, sizeof receiver.rank);
  add(sender.random.data(), sender.random.size());
  add(receiver.random.data(), receiver.random.size());
  ::crypto_auth_hmacsha256_final(&state, proof.data());
  return proof;
}

// A message in each direction over a connection. It must be destroyed after the connection is closed, or when both are
// complete.
template <typename Bytes>
class Exchange {
 public:
  Exchange(GlooMesh& mesh, int peer, uint64_t slot, const Bytes& mine)
      : mine_(mine),
        out_(mesh.buffer(std::as_writable_bytes(std::span(mine_)))),
        in_(mesh.buffer(std::as_writable_bytes(std::span(theirs_)))) {
    in_->receive(mesh.connection(peer), slot);
    out_->send(mesh.connection(peer), slot);
  }
  const Bytes& mine() const { return mine_; }
  const Bytes& theirs() const { return theirs_; }
  // Returns what has gone wrong, or nothing.
  std::string finish(Clock::time_point until) {
    for (GlooBuffer* buffer : {in_.get(), out_.get()}) {
      const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
      const GlooBuffer::State state = buffer->wait(left);
      if (state == GlooBuffer::State::Failed) return fmt::format("{} ({})", kNoProof, buffer->why_failed());
      if (state != GlooBuffer::State::Complete)
        return fmt::format("{}, or says nothing for {} s", kNoProof, kProveFor.count() / 1000);
    }
    return "";
  }

 private:
  Bytes mine_, theirs_{};
  const std::unique_ptr<GlooBuffer> out_, in_;
};

// One end of the proof, with one other rank.
class Prover {
 public:
  Prover(GlooMesh& mesh, int peer, uint64_t key) : mesh_(mesh), peer_(peer), key_(key) {
    Random random;
    ::randombytes_buf(random.data(), random.size());
    random_.emplace(mesh, peer, kRandomSlot, random);
  }
  std::string answer(Clock::time_point until) {
    if (std::string problem = random_->finish(until); !problem.empty()) return problem;
    proof_.emplace(mesh_, peer_, kProofSlot, proof_of({mesh_.rank(), random_->mine()}, {peer_, random_->theirs()}, key_));
    return "";
  }
  std::string check(Clock::time_point until) {
    if (std::string problem = proof_->finish(until); !problem.empty()) return problem;
    const Proof expected = proof_of({peer_, random_->theirs()}, {mesh_.rank(), random_->mine()}, key_);
    return ::sodium_memcmp(proof_->theirs().data(), expected.data(), expected.size()) == 0 ? "" : kNoProof;
  }

 private:
  GlooMesh& mesh_;
  const int peer_;
  const uint64_t key_;
  std::optional<Exchange<Random>> random_;
  std::optional<Exchange<Proof>> proof_;
};

}  // namespace

GlooMesh::GlooMesh(const NetworkInterface& interface, int rank, int size)
    : rank_(rank), size_(size), address_(interface.address) {
  if (::sodium_init() < 0) throw std::logic_error("libsodium does not start");
  const NoPipeSignal no_signal;  // for gloo's thread
  try {
    ::gloo::transport::tcp::attr attributes(interface.address.c_str());
    attributes.ai_family = interface.ipv6 ? AF_INET6 : AF_INET;
    device_ = ::gloo::transport::tcp::CreateDevice(attributes);
    context_ = device_->createContext(rank, size);
    maker_ = device_->createContext(0, 1);
    context_->setTimeout(kGlooTimeout);
    for (int peer = 0; peer < size; ++peer)
      address_ += peer == rank ? " 0.0" : port_text(context_->createPair(peer)->address().bytes());
  } catch (const std::exception& error) {
    throw CommError(ExitCode::Rendezvous, fmt::format("comm: gloo cannot use the interface {}, {}: {}", interface.name,
                                                      interface.address, said_by_gloo(error)));
  }
  if (address_.size() > UnconnectedTransport::kLongestAddress)
    throw CommError(ExitCode::Rendezvous,
                    fmt::format("comm: gloo's address for {} ranks has {} bytes, at most {} are accepted; "
                                "use fewer ranks, or communication.transport \"ucx\"",
                                size, address_.size(), UnconnectedTransport::kLongestAddress));
}

GlooMesh::~GlooMesh() {
  const NoPipeSignal no_signal;
  context_.reset();
  maker_.reset();
  device_.reset();
}

std::string GlooMesh::connect_to(int peer, const std::string& address) {
  const auto bytes = published_for(rank_, address);
  if (!bytes) return "it has published an address that gloo does not understand";
  try {
    const NoPipeSignal no_signal;
    connection(peer).connect(*bytes);
    return "";
  } catch (const std::exception& error) {
    return fmt::format("it could not be reached: {}", said_by_gloo(error));
  }
}

std::vector<std::string> GlooMesh::connect(const std::vector<std::string>& addresses, uint64_t key) {
  std::vector<std::string> problems(size_);
  std::vector<std::unique_ptr<Prover>> provers(size_);
  const auto for_all = [&](const std::function<std::string(int)>& step) {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_ || !problems[peer].empty()) continue;
      try {
        problems[peer] = step(peer);
      } catch (const std::exception& error) {
        problems[peer] = fmt::format("{} ({})", kNoProof, said_by_gloo(error));
      }
      if (!problems[peer].empty()) close(peer);
    }
  };
  const auto connect_until = Clock::now() + kConnectFor;
  for_all([&](int peer) {
    if (Clock::now() > connect_until) return std::string("it was not reached in time, because others were waited for");
    return connect_to(peer, addresses.at(peer));
  });
  const auto prove_until = Clock::now() + kProveFor;
  for_all([&](int peer) {
    provers[peer] = std::make_unique<Prover>(*this, peer, key);
    return "";
  });
  for_all([&](int peer) { return provers[peer]->answer(prove_until); });
  for_all([&](int peer) { return provers[peer]->check(prove_until); });
  return problems;
}

void GlooMesh::close(int peer) {
  const NoPipeSignal no_signal;
  try {
    connection(peer).close();
  } catch (const std::exception&) {  // it was closed by gloo meanwhile
  }
}

}  // namespace trivet::comm
