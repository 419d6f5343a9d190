// Horovod's interface for C++ programs: each rank has a Communicator, and calls on it have the names that they have in Python.
//
//   auto hvd = trivet::hvd::init();                                  // import horovod.torch as hvd; hvd.init()
//   hvd->broadcast_parameters(parameters, 0);
//   hvd->allreduce_(hvd::view(gradient), {.name = "w1"});            // the average over all ranks, in place
//   hvd->shutdown();
//
// There is no global state: several Communicators can exist in one process, such as those of ranks that are threads (run()).
//
// Names. Ranks may submit tensors in any order; a tensor runs when all ranks of its process set have submitted one of that
// name. Ranks must agree on operation, dtype, shape, op, compression, scale and root, otherwise all of them get a CommError
// (RanksDisagree) that says what differs, on which ranks; other tensors are not affected, and the Communicator stays usable. A
// tensor without a name gets one by counting ("allreduce.noname.1"), which needs the same order on all ranks.
//
// Tensors are in host memory: TensorViews (hvd::view of a span or vector), which must stay valid until the call returns, or as
// long as the handle exists (handle.h). allreduce, reducescatter: float32, float64, float16, bfloat16, int32, int64. Others:
// any.
//
// Bits. Sum and Average of floats are added in rank order, 16-bit types in float32, and rounded once (docs/communication.md).
// Products and minima are combined in rank order, Adasum in a fixed tree (adasum.h). So results have the same bits on all ranks
// and in every run with the same number of ranks, whatever the order of submission, the timing, the fusion threshold and the
// grouping. Only `communication.sums` "exchange" (comm/host_sums.h) adds in another order if there are several hosts. A scale
// is computed in float64: prescale before the tensor is rounded to its wire type, postscale (and the division of Average) after
// it is back in its own type.
//
// Errors. A mistake seen before anything is sent is a ConfigError. A lost rank is a CommError in all calls that wait,
// on all ranks; after it the Communicator cannot be used any more. Thread-safe, except for construction, process sets
// and shutdown().
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/world.h"
#include "hvd/handle.h"
#include "hvd/options.h"
#include "hvd/process_set.h"
#include "hvd/tensor.h"
#include "hvd/timeline.h"
#include "hvd/types.h"

namespace trivet::hvd {

class Channel;
struct Request;
struct Submission;

struct AllreduceOptions {
  std::string name = "";
  ReduceOp op = ReduceOp::Average;  // Average, and scales other than 1, need floating-point tensors
  Compression compression = Compression::None;
  double prescale_factor = 1, postscale_factor = 1;
  ProcessSet process_set = {};
};

struct CallOptions {
  std::string name = "";
  ProcessSet process_set = {};
};

class Communicator {
 public:
  // All ranks of the world construct it together. Throws ConfigError if they have different options. The world must outlive it
  // or is owned by it.
  explicit Communicator(comm::World& world, const Options& options = options_from_environment());
  explicit Communicator(std::unique_ptr<comm::World> world, const Options& options = options_from_environment());
  // Without shutdown() this rank has left early: the others get a CommError.
  ~Communicator();
  // The regular end, which all ranks reach together; tensors in flight are run first. A world that is owned is closed.
  void shutdown();
  bool is_initialized() const { return open_; }

  int rank(const ProcessSet& = {}) const;  // within the process set; -1 if this rank is not in it
  int size(const ProcessSet& = {}) const;
  int local_rank() const { return local_rank_; }  // among the ranks on this host
  int local_size() const { return local_size_; }
  int cross_rank() const { return cross_rank_; }  // among the ranks with this local rank, on all hosts
  int cross_size() const { return cross_size_; }
  bool is_homogeneous() const { return homogeneous_; }  // all hosts have the same number of ranks

  // tensor = op over ranks of their tensors.
  void allreduce_(TensorView tensor, const AllreduceOptions& = {});
  Tensor allreduce(ConstTensorView tensor, const AllreduceOptions& = {});
  Handle allreduce_async_(TensorView tensor, const AllreduceOptions& = {});
  Handle allreduce_async(ConstTensorView tensor, const AllreduceOptions& = {});
  // Several tensors, which run together: none before all ranks have submitted all. Their names are NAME.1of3 ...
  void grouped_allreduce_(const std::vector<TensorView>& tensors, const AllreduceOptions& = {});
  std::vector<Tensor> grouped_allreduce(const std::vector<ConstTensorView>& tensors, const AllreduceOptions& = {});
  std::vector<Handle> grouped_allreduce_async_(const std::vector<TensorView>& tensors, const AllreduceOptions& = {});
  std::vector<Handle> grouped_allreduce_async(const std::vector<ConstTensorView>& tensors, const AllreduceOptions& = {});

  // The rows (first dim) of all ranks, one after another; numbers of rows may differ.
  Tensor allgather(ConstTensorView tensor, const CallOptions& = {});
  Handle allgather_async(ConstTensorView tensor, const CallOptions& = {});

  // tensor = that of the root, which is given as its world rank.
  void broadcast_(TensorView tensor, int root_rank, const CallOptions& = {});
  Tensor broadcast(ConstTensorView tensor, int root_rank, const CallOptions& = {});
  Handle broadcast_async_(TensorView tensor, int root_rank, const CallOptions& = {});

  // splits[r] rows go to rank r of the set, in order; empty: the same number to each. The result has the rows that came from
  // rank 0, then from rank 1, ..., and their numbers.
  Result alltoall(ConstTensorView tensor, const std::vector<int64_t>& splits = {}, const CallOptions& = {});

  // This rank's rows of the sum or average (no other op); the first ranks get one row more if they do not divide.
  Tensor reducescatter(ConstTensorView tensor, const AllreduceOptions& = {});
  Handle reducescatter_async(ConstTensorView tensor, const AllreduceOptions& = {});

  // Returns when all ranks have called it.
  void barrier(const CallOptions& = {});

  // For ranks that run out of data at different times. Until all ranks have called it, this rank contributes to what the others
  // do without a thread of the user's: nothing to allreduce and reducescatter (the value that does not change the result;
  // Average still divides by the number of all ranks, as in Horovod), no rows to allgather. A broadcast from this rank, and
  // alltoall, fail. Returns the world rank of the last one that joined (of several in one round, the highest).
  int join(const ProcessSet& = {});

  // Checks whether the operation has ended.
  bool poll(const Handle& handle) const;
  // Waits, and returns the result or throws. A handle can be waited for once.
  Tensor synchronize(Handle& handle);
  Tensor synchronize(Handle&& handle) { return synchronize(handle); }
  std::vector<Tensor> synchronize(std::vector<Handle>& handles);  // waits for all, then throws the first error

  // Collective over all ranks of the job, with the same world ranks (ascending). The sets of Options::process_sets
  // exist already, in their order: process_set(1) ...
  ProcessSet add_process_set(const std::vector<int>& ranks);
  ProcessSet process_set(int id) const;
  // Collective over the ranks of the set; its tensors in flight are run first.
  void remove_process_set(const ProcessSet& set);

  // All tensors become those of the root. Also for optimizer states and buffers.
  void broadcast_parameters(const std::vector<NamedTensor>& parameters, int root_rank);
  // Any bytes; the other ranks' argument is ignored.
  std::string broadcast_object(std::string_view bytes, int root_rank, const CallOptions& = {});
  std::vector<std::string> allgather_object(std::string_view bytes, const CallOptions& = {});

  // Only rank 0 writes (timeline.h).
  void start_timeline(const std::string& path);
  void stop_timeline();

 private:
  void start(const Options& options);
  void find_hosts(comm::ProcessGroup& group);
  void check_options(comm::ProcessGroup& group, const Options& options) const;
  Channel& channel(const ProcessSet& set) const;
  Request request(Collective collective, ConstTensorView tensor, const std::string& name, Channel& channel) const;
  Request reduction(Collective collective, ConstTensorView tensor, const AllreduceOptions& options, Channel& channel) const;
  Submission allreduce_of(ConstTensorView tensor, const AllreduceOptions& options, Channel& channel) const;
  Submission broadcast_of(ConstTensorView tensor, int root_rank, const CallOptions& options, Channel& channel) const;
  static Handle submit(Channel& channel, Submission submission);

  std::unique_ptr<comm::World> owned_world_;
  comm::World& world_;
  Options options_;
  bool open_ = false;
  int local_rank_ = 0, local_size_ = 1, cross_rank_ = 0, cross_size_ = 1;
  bool homogeneous_ = true;
  Timeline timeline_;
  std::map<int, ProcessSet> sets_;                    // by id
  std::map<int, std::unique_ptr<Channel>> channels_;  // for the sets that this rank is in
  int next_set_ = 0;
};

// Connects this process to the job that it finds in the environment (docs/environment.md).
std::unique_ptr<Communicator> init(const Options& options = options_from_environment(),
                                   const comm::WorldOptions& world_options = {});

// Runs `body` once per rank, with ranks as threads of this process, and shuts down when it returns. Throws the first exception
// that a body has thrown. For tests and first steps.
void run(int ranks, const std::function<void(Communicator&)>& body, const Options& options = options_from_environment(),
         const comm::WorldOptions& world_options = {});

}  // namespace trivet::hvd
