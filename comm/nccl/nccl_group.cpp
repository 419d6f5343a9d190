#include "comm/nccl/nccl_group.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <optional>

#include "comm/arguments.h"
#include "comm/element_range.h"
#include "comm/nccl/communicator.h"
#include "comm/nccl/data_types.h"
#include "comm/nccl/staged_sums.h"
#include "comm/nccl/under_way.h"
#include "comm/traffic.h"
#include "core/cuda/error.h"

namespace trivet::comm {
namespace {

void broadcast_bytes(ProcessGroup& host, void* data, int64_t bytes) {
  host.broadcast({data, DType::UInt8, {bytes}}, 0, *make_inline_stream());
}

template <typename T>
std::vector<T> gather_values(ProcessGroup& host, T value) {
  std::vector<T> values(static_cast<size_t>(host.size()));
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  host.all_gather({&value, DType::UInt8, {kBytes}}, {values.data(), DType::UInt8, {kBytes * host.size()}},
                  *make_inline_stream());
  return values;
}

RankInGroup self_in(ProcessGroup& host, const std::string& name, const NcclResources& resources) {
  return {name, host.rank(), gather_values(host, resources.world_rank()), resources.host()};
}

// Collective over `host`.
std::unique_ptr<Communicator> make_communicator(ProcessGroup& host, const RankInGroup& self, NcclResources& resources) {
  ncclUniqueId id{};
  if (host.rank() == 0)
    if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess)
      std::rethrow_exception(nccl_error(self, "ncclGetUniqueId", result, ncclGetLastError(nullptr), ExitCode::Rendezvous));
  broadcast_bytes(host, &id, sizeof id);
  return std::make_unique<Communicator>(
      self, id, resources.watch(),
      CommunicatorDeadlines{resources.options().join_deadline, resources.options().operation_deadline});
}

class NcclGroup final : public ProcessGroup {
 public:
  NcclGroup(std::unique_ptr<ProcessGroup> host, NcclResources& resources);
  ~NcclGroup() override { resources_.watch().remove(under_way_); }

  int rank() const override { return self_.rank; }
  int size() const override { return self_.size(); }
  const std::string& name() const override { return self_.group; }

  void all_reduce(TensorView data, ReduceOp op, Stream& stream) override;
  void reduce_scatter(ConstTensorView whole, TensorView shard, ReduceOp op, Stream& stream) override;
  void all_gather(ConstTensorView shard, TensorView whole, Stream& stream) override;
  void broadcast(TensorView data, int root, Stream& stream) override;
  void all_to_all(ConstTensorView in, TensorView out, Stream& stream) override;
  void all_to_all_v(ConstTensorView in, TensorView out, const ExchangeCounts& counts, Stream& stream) override;
  void send(ConstTensorView data, int peer, Stream& stream) override;
  void receive(TensorView data, int peer, Stream& stream) override;
  void barrier(Stream& stream) override;

  std::unique_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks, const std::string& name) override;
  Traffic traffic() const override { return traffic_; }
  void close();

 private:
  using Work = std::function<void(const std::string& during, cudaStream_t stream)>;
  using Calls = std::function<ncclResult_t(ncclComm_t comm, cudaStream_t stream)>;

  // Counts the operation and enqueues it on the stream as one piece of work. `moves` is false if there is nothing to do.
  void enqueue(const OperationHeader& header, bool moves, Stream& stream, const Work& work);
  void call(const OperationHeader& header, bool moves, Stream& stream, const Calls& calls);
  Work exchange(ConstTensorView in, TensorView out, const ExchangeCounts& counts);
  void compare(const OperationHeader& header);
  void compare_counts(const OperationHeader& header, const ExchangeCounts& counts);
  Communicator& communicator_from(int sender);
  void make_communicators();
  void connect(Communicator& communicator, int from, int to);
  void copy(ConstTensorView from, TensorView to, cudaStream_t stream);

  std::unique_ptr<ProcessGroup> host_;
  NcclResources& resources_;
  RankInGroup self_;
  Buffer word_;  // reduced by a barrier
  std::optional<StagedSums> sums_;
  std::unique_ptr<Communicator> communicator_, backward_;  // none in a group of one; backward_ only in a group of two
  UnderWay under_way_;
  Traffic traffic_;
};

NcclGroup::NcclGroup(std::unique_ptr<ProcessGroup> host, NcclResources& resources)
    : host_(std::move(host)), resources_(resources), self_(self_in(*host_, host_->name(), resources)), under_way_(self_) {
  if (size() > 1) make_communicators();
  resources_.watch().add(under_way_);  // last, so that an exception above leaves nothing behind
}

void NcclGroup::make_communicators() {
  word_ = resources_.buffer(sizeof(int64_t));
  communicator_ = make_communicator(*host_, self_, resources_);
  sums_.emplace(*communicator_, resources_);
  if (size() != 2) return;
  backward_ = make_communicator(*host_, self_, resources_);
  connect(*communicator_, 0, 1);
  connect(*backward_, 1, 0);
}

// NCCL connects two ranks at their first message, and the host waits for that. It happens here because later the other rank may
// arrive only if this one continues.
void NcclGroup::connect(Communicator& communicator, int from, int to) {
  const cudaStream_t stream = resources_.current_stream();
  communicator.run("connecting", [&](ncclComm_t comm) {
    return rank() == from ? ncclSend(word_.view().data, 1, ncclInt64, to, comm, stream)
                          : ncclRecv(word_.view().data, 1, ncclInt64, from, comm, stream);
  });
}

Communicator& NcclGroup::communicator_from(int sender) { return backward_ && sender == 1 ? *backward_ : *communicator_; }

void NcclGroup::enqueue(const OperationHeader& header, bool moves, Stream& stream, const Work& work) {
  traffic_.operations += 1;
  traffic_.bytes_sent += bytes_sent(header, rank(), size());
  const bool message = header.operation == Operation::Send || header.operation == Operation::Receive;
  if (resources_.options().compare_calls && !message) compare(header);
  stream.enqueue([this, header, moves, work] {
    const std::string during = to_string(header);
    resources_.watch().check(self_, during);
    if (!moves) return;
    const cudaStream_t target = resources_.current_stream();
    work(during, target);
    under_way_.add(header, target);
  });
}

void NcclGroup::call(const OperationHeader& header, bool moves, Stream& stream, const Calls& calls) {
  const bool message = header.operation == Operation::Send || header.operation == Operation::Receive;
  const int sender = !message ? 0 : header.operation == Operation::Send ? rank() : header.root;
  enqueue(header, moves, stream, [this, sender, calls](const std::string& during, cudaStream_t target) {
    communicator_from(sender).run(during, [&](ncclComm_t comm) { return calls(comm, target); });
  });
}

void NcclGroup::compare(const OperationHeader& header) {
  static_assert(std::is_trivially_copyable_v<OperationHeader>);
  const std::vector<OperationHeader> headers = gather_values(*host_, header);
  for (size_t other = 1; other < headers.size(); ++other)
    if (headers[other] != headers[0])
      throw CommError(ExitCode::RanksDisagree,
                      fmt::format("{}ranks disagree: rank 0 (world rank {}) runs {}, rank {} (world rank {}) runs {}; all "
                                  "ranks of a group must make the same calls in the same order",
                                  self_.prefix(), self_.world_ranks[0], to_string(headers[0]), other, self_.world_ranks[other],
                                  to_string(headers[other])));
}

void NcclGroup::compare_counts(const OperationHeader& header, const ExchangeCounts& counts) {
  std::vector<int64_t> sent_here(counts.sent.size());
  host_->all_to_all({counts.sent.data(), DType::Int64, {size()}}, {sent_here.data(), DType::Int64, {size()}},
                    *make_inline_stream());
  for (int from = 0; from < size(); ++from)
    if (sent_here[from] != counts.received[from])
      throw CommError(ExitCode::RanksDisagree,
                      fmt::format("{}ranks disagree: {}: rank {} (world rank {}) sends {} elements to this one, which receives "
                                  "{}; what one rank sends, the other must receive",
                                  self_.prefix(), to_string(header), from, self_.world_ranks[from], sent_here[from],
                                  counts.received[from]));
}

void NcclGroup::copy(ConstTensorView from, TensorView to, cudaStream_t stream) {
  if (from.data == to.data || from.elements() == 0) return;
  CUDA_CHECK(cudaMemcpyAsync(to.data, from.data, static_cast<size_t>(from.bytes()), cudaMemcpyDeviceToDevice, stream));
}

namespace {

ncclRedOp_t nccl_op(ReduceOp op) { return op == ReduceOp::Max ? ncclMax : ncclSum; }  // order does not matter for integers

}  // namespace

void NcclGroup::all_reduce(TensorView data, ReduceOp op, Stream& stream) {
  const OperationHeader header = all_reduce_header(*this, data, op);
  const bool moves = size() > 1 && data.elements() > 0;
  if (is_float(data.dtype))
    return enqueue(header, moves, stream, [this, data, op](const std::string& during, cudaStream_t target) {
      sums_->all_reduce(during, data, op, target);
    });
  call(header, moves, stream, [data, op](ncclComm_t comm, cudaStream_t target) {
    return ncclAllReduce(data.data, data.data, static_cast<size_t>(data.elements()), nccl_type(data.dtype), nccl_op(op), comm,
                         target);
  });
}

void NcclGroup::reduce_scatter(ConstTensorView whole, TensorView shard, ReduceOp op, Stream& stream) {
  const OperationHeader header = reduce_scatter_header(*this, whole, shard, op);
  const bool moves = shard.elements() > 0;
  if (size() == 1)
    return enqueue(header, moves, stream,
                   [this, whole, shard](const std::string&, cudaStream_t target) { copy(whole, shard, target); });
  if (is_float(shard.dtype))
    return enqueue(header, moves, stream, [this, whole, shard, op](const std::string& during, cudaStream_t target) {
      sums_->reduce_scatter(during, whole, shard, op, target);
    });
  call(header, moves, stream, [whole, shard, op](ncclComm_t comm, cudaStream_t target) {
    return ncclReduceScatter(whole.data, shard.data, static_cast<size_t>(shard.elements()), nccl_type(shard.dtype), nccl_op(op),
                             comm, target);
  });
}

void NcclGroup::all_gather(ConstTensorView shard, TensorView whole, Stream& stream) {
  const OperationHeader header = all_gather_header(*this, shard, whole);
  const bool moves = shard.elements() > 0;
  if (size() == 1)
    return enqueue(header, moves, stream,
                   [this, shard, whole](const std::string&, cudaStream_t target) { copy(shard, whole, target); });
  call(header, moves, stream, [shard, whole](ncclComm_t comm, cudaStream_t target) {
    return ncclAllGather(shard.data, whole.data, static_cast<size_t>(shard.elements()), nccl_type(shard.dtype), comm, target);
  });
}

void NcclGroup::broadcast(TensorView data, int root, Stream& stream) {
  const OperationHeader header = broadcast_header(*this, data, root);
  call(header, size() > 1 && data.elements() > 0, stream, [data, root](ncclComm_t comm, cudaStream_t target) {
    return ncclBroadcast(data.data, data.data, static_cast<size_t>(data.elements()), nccl_type(data.dtype), root, comm, target);
  });
}

void NcclGroup::all_to_all(ConstTensorView in, TensorView out, Stream& stream) {
  const OperationHeader header = all_to_all_header(*this, in, out);
  const std::vector<int64_t> counts(static_cast<size_t>(size()), header.count);
  enqueue(header, header.count > 0, stream, exchange(in, out, {counts, counts}));
}

void NcclGroup::all_to_all_v(ConstTensorView in, TensorView out, const ExchangeCounts& counts, Stream& stream) {
  const OperationHeader header = all_to_all_v_header(*this, in, out, counts);
  traffic_.bytes_sent += bytes_sent(counts, in.dtype, rank());
  if (resources_.options().compare_calls) compare_counts(header, counts);
  enqueue(header, in.elements() + out.elements() > 0, stream, exchange(in, out, counts));
}

NcclGroup::Work NcclGroup::exchange(ConstTensorView in, TensorView out, const ExchangeCounts& counts) {
  const std::vector<ElementRange> sent = parts_of(counts.sent), received = parts_of(counts.received);
  const auto part_in = [=](int rank) { return in.slice(sent[rank].first, sent[rank].count); };
  const auto part_out = [=](int rank) { return out.slice(received[rank].first, received[rank].count); };
  return [=, this](const std::string& during, cudaStream_t target) {
    copy(part_in(rank()), part_out(rank()), target);
    if (size() == 1) return;
    communicator_->run(during, [&](ncclComm_t comm) {
      for (int step = 1; step < size(); ++step) {
        const int to = (rank() + step) % size(), from = (rank() + size() - step) % size();
        const auto to_send = static_cast<size_t>(sent[to].count), to_receive = static_cast<size_t>(received[from].count);
        ncclResult_t result = ncclSuccess;
        if (to_send > 0) result = ncclSend(part_in(to).data, to_send, nccl_type(in.dtype), to, comm, target);
        if (went_wrong(result)) return result;
        if (to_receive > 0) result = ncclRecv(part_out(from).data, to_receive, nccl_type(in.dtype), from, comm, target);
        if (went_wrong(result)) return result;
      }
      return ncclSuccess;
    });
  };
}

void NcclGroup::send(ConstTensorView data, int peer, Stream& stream) {
  const OperationHeader header = message_header(*this, Operation::Send, data, peer);
  call(header, data.elements() > 0, stream, [data, peer](ncclComm_t comm, cudaStream_t target) {
    return ncclSend(data.data, static_cast<size_t>(data.elements()), nccl_type(data.dtype), peer, comm, target);
  });
}

void NcclGroup::receive(TensorView data, int peer, Stream& stream) {
  const OperationHeader header = message_header(*this, Operation::Receive, data, peer);
  call(header, data.elements() > 0, stream, [data, peer](ncclComm_t comm, cudaStream_t target) {
    return ncclRecv(data.data, static_cast<size_t>(data.elements()), nccl_type(data.dtype), peer, comm, target);
  });
}

void NcclGroup::barrier(Stream& stream) {
  call({.operation = Operation::Barrier}, size() > 1, stream, [this](ncclComm_t comm, cudaStream_t target) {
    return ncclAllReduce(word_.view().data, word_.view().data, 1, ncclInt64, ncclMax, comm, target);
  });
}

// [Note: why groups are not split] ncclCommSplit saves little where ranks can meet on the host anyway, and it orders the
// creation of the new communicator with the operations of the old one.
std::unique_ptr<ProcessGroup> NcclGroup::subgroup(const std::vector<int>& ranks, const std::string& name) {
  auto host = host_->subgroup(ranks, name);
  return host ? std::make_unique<NcclGroup>(std::move(host), resources_) : nullptr;
}

void NcclGroup::close() {
  if (communicator_) communicator_->close();
  if (backward_) backward_->close();
}

}  // namespace

std::unique_ptr<ProcessGroup> make_nccl_group(std::unique_ptr<ProcessGroup> host, NcclResources& resources) {
  return std::make_unique<NcclGroup>(std::move(host), resources);
}

void close_nccl_group(ProcessGroup& group) { dynamic_cast<NcclGroup&>(group).close(); }

}  // namespace trivet::comm
