// Listening, connecting, and a connection that carries frames. Nothing here blocks without a deadline, except looking up names.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/frame.h"
#include "comm/record_cipher.h"
#include "core/descriptor.h"

namespace trivet::comm {

using TimePoint = std::chrono::steady_clock::time_point;

// Says how long a wait may last, and what it checks every 100 ms: `look` may throw to end the wait.
struct Patience {
  Patience(TimePoint until, std::function<void()> at_times = {}) : deadline(until), look(std::move(at_times)) {}
  TimePoint deadline;
  std::function<void()> look;
};

// Waits until this host can look the address up. Throws CommError (Rendezvous) at the deadline.
void wait_for_name(const std::string& address, const Patience& patience);

// Port 0 picks a free port. Throws CommError (Rendezvous); for a port in use, the error names its holder.
Descriptor listen_on(const std::string& address, int port);
int port_of(const Descriptor& listener);
bool is_loopback(const std::string& address);
std::string peer_of(const Descriptor& connection);  // "127.0.0.1:4711", "this host"

// Retries while the name is not known or nobody listens there yet. Throws CommError (Rendezvous) at the deadline. The
// connection is non-blocking.
Descriptor connect_to(const std::string& address, int port, const Patience& patience);
// Returns nullopt if no connection is waiting, or for another reason in errno.
std::optional<Descriptor> accept_from(const Descriptor& listener);

// An address of a socket: a numeric one of a network, or a name of this host alone.
struct SocketAddress {
  std::string bytes;  // a sockaddr
};

// Looks up "host:port" (the part before the last colon is a name or an address), or "@name", a name of this host that
// needs no port. Returns nothing while the name is unknown, such as that of a pod in Kubernetes until it is ready.
// Throws CommError (Rendezvous) if it cannot become known.
std::vector<SocketAddress> look_up(const std::string& address);
// Ranks of this host find it by this name, in its network namespace. Returns nullopt if the name is taken.
std::optional<Descriptor> listen_on_this_host(const std::string& name);

// Connects to one of several addresses without waiting: poll number() for POLLOUT and call step().
class ConnectionAttempt {
 public:
  enum class State { Waiting, Connected, Failed };
  ConnectionAttempt(std::vector<SocketAddress> addresses, TimePoint now);
  State step(TimePoint now);
  int number() const { return descriptor_.number(); }
  int error() const { return error_; }                  // the errno of the last address, after Failed
  Descriptor take() { return std::move(descriptor_); }  // after Connected; non-blocking

 private:
  bool try_next(TimePoint now);

  std::vector<SocketAddress> addresses_;
  size_t next_ = 0;
  Descriptor descriptor_;
  TimePoint give_up_;
  int error_ = 0;
};

// False at the deadline, even if there is something to read.
bool wait_readable(int descriptor, const Patience& patience);

// A connection that carries frames, encrypted, after the handshake (handshake.h). Non-blocking in both directions. One thread
// at a time.
class Connection {
 public:
  enum class State { Open, Ended, Reset };

  Connection() = default;
  Connection(Descriptor descriptor, const SessionKeys& keys, const FrameLimits& limits)
      : descriptor_(std::move(descriptor)), cipher_(keys), limits_(limits) {}
  int number() const { return descriptor_.number(); }
  const Descriptor& descriptor() const { return descriptor_; }
  explicit operator bool() const { return static_cast<bool>(descriptor_); }
  std::string peer() const { return peer_of(descriptor_); }

  void send(const Frame& frame) { cipher_.encrypt(encode(frame), out_); }
  bool has_unsent() const { return !out_.empty(); }
  void flush();                 // as much as the kernel takes now
  State fill();                 // reads what has arrived
  std::optional<Frame> next();  // throws CommError ("sent ...") if the bytes are not a frame of this connection
  size_t unsent_bytes() const { return out_.size(); }
  void finish_sending();  // the other side then reads the end
  State skip();           // throws away what has arrived, unread
  void reset() { descriptor_.reset(); }

 private:
  Descriptor descriptor_;
  RecordCipher cipher_;
  FrameLimits limits_;
  std::string out_, in_;  // encrypted
  std::string text_;      // decrypted, and not yet returned by next()
  size_t decrypted_ = 0;  // bytes of in_
};

}  // namespace trivet::comm
