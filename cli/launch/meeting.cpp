#include "cli/launch/meeting.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "cli/launch/shortage.h"
#include "comm/secret.h"
#include "comm/socket.h"

namespace trivet::cli {

Meeting make_meeting(const std::string& job_id, const std::string& address, int port) {
  Meeting meeting{.job_id = job_id, .address = address, .listener = comm::listen_on(address, port)};
  meeting.port = comm::port_of(meeting.listener);
  meeting.secret = hold_secret(comm::random_bytes(32));
  return meeting;
}

Descriptor hold_secret(const std::string& secret) {
  Descriptor held(::memfd_create("trivet-secret", MFD_CLOEXEC));
  if (!held || ::write(held.number(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size()))
    throw shortage("cannot make a secret for the job", errno);
  return held;
}

}  // namespace trivet::cli
