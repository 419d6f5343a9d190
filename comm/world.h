// A job's ranks: made once per rank, holds the group of all and tears down together.
//
//   run_threads(4, [](World& world) { ... });
//   auto world = connect(place_from_environment(current_environment()));
//
// The first runs ranks as threads of this process (tests, debugging, --ranks). The second makes this process one rank of a job,
// found through RANK, WORLD_SIZE, MASTER_ADDR ...
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "comm/process_group.h"
#include "core/buffer.h"
#include "core/error.h"

namespace trivet::comm {

// Where this process is in its job. Read from the environment, in the order of docs/environment.md.
struct Place {
  int rank = 0, world_size = 1, local_rank = 0, local_size = 1;
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  std::string source;  // what it was found in: "RANK", "OMPI_COMM_WORLD_RANK", "none" ...
  // What a launcher hands over as well (docs/environment.md); -1 and empty: nothing.
  std::string job_id;             // the same on all ranks of one job; rank 0 makes one up otherwise
  int64_t epoch = 0;              // how often the job was started again; ranks of an older epoch are refused
  int listen_descriptor = -1;     // rank 0's listening socket, so that no port can be lost in between
  int secret_descriptor = -1;     // the job's secret
  std::string secret_file;        // the same, mode 600
  std::string runtime_directory;  // XDG_RUNTIME_DIR: where the user's own secret is when none is given (user_secret.h)
  int launcher_descriptor = -1;   // the line to the launcher (comm/launcher_link.h)
};

using Environment = std::map<std::string, std::string>;
Environment current_environment();
// Throws ConfigError when variables contradict each other or are not numbers.
Place place_from_environment(const Environment& environment);

struct WorldOptions {
  std::chrono::milliseconds join_deadline{30000};
  std::chrono::milliseconds operation_deadline{600000};  // a rank that never enters an operation
  // A rank that others wait for and that enters nothing is named in a line after this time (whereabouts.h), by default on
  // stderr.
  std::chrono::milliseconds report_waits_after{1500};
  std::function<void(const std::string& line)> on_long_wait;
  std::chrono::milliseconds silence_deadline{5000};  // a process that lives but says nothing (connect only)
  // Called on a thread of its own when the job has ended (a rank lost, an abort) and this rank has not left its World within
  // notice_grace, as when it is computing: the program prints the message and leaves with the code. It need not return.
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
  // Where to put buffers that are communicated every step: between processes, operations on them need no staging copies.
  // All of it must be released before the world ends.
  virtual Allocator& allocator() { return host_allocator(); }
  // Polite end: all ranks meet, then nobody is missed. Without it the others take this rank for lost.
  virtual void close() = 0;
  // Tells the others why this rank leaves before its time, so that all name the same first culprit.
  virtual void abort(const std::string& reason) noexcept = 0;
};

// One rank per process. A world of one needs no network. Ranks of one host use shared memory.
std::unique_ptr<World> connect(const Place& place, const WorldOptions& options = {});

// Runs `body` once per rank, each on a thread of its own. The first exception (by time) ends the others' waits and is thrown
// to the caller when all threads have ended.
void run_threads(int ranks, const std::function<void(World&)>& body, const WorldOptions& options = {});

}  // namespace trivet::comm
