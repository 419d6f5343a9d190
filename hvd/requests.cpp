// The calls of Communicator that submit tensors: checks, requests, handles.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "comm/reduce.h"
#include "core/error.h"
#include "core/printable.h"
#include "hvd/channel.h"
#include "hvd/communicator.h"

namespace trivet::hvd {
namespace {

[[noreturn]] void refuse(const Request& request, const std::string& why) {
  throw ConfigError(fmt::format("hvd: {} of \"{}\": {}", name_of(request.collective), printable(request.name), why));
}

// The other ranks would take another value for a message of another build.
template <typename Enum>
void check_value(const Request& request, const char* what, Enum value) {
  if (name_of(value) == "?")
    refuse(request, fmt::format("{} {} is not accepted; use {}", what, static_cast<int>(value), accepted_names<Enum>()));
}

constexpr int64_t kMostElements = int64_t{1} << 48;  // numbers of bytes must not overflow

void check_tensor(const Request& request, const void* data) {
  int64_t elements = 1;
  for (const int64_t size : request.shape.span()) {
    if (size < 0 || (size > 0 && elements > kMostElements / size))
      refuse(request, fmt::format("the tensor has the shape {}; each size must be at least 0, and their product at most 2^48",
                                  to_string(request.shape)));
    elements *= size;
  }
  if (elements > 0 && !data)
    refuse(request, fmt::format("the tensor of the shape {} has no data (a null pointer)", to_string(request.shape)));
}

void check_rows(const Request& request) {
  if (request.shape.dims() == 0) refuse(request, "the tensor has no dims; give it at least one");
}

std::vector<Submission> only(Submission submission) {
  std::vector<Submission> list;
  list.push_back(std::move(submission));
  return list;
}

// The result is a tensor of the same size that the submission owns. A tensor that moves keeps its memory, so views stay valid.
Submission into_new_tensor(Submission submission) {
  submission.result = Tensor(submission.request.dtype, submission.request.shape);
  submission.out = submission.result.view();
  return submission;
}

std::string group_name(const AllreduceOptions& options, Channel& channel) {
  return options.name.empty() ? "grouped_" + channel.next_name(Collective::Allreduce) : options.name;
}

}  // namespace

Request Communicator::request(Collective collective, ConstTensorView tensor, const std::string& name, Channel& channel) const {
  Request request{.name = name.empty() ? channel.next_name(collective) : name,
                  .collective = collective,
                  .dtype = tensor.dtype,
                  .shape = tensor.shape};
  if (request.name.size() > kMaxNameBytes)
    refuse(request, fmt::format("the name has {} bytes; use at most {}", request.name.size(), kMaxNameBytes));
  check_value(request, "dtype", request.dtype);
  check_tensor(request, tensor.data);
  return request;
}

Request Communicator::reduction(Collective collective, ConstTensorView tensor, const AllreduceOptions& options,
                                Channel& channel) const {
  Request made = request(collective, tensor, options.name, channel);
  made.op = options.op;
  made.compression = options.compression;
  made.prescale_factor = options.prescale_factor;
  made.postscale_factor = options.postscale_factor;
  check_value(made, "op", made.op);
  check_value(made, "compression", made.compression);
  if (!comm::can_reduce(tensor.dtype))
    refuse(made,
           fmt::format("{} is not accepted; use float32, float64, float16, bfloat16, int32 or int64", name_of(tensor.dtype)));
  const bool needs_floats = options.op == ReduceOp::Average || options.op == ReduceOp::Adasum || options.prescale_factor != 1 ||
                            options.postscale_factor != 1;
  if (needs_floats && !is_float(tensor.dtype))
    refuse(made,
           fmt::format("{} with op \"{}\", prescale_factor {} and postscale_factor {} is not defined; use op \"sum\" without "
                       "scales, or a floating-point tensor",
                       name_of(tensor.dtype), name_of(options.op), options.prescale_factor, options.postscale_factor));
  return made;
}

Handle Communicator::submit(Channel& channel, Submission submission) {
  return std::move(channel.submit(only(std::move(submission))).front());
}

Submission Communicator::allreduce_of(ConstTensorView tensor, const AllreduceOptions& options, Channel& channel) const {
  return {.request = reduction(Collective::Allreduce, tensor, options, channel), .in = tensor};
}

Handle Communicator::allreduce_async_(TensorView tensor, const AllreduceOptions& options) {
  Channel& set = channel(options.process_set);
  Submission submission = allreduce_of(tensor, options, set);
  submission.out = tensor;
  return submit(set, std::move(submission));
}
Handle Communicator::allreduce_async(ConstTensorView tensor, const AllreduceOptions& options) {
  Channel& set = channel(options.process_set);
  return submit(set, into_new_tensor(allreduce_of(tensor, options, set)));
}
void Communicator::allreduce_(TensorView tensor, const AllreduceOptions& options) {
  synchronize(allreduce_async_(tensor, options));
}
Tensor Communicator::allreduce(ConstTensorView tensor, const AllreduceOptions& options) {
  return synchronize(allreduce_async(tensor, options));
}

std::vector<Handle> Communicator::grouped_allreduce_async_(const std::vector<TensorView>& tensors,
                                                           const AllreduceOptions& options) {
  Channel& set = channel(options.process_set);
  AllreduceOptions of_tensor = options;
  const std::string group = group_name(options, set);
  std::vector<Submission> submissions;
  for (const TensorView& tensor : tensors) {
    of_tensor.name = fmt::format("{}.{}of{}", group, submissions.size() + 1, tensors.size());
    submissions.push_back(allreduce_of(tensor, of_tensor, set));
    submissions.back().out = tensor;
  }
  return set.submit(std::move(submissions));
}
std::vector<Handle> Communicator::grouped_allreduce_async(const std::vector<ConstTensorView>& tensors,
                                                          const AllreduceOptions& options) {
  Channel& set = channel(options.process_set);
  AllreduceOptions of_tensor = options;
  const std::string group = group_name(options, set);
  std::vector<Submission> submissions;
  for (const ConstTensorView& tensor : tensors) {
    of_tensor.name = fmt::format("{}.{}of{}", group, submissions.size() + 1, tensors.size());
    submissions.push_back(into_new_tensor(allreduce_of(tensor, of_tensor, set)));
  }
  return set.submit(std::move(submissions));
}
void Communicator::grouped_allreduce_(const std::vector<TensorView>& tensors, const AllreduceOptions& options) {
  auto handles = grouped_allreduce_async_(tensors, options);
  synchronize(handles);
}
std::vector<Tensor> Communicator::grouped_allreduce(const std::vector<ConstTensorView>& tensors,
                                                    const AllreduceOptions& options) {
  auto handles = grouped_allreduce_async(tensors, options);
  return synchronize(handles);
}

Handle Communicator::allgather_async(ConstTensorView tensor, const CallOptions& options) {
  Channel& set = channel(options.process_set);
  Submission submission{.request = request(Collective::Allgather, tensor, options.name, set), .in = tensor};
  check_rows(submission.request);
  return submit(set, std::move(submission));
}
Tensor Communicator::allgather(ConstTensorView tensor, const CallOptions& options) {
  return synchronize(allgather_async(tensor, options));
}

Submission Communicator::broadcast_of(ConstTensorView tensor, int root_rank, const CallOptions& options, Channel& set) const {
  Submission submission{.request = request(Collective::Broadcast, tensor, options.name, set), .in = tensor};
  const auto& ranks = set.world_ranks();
  const auto root = std::find(ranks.begin(), ranks.end(), root_rank);
  if (root == ranks.end()) refuse(submission.request, fmt::format("root_rank {} is not a rank of the process set", root_rank));
  submission.request.root = static_cast<int>(root - ranks.begin());
  return submission;
}
Handle Communicator::broadcast_async_(TensorView tensor, int root_rank, const CallOptions& options) {
  Channel& set = channel(options.process_set);
  Submission submission = broadcast_of(tensor, root_rank, options, set);
  submission.out = tensor;
  return submit(set, std::move(submission));
}
void Communicator::broadcast_(TensorView tensor, int root_rank, const CallOptions& options) {
  synchronize(broadcast_async_(tensor, root_rank, options));
}
Tensor Communicator::broadcast(ConstTensorView tensor, int root_rank, const CallOptions& options) {
  Channel& set = channel(options.process_set);
  return synchronize(submit(set, into_new_tensor(broadcast_of(tensor, root_rank, options, set))));
}

Result Communicator::alltoall(ConstTensorView tensor, const std::vector<int64_t>& splits, const CallOptions& options) {
  Channel& set = channel(options.process_set);
  Submission submission{.request = request(Collective::Alltoall, tensor, options.name, set), .in = tensor};
  Request& request = submission.request;
  check_rows(request);
  request.splits = splits;
  const int64_t rows = request.shape[0];
  if (splits.empty()) {
    if (rows % set.size() != 0)
      refuse(request,
             fmt::format("{} rows cannot be divided by {} ranks; say how many go to each in `splits`", rows, set.size()));
    request.splits.assign(set.size(), rows / set.size());
  }
  const bool in_range =
      std::all_of(request.splits.begin(), request.splits.end(), [&](int64_t count) { return count >= 0 && count <= rows; });
  const int64_t sum = in_range ? std::accumulate(request.splits.begin(), request.splits.end(), int64_t{0}) : -1;
  if (request.splits.size() != size_t(set.size()) || sum != rows)
    refuse(request,
           fmt::format("splits must be {} numbers of at least 0 whose sum is the number of rows, {}", set.size(), rows));
  Handle handle = submit(set, std::move(submission));
  return handle.result_.get();
}

Handle Communicator::reducescatter_async(ConstTensorView tensor, const AllreduceOptions& options) {
  Channel& set = channel(options.process_set);
  Submission submission{.request = reduction(Collective::Reducescatter, tensor, options, set), .in = tensor};
  check_rows(submission.request);
  if (options.op != ReduceOp::Average && options.op != ReduceOp::Sum)
    refuse(submission.request, fmt::format("op \"{}\" is not accepted; use \"average\" or \"sum\"", name_of(options.op)));
  return submit(set, std::move(submission));
}
Tensor Communicator::reducescatter(ConstTensorView tensor, const AllreduceOptions& options) {
  return synchronize(reducescatter_async(tensor, options));
}

void Communicator::barrier(const CallOptions& options) {
  Channel& set = channel(options.process_set);
  synchronize(submit(set, {.request = request(Collective::Barrier, {}, options.name, set)}));
}

int Communicator::join(const ProcessSet& set) { return channel(set).join().get(); }

bool Communicator::poll(const Handle& handle) const {
  if (!handle.result_.valid()) throw ConfigError("hvd: poll() of a handle that stands for nothing, or was waited for before");
  return handle.result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

Tensor Communicator::synchronize(Handle& handle) {
  if (!handle.result_.valid())
    throw ConfigError("hvd: synchronize() of a handle that stands for nothing, or was waited for before");
  return std::move(handle.result_.get().tensor);
}

std::vector<Tensor> Communicator::synchronize(std::vector<Handle>& handles) {
  for (const Handle& handle : handles) handle.wait();
  std::vector<Tensor> tensors;
  for (Handle& handle : handles) tensors.push_back(synchronize(handle));
  return tensors;
}

}  // namespace trivet::hvd
