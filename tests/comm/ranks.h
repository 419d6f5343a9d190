// Runs a body once per rank, with ranks as threads or as forked processes that share memory, or as threads that have only a
// transport: sockets of the tests (socket_transport.h), or UCX and gloo where they were found, or as threads dealt to hosts of
// two ranks each, which share memory and have sockets to the others, and whose sums of floats are a chain or an exchange;
// expectations that fail in any rank fail the test.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/job_state.h"
#include "comm/transport/transport.h"
#include "comm/world.h"

namespace trivet::comm {

enum class Kind { Threads, Processes, Sockets, Hosts, ExchangingHosts, Ucx, Gloo };
inline constexpr Kind kAllKinds[] = {
    Kind::Threads, Kind::Processes, Kind::Sockets, Kind::Hosts, Kind::ExchangingHosts,
#ifdef TRIVET_HAS_UCX
    Kind::Ucx,
#endif
#ifdef TRIVET_HAS_GLOO
    Kind::Gloo,
#endif
};
inline std::string to_string(Kind kind) {
  static constexpr const char* kNames[] = {"Threads", "Processes", "Sockets", "Hosts", "ExchangingHosts", "Ucx", "Gloo"};
  return kNames[static_cast<int>(kind)];
}

// A view of a vector's elements.
template <typename T>
TensorView view(std::vector<T>& data) {
  return {data.data(), kDTypeOf<T>, Shape{static_cast<int64_t>(data.size())}};
}
template <typename T>
ConstTensorView view(const std::vector<T>& data) {
  return {data.data(), kDTypeOf<T>, Shape{static_cast<int64_t>(data.size())}};
}

// Memory that forked processes share with the test, zeroed.
class SharedPage {
 public:
  explicit SharedPage(size_t bytes);
  ~SharedPage();
  void* data() const { return data_; }

 private:
  void* data_;
  size_t bytes_;
};

// Ranks as threads on hosts that only this function knows: hosts[r] is the host of rank r. Ranks on one host share memory as
// processes do; between hosts there are sockets. `wrap` may put something in front of a rank's transport.
using WrapTransport = std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)>;
void run_on_hosts(const std::vector<int>& hosts, const std::function<void(World&)>& body, const WorldOptions& options = {},
                  const WrapTransport& wrap = {});

// Forked ranks. Each runs `body` with its world and its own JobState, then leaves without running anything else.
class Processes {
 public:
  using Body = std::function<void(World&, JobState&)>;
  Processes(int ranks, const Body& body, const WorldOptions& options = {});
  ~Processes();
  pid_t pid(int rank) const { return pids_[rank]; }
  // Waits for the rank's end. Returns its exit status, or 128 + the signal that killed it. The status is 1 if an expectation
  // failed or the body threw.
  int wait(int rank);

 private:
  std::vector<pid_t> pids_;
  SharedPage meeting_;
};

// The ranks whose floats are added first in a world of this kind, in order; then these sums are added, in order.
std::vector<std::vector<int>> added_first(Kind kind, int ranks);

// Every rank must end without an error.
void run_ranks(Kind kind, int ranks, const std::function<void(World&)>& body, const WorldOptions& options = {});

// The text and the exit code of the CommError that an action threw.
struct Caught {
  std::string text;
  ExitCode code = ExitCode::Done;
};
Caught catch_comm_error(const std::function<void()>& action);

// Names in /dev/shm that begin with "trivet-" and the test's process id.
std::vector<std::string> leftovers();

}  // namespace trivet::comm
