// The world is all ranks of a job. Each rank has one World, which holds the group of all ranks; all ranks close it together.
//
//   run_threads(4, [](World& world) { ... });
//   auto world = connect(place_from_environment(current_environment()));
//
// The first runs ranks as threads of this process (tests, debugging, --ranks). The second makes this process one rank of a job
// that it finds through RANK, WORLD_SIZE, MASTER_ADDR ...
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "comm/host_sums.h"
#include "comm/process_group.h"
#include "core/buffer.h"
#include "core/error.h"

namespace trivet::comm {

// Where this process is in its job. It is read from the environment, in the order of docs/environment.md.
struct Place {
  int rank = 0, world_size = 1, local_rank = 0, local_size = 1;
  bool host_known = false;  // the environment says the local rank; otherwise it is assumed that all ranks are on this host
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  std::string source;  // where it was found: "RANK", "OMPI_COMM_WORLD_RANK", "none" ...
  // Also set by a launcher (docs/environment.md); -1 or empty: not set.
  std::string job_id;             // the same on all ranks of one job; if empty, rank 0 makes one up
  int64_t epoch = 0;              // number of restarts of the job; ranks of an older epoch are refused
  int listen_descriptor = -1;     // rank 0's listening socket, so that nobody can take the port in between
  int secret_descriptor = -1;     // the job's secret
  std::string secret_file;        // a file with the secret, mode 600
  std::string runtime_directory;  // XDG_RUNTIME_DIR: where the user's own secret is when none is given (user_secret.h)
  int launcher_descriptor = -1;   // the connection to the launcher (comm/launcher_link.h)
};

using Environment = std::map<std::string, std::string>;
Environment current_environment();
// Throws ConfigError if variables contradict each other or are not numbers.
Place place_from_environment(const Environment& environment);
// TensorFlow's TF_CONFIG starts tasks that are no ranks: parameter servers and an evaluator. For such a task, a line that says
// why it has nothing to do: the program should print it and end with exit code 0. place_from_environment throws for such a
// task. Nothing for a rank.
std::optional<std::string> idle_task(const Environment& environment);

struct WorldOptions {
  std::chrono::milliseconds join_deadline{30000};
  std::chrono::milliseconds operation_deadline{600000};  // for a rank that never enters an operation
  // After this time, a line (by default on stderr) names a rank that others wait for and that enters nothing
  // (world_activity.h).
  std::chrono::milliseconds report_waits_after{1500};
  std::function<void(const std::string& line)> on_long_wait;
  std::chrono::milliseconds silence_deadline{5000};  // for a process that lives but sends nothing (connect only)
  // Only for ranks on several hosts: the transport between them, "auto", "ucx" or "gloo", and this host's network interface for
  // it (network_interface.h).
  std::string transport = "auto";
  std::string network_interface;
  HostSums sums = HostSums::Chain;  // the same on all ranks
  // Called on another thread when the job has ended (a rank was lost, or one aborted) and this rank has not left its World
  // within notice_grace, for example because it is computing. The program should print the message and exit with the code. The
  // function need not return.
  std::function<void(const std::string& message, ExitCode code)> on_lost;
  std::chrono::milliseconds notice_grace{300};
};

class World {
 public:
  virtual ~World() = default;
  int rank() const { return group().rank(); }
  int size() const { return group().size(); }
  virtual ProcessGroup& group() const = 0;  // "world"
  virtual std::string host() const = 0;
  // Describes how ranks on different hosts communicate: "2 hosts, UCX 1.13.1 over eth0 (10.1.0.7)". Empty on one host.
  virtual std::string network() const { return ""; }
  // For buffers that are communicated every step: between processes, operations on them need no staging copies. All of them
  // must be released before the world ends.
  virtual Allocator& allocator() { return host_allocator(); }
  // The regular end: all ranks meet, and after that leaving is not a loss. The destructor of a World from connect() closes it,
  // unless an exception is under way or a rank was lost: then the others consider this rank lost. Call it yourself to have its
  // errors thrown; the destructor only prints them.
  virtual void close() = 0;
  // Tells the others why this rank leaves early, so that all name the same first culprit.
  virtual void abort(const std::string& reason) noexcept = 0;
};

// One rank per process. A world of one needs no network. comm/world_maker.h chooses the transport from who has joined.
std::unique_ptr<World> connect(const Place& place, const WorldOptions& options = {});

// Runs `body` once per rank, each on its own thread. The first exception (by time) ends the others' waits and is thrown to the
// caller when all threads have ended.
void run_threads(int ranks, const std::function<void(World&)>& body, const WorldOptions& options = {});

}  // namespace trivet::comm
