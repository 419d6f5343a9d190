#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nccl_shim.h"
#include "runtime.h"

namespace {

enum class Kind { AllReduce, ReduceScatter, AllGather, Broadcast, Send, Receive };

struct Task {
  Kind kind;
  const void* from;
  void* to;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;  // for send and receive; the root of a broadcast
  cudaStream_t stream;

  bool is_message() const { return kind == Kind::Send || kind == Kind::Receive; }
  bool matches(const Task& other) const {
    return kind == other.kind && count == other.count && type == other.type && op == other.op && peer == other.peer;
  }
};

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
  }
  return 0;
}

std::string to_string(const Task& task) {
  static const char* const names[] = {"AllReduce", "ReduceScatter", "AllGather", "Broadcast", "Send", "Recv"};
  return std::string(names[static_cast<int>(task.kind)]) + " of " + std::to_string(task.count) + " elements of type " +
         std::to_string(task.type);
}

struct Posted {
  Task task;
  bool taken = false;
};

// One collective operation, with the task of each rank that has arrived.
struct Meeting {
  std::vector<const Task*> tasks;
  int arrived = 0;
  bool done = false;
};

// The state that the ranks of a communicator share.
struct Clique {
  explicit Clique(int ranks) : comms(ranks), bus_ids(ranks) {}

  int size() const { return static_cast<int>(comms.size()); }
  bool all_joined() const { return joined == size(); }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<ncclComm_t> comms;
  std::vector<std::string> bus_ids;  // host and bus id of each rank
  int joined = 0, finalizing = 0;
  std::string failure;  // a mismatch, which all ranks report
  std::map<int64_t, Meeting> meetings;
  std::map<std::pair<int, int>, std::deque<Posted*>> messages;  // sends that wait, by sender and receiver
};

struct Launch {
  std::shared_ptr<ncclComm> keep;  // it may be aborted before the launch runs
  ncclComm* comm = nullptr;
  std::vector<Task> tasks;
};

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  bool blocking = true;
  std::string name;

  // Guarded by the clique's mutex.
  ncclResult_t error = ncclSuccess;
  std::string text;
  bool aborted = false, finalizing = false;
  int64_t collectives = 0;
  int running = 0;

  // Used by the caller's thread only. A launch reaches the stream when the caller has asked for the state often enough.
  std::vector<Task> launching;
  int polls_left = 0;
  cudaEvent_t last = nullptr;                     // the end of the last launch
  std::vector<std::unique_ptr<Launch>> captured;  // graphs must not outlive them
};

namespace {

constexpr int kPolls = 2;

struct Library {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  std::map<ncclComm_t, std::shared_ptr<ncclComm>> live;
  int version = 0, aborted = 0;
  uint64_t next_id = 1;
};
Library& library() {
  static Library the;
  return the;
}

thread_local std::string thread_error;
thread_local int group_depth = 0;
thread_local std::vector<std::pair<ncclComm_t, Task>> group;

ncclResult_t refuse(ncclResult_t result, const std::string& text) {
  thread_error = text;
  return result;
}

bool is_live(ncclComm_t comm) {
  std::lock_guard lock(library().mutex);
  return library().live.contains(comm);
}

std::shared_ptr<ncclComm> shared(ncclComm_t comm) {
  std::lock_guard lock(library().mutex);
  return library().live.at(comm);
}

std::string where_i_am() {
  int device = 0;
  char bus[32] = "";
  cudaGetDevice(&device);
  cudaDeviceGetPCIBusId(bus, sizeof bus, device);
  const char* host = std::getenv("NCCL_HOSTID");
  return std::string(host ? host : "") + " " + bus;
}

// The caller holds the clique's mutex. All ranks of the communicator report the failure.
void fail_all(Clique& clique, const std::string& text) {
  if (!clique.failure.empty()) return;
  clique.failure = text;
  for (ncclComm_t comm : clique.comms)
    if (comm && comm->error == ncclSuccess) comm->error = ncclInvalidUsage, comm->text = text;
  clique.changed.notify_all();
}

// ---- reductions

template <typename T, typename Sum>
void reduce_as(const std::vector<const Task*>& tasks, size_t first, size_t count, void* to) {
  std::vector<T> result(count);
  for (size_t i = 0; i < count; ++i) {
    Sum value = static_cast<Sum>(static_cast<const T*>(tasks[0]->from)[first + i]);
    for (size_t rank = 1; rank < tasks.size(); ++rank) {
      const Sum term = static_cast<Sum>(static_cast<const T*>(tasks[rank]->from)[first + i]);
      value = tasks[0]->op == ncclMax ? std::max(value, term) : static_cast<Sum>(value + term);
    }
    result[i] = static_cast<T>(value);
  }
  std::memcpy(to, result.data(), count * sizeof(T));
}

// Integers only: NCCL adds floats in an order of its own, on which nobody may rely.
bool reduce(const std::vector<const Task*>& tasks, size_t first, size_t count, void* to) {
  if (tasks[0]->op != ncclSum && tasks[0]->op != ncclMax) return false;
  const bool sums = tasks[0]->op == ncclSum;
  switch (tasks[0]->type) {
    case ncclInt32:
      sums ? reduce_as<int32_t, uint32_t>(tasks, first, count, to) : reduce_as<int32_t, int32_t>(tasks, first, count, to);
      return true;
    case ncclInt64:
      sums ? reduce_as<int64_t, uint64_t>(tasks, first, count, to) : reduce_as<int64_t, int64_t>(tasks, first, count, to);
      return true;
    case ncclUint8: reduce_as<uint8_t, uint8_t>(tasks, first, count, to); return true;
    default: return false;
  }
}

// ---- running, on a thread of a stream

const std::byte* bytes(const void* data) { return static_cast<const std::byte*>(data); }

// All ranks have arrived: moves the data of all of them. The caller holds the clique's mutex.
void complete(Clique& clique, const std::vector<const Task*>& tasks) {
  const Task& first = *tasks[0];
  const size_t block = first.count * size_of(first.type);
  std::vector<std::vector<std::byte>> results(tasks.size());
  for (size_t rank = 0; rank < tasks.size(); ++rank) {
    if (!tasks[rank]->matches(first))
      return fail_all(clique,
                      "rank 0 calls " + to_string(first) + ", rank " + std::to_string(rank) + " " + to_string(*tasks[rank]));
    std::vector<std::byte>& result = results[rank];
    bool known = true;
    switch (first.kind) {
      case Kind::AllReduce:
        result.resize(block);
        known = reduce(tasks, 0, first.count, result.data());
        break;
      case Kind::ReduceScatter:
        result.resize(block);
        known = reduce(tasks, rank * first.count, first.count, result.data());
        break;
      case Kind::AllGather:
        for (const Task* task : tasks) result.insert(result.end(), bytes(task->from), bytes(task->from) + block);
        break;
      default:  // broadcast
        result.assign(bytes(tasks[first.peer]->from), bytes(tasks[first.peer]->from) + block);
    }
    if (!known) return fail_all(clique, "the sum of floats by NCCL has no fixed order");
  }
  for (size_t rank = 0; rank < tasks.size(); ++rank)
    if (!results[rank].empty()) std::memcpy(tasks[rank]->to, results[rank].data(), results[rank].size());
}

bool over(const ncclComm& comm) { return comm.aborted || !comm.clique->failure.empty(); }

void run_collective(ncclComm& comm, const Task& task, std::unique_lock<std::mutex>& lock) {
  Clique& clique = *comm.clique;
  Meeting& meeting = clique.meetings[comm.collectives++];
  meeting.tasks.resize(clique.size());
  meeting.tasks[comm.rank] = &task;
  if (++meeting.arrived == clique.size()) {
    complete(clique, meeting.tasks);
    meeting.done = true;
    clique.changed.notify_all();
  }
  clique.changed.wait(lock, [&] { return meeting.done || over(comm); });
  if (meeting.done) return;
  meeting.tasks[comm.rank] = nullptr;  // the others wait forever
  --meeting.arrived;
}

void receive(ncclComm& comm, const Task& task, std::unique_lock<std::mutex>& lock) {
  Clique& clique = *comm.clique;
  std::deque<Posted*>& waiting = clique.messages[{task.peer, comm.rank}];
  clique.changed.wait(lock, [&] { return !waiting.empty() || over(comm); });
  if (over(comm)) return;
  Posted& sent = *waiting.front();
  waiting.pop_front();
  if (sent.task.count != task.count || sent.task.type != task.type)
    return fail_all(clique, "rank " + std::to_string(task.peer) + " calls " + to_string(sent.task) + ", rank " +
                                std::to_string(comm.rank) + " " + to_string(task));
  std::memcpy(task.to, sent.task.from, task.count * size_of(task.type));
  sent.taken = true;
  clique.changed.notify_all();
}

// Posts all sends of a launch for their receivers before it waits for anything.
void run(ncclComm& comm, const std::vector<Task>& tasks) {
  Clique& clique = *comm.clique;
  std::unique_lock lock(clique.mutex);
  std::deque<Posted> sends;
  for (const Task& task : tasks) {
    if (task.kind != Kind::Send) continue;
    sends.push_back({task});
    clique.messages[{comm.rank, task.peer}].push_back(&sends.back());
  }
  clique.changed.notify_all();
  for (const Task& task : tasks) {
    if (over(comm)) break;
    if (task.kind == Kind::Receive) receive(comm, task, lock);
    if (!task.is_message()) run_collective(comm, task, lock);
  }
  for (Posted& sent : sends) {
    clique.changed.wait(lock, [&] { return sent.taken || over(comm); });
    if (!sent.taken) std::erase(clique.messages[{comm.rank, sent.task.peer}], &sent);
  }
  --comm.running;
  clique.changed.notify_all();
}

// The launch runs each time the graph is launched, in the order of its stream.
ncclResult_t put_into_graph(ncclComm& comm, cudaStream_t stream) {
  comm.captured.push_back(std::make_unique<Launch>(Launch{nullptr, &comm, std::move(comm.launching)}));
  comm.launching.clear();
  const auto body = [](void* data) {
    const cuda_shim::StreamWork guard;  // a host function in name only
    const auto& launch = *static_cast<Launch*>(data);
    {
      std::lock_guard lock(launch.comm->clique->mutex);
      ++launch.comm->running;
    }
    run(*launch.comm, launch.tasks);
  };
  return cudaLaunchHostFunc(stream, body, comm.captured.back().get()) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t put_on_stream(ncclComm& comm) {
  const cudaStream_t stream = comm.launching.front().stream;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &capture);
  if (capture != cudaStreamCaptureStatusNone) return put_into_graph(comm, stream);
  if (!comm.last && cudaEventCreateWithFlags(&comm.last, cudaEventDisableTiming) != cudaSuccess) return ncclUnhandledCudaError;
  if (cudaStreamWaitEvent(stream, comm.last) != cudaSuccess) return ncclUnhandledCudaError;
  {
    std::lock_guard lock(comm.clique->mutex);
    ++comm.running;
  }
  auto* launch = new Launch{shared(&comm), &comm, std::move(comm.launching)};
  comm.launching.clear();
  const auto body = [](void* data) {
    const cuda_shim::StreamWork guard;
    const std::unique_ptr<Launch> owned(static_cast<Launch*>(data));
    run(*owned->comm, owned->tasks);
  };
  if (cudaLaunchHostFunc(stream, body, launch) != cudaSuccess) return ncclUnhandledCudaError;
  return cudaEventRecord(comm.last, stream) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

// ---- checks, on the caller's thread

bool on_device(const void* data) {
  cudaPointerAttributes attributes{};
  return cudaPointerGetAttributes(&attributes, data) == cudaSuccess && attributes.type == cudaMemoryTypeDevice;
}

size_t blocks_read(const Task& task, int ranks) {
  if (task.kind == Kind::Receive) return 0;
  return task.kind == Kind::ReduceScatter ? static_cast<size_t>(ranks) : 1;
}
size_t blocks_written(const Task& task, int ranks) {
  if (task.kind == Kind::Send) return 0;
  return task.kind == Kind::AllGather ? static_cast<size_t>(ranks) : 1;
}

bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  return a_bytes > 0 && b_bytes > 0 && bytes(a) < bytes(b) + b_bytes && bytes(b) < bytes(a) + a_bytes;
}

// Whether the buffers lie where NCCL requires them for work in place.
bool in_place(const Task& task, int rank) {
  const size_t block = task.count * size_of(task.type), offset = static_cast<size_t>(rank) * block;
  if (task.kind == Kind::AllGather) return bytes(task.from) == bytes(task.to) + offset;
  if (task.kind == Kind::ReduceScatter) return bytes(task.to) == bytes(task.from) + offset;
  return task.from == task.to;
}

ncclResult_t check(const ncclComm& comm, const Task& task) {
  const int ranks = comm.clique->size();
  const size_t block = task.count * size_of(task.type);
  const size_t read = blocks_read(task, ranks) * block, written = blocks_written(task, ranks) * block;
  if (task.peer < 0 || task.peer >= ranks) return refuse(ncclInvalidArgument, "no such rank");
  if (block == 0) return refuse(ncclInvalidArgument, "nothing to do: Trivet skips empty operations");
  if (read > 0 && (!on_device(task.from) || !on_device(bytes(task.from) + read - 1)))
    return refuse(ncclInvalidArgument, "the source is not device memory");
  if (written > 0 && (!on_device(task.to) || !on_device(bytes(task.to) + written - 1)))
    return refuse(ncclInvalidArgument, "the target is not device memory");
  if (overlap(task.from, read, task.to, written) && !in_place(task, comm.rank))
    return refuse(ncclInvalidArgument, "source and target overlap");
  return ncclSuccess;
}

ncclResult_t check_messages(const std::vector<Task>& tasks) {
  for (const Task& a : tasks)
    for (const Task& b : tasks) {
      if (a.stream != b.stream) return refuse(ncclInvalidUsage, "a group uses two streams");
      if (&a == &b || b.kind != Kind::Receive) continue;
      const void* other = a.kind == Kind::Send ? a.from : a.to;
      if (overlap(other, a.count * size_of(a.type), b.to, b.count * size_of(b.type)))
        return refuse(ncclInvalidArgument, "messages of a group overlap");
    }
  return ncclSuccess;
}

bool ready(const ncclComm& comm) {
  std::lock_guard lock(comm.clique->mutex);
  return comm.clique->all_joined() && comm.error == ncclSuccess;
}

ncclResult_t launch_group() {
  std::map<ncclComm_t, std::vector<Task>> by_comm;
  for (auto& [comm, task] : group) by_comm[comm].push_back(task);
  group.clear();
  bool pending = false;
  for (auto& [comm, tasks] : by_comm) {
    if (const ncclResult_t bad = check_messages(tasks)) return bad;
    comm->launching = std::move(tasks);
    if (comm->blocking) {
      if (const ncclResult_t bad = put_on_stream(*comm)) return bad;
    } else {
      comm->polls_left = kPolls;
      pending = true;
    }
  }
  return pending ? ncclInProgress : ncclSuccess;
}

ncclResult_t add(ncclComm_t comm, const Task& task) {
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "the communicator has been destroyed");
  if (comm->finalizing || comm->polls_left > 0 || !ready(*comm))
    return refuse(ncclInvalidUsage, "the communicator is in progress or has failed");
  if (const ncclResult_t bad = check(*comm, task)) return bad;
  ncclGroupStart();
  group.push_back({comm, task});
  return ncclGroupEnd();
}

}  // namespace

namespace cuda_shim {

void set_nccl_version(int code) {
  std::lock_guard lock(library().mutex);
  library().version = code;
}

void fail_communicator(const std::string& name, int rank, ncclResult_t error, const std::string& text) {
  std::lock_guard lock(library().mutex);
  for (const auto& [comm, owned] : library().live) {
    if (comm->name != name || comm->rank != rank) continue;
    std::lock_guard of_clique(comm->clique->mutex);
    comm->error = error;
    comm->text = text;
  }
}

int live_communicators() {
  std::lock_guard lock(library().mutex);
  return static_cast<int>(library().live.size());
}

int aborted_communicators() {
  std::lock_guard lock(library().mutex);
  return library().aborted;
}

}  // namespace cuda_shim

ncclResult_t ncclGetVersion(int* version) {
  std::lock_guard lock(library().mutex);
  *version = library().version ? library().version : NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::lock_guard lock(library().mutex);
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, &library().next_id, sizeof library().next_id);
  ++library().next_id;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) {
  static thread_local std::string text;
  text = thread_error;
  if (comm && is_live(comm)) {
    std::lock_guard lock(comm->clique->mutex);
    if (!comm->text.empty()) text = comm->text;
  }
  return text.c_str();
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (rank < 0 || rank >= ranks || config->magic != 0xcafebeef) return refuse(ncclInvalidArgument, "wrong arguments");
  auto comm = std::make_shared<ncclComm>();
  comm->rank = rank;
  comm->blocking = config->blocking != 0;
  comm->name = config->commName ? config->commName : "";
  {
    std::lock_guard lock(library().mutex);
    auto& clique = library().cliques[std::string(id.internal, sizeof id.internal)];
    if (!clique) clique = std::make_shared<Clique>(ranks);
    comm->clique = clique;
    library().live[comm.get()] = comm;
  }
  Clique& clique = *comm->clique;
  std::unique_lock lock(clique.mutex);
  const std::string here = where_i_am();
  if (std::find(clique.bus_ids.begin(), clique.bus_ids.end(), here) != clique.bus_ids.end())
    fail_all(clique, "Duplicate GPU detected");
  if (!clique.failure.empty()) comm->error = ncclInvalidUsage, comm->text = clique.failure;
  clique.bus_ids[rank] = here;
  clique.comms[rank] = comm.get();
  ++clique.joined;
  clique.changed.notify_all();
  *out = comm.get();
  if (!(*out)->blocking) return ncclInProgress;
  clique.changed.wait(lock, [&] { return clique.all_joined() || !clique.failure.empty(); });
  return (*out)->error;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "the communicator has been destroyed");
  if (comm->polls_left > 0 && --comm->polls_left == 0)
    if (const ncclResult_t bad = put_on_stream(*comm)) return bad;
  Clique& clique = *comm->clique;
  std::lock_guard lock(clique.mutex);
  const bool waits = !clique.all_joined() || comm->polls_left > 0 ||
                     (comm->finalizing && (comm->running > 0 || clique.finalizing < clique.size()));
  *error = comm->error != ncclSuccess ? comm->error : waits ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "the communicator has been destroyed");
  std::lock_guard lock(comm->clique->mutex);
  if (comm->finalizing || comm->polls_left > 0) return refuse(ncclInvalidUsage, "the communicator is in progress");
  comm->finalizing = true;
  ++comm->clique->finalizing;
  return comm->blocking ? ncclSuccess : ncclInProgress;
}

namespace {

// Work that is still queued on streams finds out that it is aborted when its turn comes.
ncclResult_t release(ncclComm_t handle, bool aborts) {
  std::shared_ptr<ncclComm> comm;
  {
    std::lock_guard lock(library().mutex);
    const auto found = library().live.find(handle);
    if (found == library().live.end()) return refuse(ncclInvalidArgument, "the communicator has been destroyed");
    std::lock_guard of_clique(found->second->clique->mutex);
    if (!aborts && found->second->running > 0) return refuse(ncclInvalidUsage, "destroyed while operations run");
    comm = found->second;
    comm->aborted = true;
    comm->clique->comms[comm->rank] = nullptr;
    comm->clique->changed.notify_all();
    library().live.erase(found);
    if (aborts) ++library().aborted;
  }
  if (comm->last) cudaEventDestroy(comm->last);
  return ncclSuccess;
}

}  // namespace

ncclResult_t ncclCommDestroy(ncclComm_t comm) { return release(comm, false); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return release(comm, true); }

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return refuse(ncclInvalidUsage, "no group was started");
  if (--group_depth > 0 || group.empty()) return ncclSuccess;
  return launch_group();
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return add(comm, {Kind::AllReduce, from, to, count, type, op, 0, stream});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return add(comm, {Kind::ReduceScatter, from, to, count, type, op, 0, stream});
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return add(comm, {Kind::AllGather, from, to, count, type, ncclSum, 0, stream});
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return add(comm, {Kind::Broadcast, from, to, count, type, ncclSum, root, stream});
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {Kind::Send, from, nullptr, count, type, ncclSum, peer, stream});
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {Kind::Receive, nullptr, to, count, type, ncclSum, peer, stream});
}
